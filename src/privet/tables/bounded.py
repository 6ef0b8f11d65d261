"""Columns of points between public bounds: numbers and dates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet._utils.registry import add
from privet.errors import InvalidArgumentError, choice, real
from privet.tables.cells import Words, parse_numbers, to_words
from privet.tables.columns import INDICATOR, NEUTRAL, Column, Matrix, stack_features

_WORDS = (NEUTRAL, INDICATOR)


# Name → increasing transform of a number before its bounds are scaled to -1 and 1.
SCALES: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "linear": lambda values: values,
    "log": lambda values: np.sign(values) * np.log1p(np.abs(values)),
}


class Bounded(Column):
    """A column whose cells are points between public bounds."""

    @property
    def number(self) -> Number:
        """The encoding of points."""
        raise NotImplementedError

    def read(self, cells: Sequence[str | None]) -> NDArray[np.float64]:
        """Return the point that each cell denotes, (N,); NaN for none."""
        return parse_numbers(cells)

    def labels(self) -> tuple[str, ...]:
        """Return the column itself, and the indicator of missing cells if there is one."""
        return ("", " is missing") if self.number.missing == INDICATOR else ("",)

    def encode(self, cells: Words | NDArray[np.generic]) -> Matrix:
        """Return points scaled to [-1, 1], (N, 1), or (N, 2) with the indicator."""
        words = to_words(cells)
        return self.number.encode_points(self.read(words.distinct))[words.places]

    def fits(self, cells: Sequence[str | None]) -> NDArray[np.bool_]:
        """Return whether each cell is a point within the bounds."""
        points = self.read(cells)
        return np.asarray((points >= self.number.lower) & (points <= self.number.upper))


@add
@dataclass(frozen=True)
class Number(Bounded):
    """A number, scaled so that its public bounds become -1 and 1.

    Args:
        lower: lowest value that counts; public, finite.
        upper: highest value that counts, above `lower`.
        scale: "linear", or "log" for sign(x)·log(1 + |x|) before scaling, for very skewed numbers such as amounts of money.
        outside: encoding of a number out of the bounds: "clip" for the nearest bound, or "missing".
        missing: encoding of a missing cell, or of text: "neutral" for the middle of the scale, "indicator" for the middle and an
            additional feature, or a number within the bounds.

    >>> Number(lower=0, upper=100).encode(np.array([0.0, 75.0, 900.0, np.nan])).ravel().tolist()
    [-1.0, 0.5, 1.0, 0.0]
    """

    lower: float
    upper: float
    scale: str = "linear"
    outside: str = "clip"
    missing: str | float = NEUTRAL

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            object.__setattr__(self, name, real(name, getattr(self, name)))
        choice("scale", self.scale, SCALES)
        if not self._half_range > 0:
            raise InvalidArgumentError("upper", self.upper, f"above lower = {self.lower:g}, by more than rounding")
        choice("outside", self.outside, ("clip", "missing"))
        if isinstance(self.missing, str):
            choice("missing", self.missing, (NEUTRAL, INDICATOR), "Or a number within the bounds.")
        elif not self.lower <= real("missing", self.missing) <= self.upper:
            raise InvalidArgumentError("missing", self.missing, f"from {self.lower:g} to {self.upper:g}")
        else:
            object.__setattr__(self, "missing", float(self.missing))

    @property
    def number(self) -> Number:
        """Itself."""
        return self

    @property
    def requirement(self) -> str:
        """The bounds."""
        return f"a number from {self.lower:.12g} to {self.upper:.12g}"

    def encode(self, cells: Words | NDArray[np.generic]) -> Matrix:
        """Return numbers scaled to [-1, 1], (N, 1), or (N, 2) with the indicator."""
        return super().encode(cells) if isinstance(cells, Words) else self.encode_points(cells)

    def encode_points(self, cells: NDArray[np.generic]) -> Matrix:
        """Return numbers scaled to [-1, 1]; NaN is a missing one."""
        values = self._within(cells)
        lost = np.isnan(values)
        if isinstance(self.missing, str):
            scaled = np.where(lost, 0.0, self.rescale(values))
        else:
            scaled = self.rescale(np.where(lost, self.missing, values))
        return stack_features(scaled, lost) if self.missing == INDICATOR else stack_features(scaled)

    def rescale(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return numbers within the bounds on the scale from -1 to 1; NaN stays NaN."""
        low, _ = self._ends
        return np.clip((SCALES[self.scale](values) / 2 - low / 2) / self._half_range * 2 - 1, -1.0, 1.0)

    def restore(self, scaled: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Return the numbers for points of the scale, within the bounds; the inverse of `rescale`."""
        low, high = self._ends
        share = (np.clip(np.asarray(scaled, dtype=np.float64), -1.0, 1.0) + 1) / 2
        points = low * (1 - share) + high * share
        values = np.sign(points) * np.expm1(np.abs(points)) if self.scale == "log" else points
        return np.clip(values, self.lower, self.upper)

    @property
    def _ends(self) -> tuple[float, float]:
        low, high = SCALES[self.scale](np.array([self.lower, self.upper], dtype=np.float64))
        return float(low), float(high)

    @property
    def _half_range(self) -> float:
        low, high = self._ends
        return high / 2 - low / 2  # halves, so that bounds near the largest float do not overflow

    def _within(self, cells: NDArray[np.generic]) -> NDArray[np.float64]:
        values = cells.astype(np.float64)
        if self.outside == "clip":
            return np.clip(values, self.lower, self.upper)
        return np.where((values >= self.lower) & (values <= self.upper), values, np.nan)


@add
@dataclass(frozen=True)
class Date(Bounded):
    """A day, as a number that its public bounds scale to -1 and 1; the time of the day does not count.

    Args:
        lower: earliest day that counts, such as "1900-01-31" or a `datetime.date`; public.
        upper: latest day that counts, after `lower`.
        format: how cells are written, in the codes of Python's `strptime`, such as "%d.%m.%Y"; empty for ISO 8601, such as
            2024-01-31, 20240131 and 2024-01-31 17:05, as data frames write their dates.
        outside: encoding of a day out of the bounds: "clip" for the nearest bound, or "missing".
        missing: encoding of a missing cell, or of one that is no date: "neutral" for the middle, "indicator" for the middle and
            an additional feature, or a day within the bounds.

    >>> Date("2020-01-01", "2020-01-03", "%d/%m/%Y").encode(to_words(np.array(["02/01/2020", "9/1/2021"]))).ravel().tolist()
    [0.0, 1.0]
    """

    lower: str
    upper: str
    format: str = ""
    outside: str = "clip"
    missing: str = NEUTRAL

    def __post_init__(self) -> None:
        for name in ("lower", "upper", "missing"):
            if name != "missing" or self.missing not in _WORDS:
                day = read_day(str(getattr(self, name)))
                if day is None or (name != "lower" and str(day) < self.lower):
                    allowed = f"a day in ISO 8601, such as 1990-12-31{'' if name == 'lower' else f', from {self.lower}'}"
                    raise InvalidArgumentError(name, getattr(self, name), allowed)
                object.__setattr__(self, name, str(day))
        if (self.missing not in _WORDS and self.missing > self.upper) or self.upper == self.lower:
            allowed = f"a day after lower = {self.lower}, and not before missing = {self.missing}"
            raise InvalidArgumentError("upper", self.upper, allowed)
        choice("outside", self.outside, ("clip", "missing"))
        if not isinstance(self.format, str) or not all(map(self._restores, (self.lower, self.upper))):
            fix = "Such as %Y for the year, %m for the month, and %d for the day."
            raise InvalidArgumentError("format", self.format, "one in which the bounds can be written and read again", fix)

    @cached_property
    def number(self) -> Number:
        """The kind of column with these bounds, in days."""
        lower, upper = (date.fromisoformat(day).toordinal() for day in (self.lower, self.upper))
        missing = self.missing if self.missing in _WORDS else date.fromisoformat(self.missing).toordinal()
        return Number(lower, upper, outside=self.outside, missing=missing)

    @property
    def requirement(self) -> str:
        """The bounds, and the format if it is declared."""
        return f"a date from {self.lower} to {self.upper}" + (f" in the format {self.format}" if self.format else "")

    def read(self, cells: Sequence[str | None]) -> NDArray[np.float64]:
        """Return the day that each cell denotes, counted from the year 1, (N,); NaN for none."""
        days = (read_day(cell or "", self.format) for cell in cells)
        return np.array([math.nan if day is None else day.toordinal() for day in days], dtype=np.float64)

    def _restores(self, day: str) -> bool:
        try:
            return not self.format or str(read_day(date.fromisoformat(day).strftime(self.format), self.format)) == day
        except ValueError:  # such as a null character
            return False


def read_day(cell: str, form: str = "") -> date | None:
    """Return the day that a cell denotes in a format, ISO 8601 by default; None if it denotes none."""
    try:
        return (datetime.strptime(cell, form) if form else datetime.fromisoformat(cell)).date()
    except ValueError:
        return None
