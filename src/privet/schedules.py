"""Schedules: public functions of the step number alone.

A schedule gives a factor for every step, by which its owner multiplies a clip bound, a noise multiplier or a learning rate.
Factors are public: they are part of the plan, and the accountant uses every one.
"""

from __future__ import annotations

__all__ = [
    "Constant",
    "Geometric",
    "Linear",
    "Piecewise",
    "Schedule",
    "Table",
    "ToZero",
]

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privet._utils.registry import Part, register
from privet.errors import InvalidArgumentError, between, count, positive

Factors = NDArray[np.float64]


class Schedule(Part, ABC):
    """A schedule."""

    @abstractmethod
    def factors(self, total: int) -> Factors:
        """Return the factor of each step of a training of `total` steps, (total,), all finite and > 0.

        A plan asks once, when it is made, and keeps the answer.
        """


@register
@dataclass(frozen=True)
class Constant(Schedule):
    """A factor of 1 at every step.

    >>> Constant().factors(3)
    array([1., 1., 1.])
    """

    def factors(self, total: int) -> Factors:
        """Return ones."""
        return np.ones(total)


@register
@dataclass(frozen=True)
class Linear(Schedule):
    """Decrease as 1/(1 + t/T) at step t = 0, 1, …, so that the inverse grows linearly, until `final` is reached.

    Args:
        final: smallest factor, in (0, 1); ½ in the paper, the value at step T.
        over: number of steps T after which 1/(1 + t/T) is ½; None means the length of the training.

    Source:
        "Differentially Private SGD with Momentum and Varying Clipping Bound": C_t = C/min(2, 1 + t/T).

    >>> Linear(over=2).factors(4)
    array([1.        , 0.66666667, 0.5       , 0.5       ])
    """

    final: float = 0.5
    over: int | None = None

    def __post_init__(self) -> None:
        _check_final(self.final)
        if self.over is not None:
            count("schedule.over", self.over)

    def factors(self, total: int) -> Factors:
        """Return max(final, 1/(1 + t/T))."""
        found: Factors = np.maximum(self.final, 1 / (1 + np.arange(total) / (self.over or total)))
        return found


@register
@dataclass(frozen=True)
class ToZero(Schedule):
    """Decrease linearly as 1 − t/T at step t = 0, …, T − 1, to 1/T at the last step.

    For learning rates: it reduces the noise of late steps, which no later steps average out.

    >>> ToZero().factors(4)
    array([1.  , 0.75, 0.5 , 0.25])
    """

    def factors(self, total: int) -> Factors:
        """Return 1 − t/T."""
        return 1 - np.arange(total) / total


@register
@dataclass(frozen=True)
class Geometric(Schedule):
    """Decrease by the same fraction at every step until `final` is reached.

    Args:
        rate: fraction subtracted at each step, in (0, 1); 1/1000 in the paper.
        final: smallest factor, in (0, 1).

    Source:
        "Differentially Private SGD with Momentum and Varying Clipping Bound", experiments.

    >>> Geometric(rate=0.25).factors(4)
    array([1.    , 0.75  , 0.5625, 0.5   ])
    """

    rate: float = 1e-3
    final: float = 0.5

    def __post_init__(self) -> None:
        between("schedule.rate", self.rate, 0.0, 1.0, "0.001 per step is usual.")
        _check_final(self.final)

    def factors(self, total: int) -> Factors:
        """Return max(final, (1 − rate)^t)."""
        found: Factors = np.maximum(self.final, (1 - self.rate) ** np.arange(total))
        return found


@register
@dataclass(frozen=True)
class Piecewise(Schedule):
    """Piecewise constant factors, as in the combination of a small bound early with a large bound late.

    Args:
        values: the factor of each piece, > 0.
        until: the end of each piece but the last, as a fraction of all steps, increasing in (0, 1).

    Source:
        Bu et al. 2023, "On the Convergence and Calibration of Deep Learning with Differential Privacy": a small bound for the
        first 95 % of the steps, a large one after.

    >>> Piecewise(values=(1.0, 200.0), until=(0.75,)).factors(4)
    array([  1.,   1.,   1., 200.])
    """

    values: tuple[float, ...]
    until: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        object.__setattr__(self, "until", tuple(self.until))
        if len(self.values) != len(self.until) + 1:
            fix = "The last piece ends with the training."
            raise InvalidArgumentError("schedule.until", self.until, f"one fewer than the {len(self.values)} values", fix)
        for value in self.values:
            positive("schedule.values", value)
        for share in self.until:
            between("schedule.until", share, 0.0, 1.0, "It is a fraction of all steps.")
        if list(self.until) != sorted(set(self.until)):
            raise InvalidArgumentError("schedule.until", self.until, "increasing")

    def factors(self, total: int) -> Factors:
        """Return the value of each step's piece."""
        piece = np.searchsorted(np.asarray(self.until), np.arange(total) / total, side="right")
        return np.asarray(self.values, dtype=np.float64)[piece]


@register
@dataclass(frozen=True)
class Table(Schedule):
    """An explicit factor for every step; the last one holds for all later steps.

    Args:
        values: factors > 0, at least one.

    >>> Table((1.0, 0.8)).factors(3)
    array([1. , 0.8, 0.8])
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "values", tuple(float(value) for value in self.values))
        except (TypeError, ValueError, OverflowError):
            raise InvalidArgumentError("schedule.values", self.values, "a list of numbers greater than 0") from None
        if not self.values:
            raise InvalidArgumentError("schedule.values", (), "at least one factor")
        for value in self.values:
            positive("schedule.values", value)

    def factors(self, total: int) -> Factors:
        """Return the values, the last one repeated as often as needed."""
        found = np.full(total, self.values[-1])
        found[: len(self.values)] = self.values[:total]
        return found


def is_constant(schedule: Schedule) -> bool:
    """Return whether a schedule's kind says that every factor is 1; a kind that extends `Constant` says nothing of the sort."""
    return type(schedule) is Constant


def factors_of(name: str, schedule: Schedule, total: int) -> Factors:
    """Return a copy of a schedule's factors for `total` steps, (total,), read-only.

    Args:
        name: name of the schedule, for errors.

    Raises:
        InvalidArgumentError: they are not one finite number > 0 for every step.
    """
    given = schedule.factors(total)
    try:
        found = np.asarray(given)
    except (TypeError, ValueError, RuntimeError):  # ragged lists, and tensors on a GPU or with a graph
        found = np.array(None)
    kind, fix = type(schedule).__name__, "It needs one finite number > 0 for every step, an array of shape (steps,)."
    if found.dtype.kind not in "iuf":
        raise InvalidArgumentError(name, type(given).__name__, f"a schedule whose factors are numbers ({kind})", fix)
    if found.shape != (total,):
        raise InvalidArgumentError(name, found.shape, f"a schedule whose factors have the shape ({total},) ({kind})", fix)
    found = found.astype(np.float64)  # a copy for any type
    if len(wrong := np.flatnonzero(~((found > 0) & (found < np.inf)))):
        step = int(wrong[0])
        raise InvalidArgumentError(
            name, float(found[step]), f"finite and greater than 0 at every step, also at step {step + 1} ({kind})", fix
        )
    found.flags.writeable = False
    return found


def _check_final(final: float) -> None:
    between("schedule.final", final, 0.0, 1.0, "It is the smallest factor; ½ is usual.")
