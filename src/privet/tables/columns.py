"""Kinds of columns: the encoding of a cell, determined by the cell and the public constants of the schema.

Features are bounded whatever a cell holds: numbers lie in [-1, 1], categories and indicators are 0 or 1, and the features of a
text have a Euclidean norm of at most 1.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet._utils.registry import add
from privet.errors import InvalidArgumentError, choice, count, real
from privet.tables.cells import Words, match, parse_numbers, plain, to_words

# Whether a cell fits its column.
FITS = 0
MISSING = 1
UNFIT = 2

# Encodings of a missing cell: features of 0, or these and an additional indicator of 1.
_NEUTRAL, _INDICATOR = _WORDS = ("neutral", "indicator")
_MOST_VALUES = 10_000
_SHOWN = 5  # values in a message
_MOST_TEXT_FEATURES = 2**20
_WORD = re.compile(r"\w+")
_TRUE = ("true", "t", "yes", "y", "1", "1.0")
_FALSE = ("false", "f", "no", "n", "0", "0.0")

Matrix = NDArray[np.float32]


def _signed_log(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.sign(values) * np.log1p(np.abs(values))


# Name → increasing transform of a number before its bounds are scaled to -1 and 1.
SCALES: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {"linear": lambda values: values, "log": _signed_log}


class Declared:
    """What a schema declares of the cells of one column: which of them fit.

    Guarantee:
        Whether a cell fits depends on that cell and the public schema only, and no cell raises an exception.
    """

    @property
    def values_with_meaning(self) -> tuple[str, ...]:
        """Cells that are values of this column even if the schema counts such text as missing elsewhere."""
        return ()

    @property
    def requirement(self) -> str:
        """Description of an allowed cell, in words that follow "is not"."""
        return "any cell"

    def fits(self, cells: Sequence[str | None]) -> NDArray[np.bool_]:
        """Return whether each cell is allowed, (N,); what is returned for a missing cell (None) does not matter."""
        return np.ones(len(cells), dtype=bool)

    def status(self, cells: Words | NDArray[np.generic]) -> NDArray[np.int8]:
        """Return `FITS`, `MISSING` or `UNFIT` for each cell, (N,)."""
        words = to_words(cells)
        lost = np.array([cell is None for cell in words.distinct], dtype=bool)
        return np.where(lost, MISSING, np.where(self.fits(words.distinct), FITS, UNFIT)).astype(np.int8)[words.places]


class Column(Declared):
    """Encoding of the cells of one column; a pure function of each cell."""

    def labels(self) -> tuple[str, ...]:
        """Return the public name of each feature; "" for the column itself."""
        return ()

    def encode(self, cells: Words | NDArray[np.generic]) -> Matrix:
        """Return the features of each cell, (N, len(labels())) float32."""
        return np.zeros((len(cells), 0), dtype=np.float32)


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
        return ("", " is missing") if self.number.missing == _INDICATOR else ("",)

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
    missing: str | float = _NEUTRAL

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            object.__setattr__(self, name, real(name, getattr(self, name)))
        choice("scale", self.scale, SCALES)
        if not self._half_range > 0:
            raise InvalidArgumentError("upper", self.upper, f"above lower = {self.lower:g}, by more than rounding")
        choice("outside", self.outside, ("clip", "missing"))
        if isinstance(self.missing, str):
            choice("missing", self.missing, (_NEUTRAL, _INDICATOR), "Or a number within the bounds.")
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
        return _columns(scaled, lost) if self.missing == _INDICATOR else _columns(scaled)

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
    missing: str = _NEUTRAL

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


@add
@dataclass(frozen=True)
class Category(Column):
    """One of a list of values: a feature for each, which is 1 for the cell's value and 0 for others.

    Args:
        values: 1 to 10,000 distinct values; public. A numeric one matches every spelling of its number.
        missing: encoding of a missing cell: "neutral" for zeros, "indicator" for an additional feature, or one of the values.
        unknown: encoding of any other cell: the same choices, or "missing".

    >>> Category(("red", "white"), unknown="indicator").encode(to_words(np.array(["white", "pink"]))).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """

    values: tuple[str, ...]
    missing: str = _NEUTRAL
    unknown: str = _NEUTRAL

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", distinct_texts("values", self.values, 1, _MOST_VALUES))
        fix = "Or one of the values."
        if self.missing not in self.values:
            choice("missing", self.missing, (_NEUTRAL, _INDICATOR), fix)
        if self.unknown not in self.values:
            choice("unknown", self.unknown, (_NEUTRAL, _INDICATOR, "missing"), fix)

    def labels(self) -> tuple[str, ...]:
        """Return a label for each value, and those of the indicators."""
        asked = [("missing", self.missing), ("unknown", self.unknown)]
        return (*(f"={value}" for value in self.values), *(f" is {what}" for what, becomes in asked if becomes == _INDICATOR))

    @property
    def values_with_meaning(self) -> tuple[str, ...]:
        """The values."""
        return self.values

    @property
    def requirement(self) -> str:
        """The number of values, and a few of them."""
        return f"one of the {len(self.values)} values {shorten(self.values)}"

    def encode(self, cells: Words | NDArray[np.generic]) -> Matrix:
        """Return an indicator of each value, (N, values), and of missing and unknown cells if the schema has them."""
        words = to_words(cells)
        table = np.zeros((len(words.distinct), len(self.labels()) + 1), dtype=np.float32)
        table[np.arange(len(words.distinct)), self._places(words.distinct)] = 1.0
        return table[words.places, :-1]

    def fits(self, cells: Sequence[str | None]) -> NDArray[np.bool_]:
        """Return whether each cell is one of the values."""
        return match(cells, self.values) >= 0

    def _places(self, cells: Sequence[str | None]) -> NDArray[np.int64]:
        """Return the position of each cell's feature that is 1; the last position, which is dropped, for none."""
        labels = self.labels()
        neutral = len(labels)

        def place(becomes: str, indicator: str) -> int:
            if becomes == _INDICATOR:
                return labels.index(indicator)
            return neutral if becomes == _NEUTRAL else self.values.index(becomes)

        missing = place(self.missing, " is missing")
        unknown = missing if self.unknown == "missing" else place(self.unknown, " is unknown")
        lost = np.array([cell is None for cell in cells], dtype=bool)
        found = match(cells, self.values)
        return np.where(found >= 0, found, np.where(lost, missing, unknown))


@add
@dataclass(frozen=True)
class Boolean(Column):
    """Yes or no: a feature that is 1 or -1.

    Args:
        true: the cell that means yes, or several, in any case and any spelling of a number; by default true, t, yes, y and 1.
        false: cells that mean no; by default false, f, no, n and 0.
        missing: encoding of any other cell: "neutral" for 0, "indicator" for 0 and an additional feature, "true" or "false".
    """

    true: tuple[str, ...] = _TRUE
    false: tuple[str, ...] = _FALSE
    missing: str = _NEUTRAL

    def __post_init__(self) -> None:
        for name in ("true", "false"):
            given = getattr(self, name)
            cells = (given,) if isinstance(given, str | int | float) else given
            object.__setattr__(self, name, distinct_texts(name, cells, 1, 100))
        if both := {*map(_folded, self.true)} & {*map(_folded, self.false)}:
            raise InvalidArgumentError("false", sorted(both), "different from the cells that mean true")
        choice("missing", self.missing, (_NEUTRAL, _INDICATOR, "true", "false"))

    def labels(self) -> tuple[str, ...]:
        """Return the column itself, and the indicator of missing cells if there is one."""
        return ("", " is missing") if self.missing == _INDICATOR else ("",)

    @property
    def values_with_meaning(self) -> tuple[str, ...]:
        """The cells that mean yes or no."""
        return (*self.true, *self.false)

    @property
    def requirement(self) -> str:
        """Description of an allowed cell."""
        return "one of the cells that mean true or false"

    def encode(self, cells: Words | NDArray[np.generic]) -> Matrix:
        """Return 1 for yes and -1 for no, (N, 1), or (N, 2) with the indicator."""
        words = to_words(cells)
        signs = self._signs(words.distinct)
        lost = signs == 0
        values = np.where(lost, {"true": 1.0, "false": -1.0}.get(self.missing, 0.0), signs)
        table = _columns(values, lost) if self.missing == _INDICATOR else _columns(values)
        return table[words.places]

    def fits(self, cells: Sequence[str | None]) -> NDArray[np.bool_]:
        """Return whether each cell means yes or no."""
        return np.asarray(self._signs(cells) != 0)

    def _signs(self, cells: Sequence[str | None]) -> NDArray[np.float64]:
        known = {_folded(text): -1.0 for text in self.false} | {_folded(text): 1.0 for text in self.true}
        return np.array([0.0 if cell is None else known.get(_folded(cell), 0.0) for cell in cells], dtype=np.float64)


@add
@dataclass(frozen=True)
class Text(Column):
    """Words of a text, counted in features that a public hash of each word chooses, and scaled to norm 1.

    Signed feature hashing: Weinberger, Dasgupta, Langford, Smola & Attenberg 2009, "Feature hashing for large scale multitask
    learning". No vocabulary is inferred from the texts. A text without words, like a missing one, has features of 0. A
    cell that is a number has the same features in each of its spellings.

    Args:
        size: number of features, 1 to 2²⁰; several times the number of words that matter.
    """

    size: int = 1024

    def __post_init__(self) -> None:
        if count("size", self.size) > _MOST_TEXT_FEATURES:
            raise InvalidArgumentError("size", self.size, f"at most {_MOST_TEXT_FEATURES}")

    def labels(self) -> tuple[str, ...]:
        """Return a number for each feature."""
        return tuple(f"#{place}" for place in range(self.size))

    def encode(self, cells: Words | NDArray[np.generic]) -> Matrix:
        """Return the counts of hashed words, (N, size), each row of norm 1 or 0."""
        words = to_words(cells)
        table = np.zeros((len(words.distinct), self.size), dtype=np.float32)
        hashes: dict[str, tuple[int, float]] = {}
        for row, text in enumerate(words.distinct):
            for word in _WORD.findall(_folded(text or "")):
                if word not in hashes:
                    hashes[word] = self._hash(word)
                place, sign = hashes[word]
                table[row, place] += sign
        norms = np.linalg.norm(table, axis=1, keepdims=True)
        # The division rounds: a row must not exceed norm 1.
        table /= np.maximum(norms, 1.0) * np.float32(1 + 1e-6)
        return table[words.places]

    def _hash(self, word: str) -> tuple[int, float]:
        digest = int.from_bytes(hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest(), "little")
        return (digest >> 1) % self.size, 1.0 if digest & 1 else -1.0


@add
@dataclass(frozen=True)
class UserId(Column):
    """The user of a row, as any text or number: not a feature, but the unit of privacy. Rows without one are left out.

    Spellings of one number, such as 7, 7.0 and 007, are one user.
    """

    @property
    def requirement(self) -> str:
        """Description of an allowed cell."""
        return "a user"


@add
@dataclass(frozen=True)
class Identifier(Column):
    """What a row is called: not a feature, but written beside its prediction."""


@add
@dataclass(frozen=True)
class Ignore(Column):
    """A column that is not used."""


def shorten(values: Sequence[str]) -> str:
    """Return public values in words: a few, because there may be many."""
    return ", ".join(values[:_SHOWN]) + (", …" if len(values) > _SHOWN else "")


def distinct_texts(name: str, values: object, least: int, most: int) -> tuple[str, ...]:
    """Return `least` to `most` public values, such as categories, as distinct strings without surrounding spaces."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidArgumentError(name, values, "a list of values", 'Such as ["yes", "no"].')
    given = tuple(values)
    if wrong := [value for value in given if isinstance(value, bool) or not isinstance(value, str | int | float)]:
        raise InvalidArgumentError(name, wrong[0], "a list of strings or numbers", "Put it into quotes.")
    texts = tuple(str(value).strip() for value in given)
    if not least <= len(texts) <= most:
        raise InvalidArgumentError(name, f"a list of {len(texts)}", f"a list of {least} to {most:,} values")
    if "" in texts or len(set(texts)) < len(texts):
        twice = next((text for text in texts if not text or texts.count(text) > 1), "")
        raise InvalidArgumentError(name, twice, "a list of distinct values that are not empty", "Remove this one.")
    return texts


def read_day(cell: str, form: str = "") -> date | None:
    """Return the day that a cell denotes in a format, ISO 8601 by default; None if it denotes none."""
    try:
        return (datetime.strptime(cell, form) if form else datetime.fromisoformat(cell)).date()
    except ValueError:
        return None


def _folded(cell: str) -> str:
    return plain(cell).casefold()


def _columns(*features: NDArray[np.generic]) -> Matrix:
    return np.stack(features, axis=1).astype(np.float32)
