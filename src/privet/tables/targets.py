"""Targets: one of the declared classes, or a number within declared bounds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet._utils.registry import add
from privet.errors import InvalidArgumentError, positive
from privet.tables.bounded import Number
from privet.tables.cells import UNDECLARED, Words, match, to_number, to_words
from privet.tables.columns import Declared, distinct_texts, shorten

# The number of classes of the largest common benchmark; more of them indicate a regression target by mistake.
MOST_CLASSES = 1000


class Target(Declared, ABC):
    """The task: the encoding of the target's cells.

    Guarantee:
        The target of a row depends on its own cell and the declaration only. A row whose cell does not fit keeps its place and
        is marked, so that its loss and its gradient are zero; no cell raises an exception.
    """

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Number of outputs of a model."""

    @abstractmethod
    def encode(self, cells: Words | NDArray[np.generic]) -> NDArray[np.generic]:
        """Return the target of each row, (N,)."""

    @abstractmethod
    def decode(self, outputs: NDArray[np.floating[Any]]) -> NDArray[np.generic]:
        """Return predictions in the words or units of the target, (N,), from the outputs of a model."""


@add
@dataclass(frozen=True)
class Classification(Target):
    """One of K declared classes.

    Args:
        classes: 2 to 1000 distinct values of the target in order; public. A numeric one matches every spelling of its number.
        priors: frequencies of the classes in order, from public sources; the loss then gives every class the same weight. Empty
            for a loss that gives every example the same weight.

    >>> task = Classification(("no", "yes"))
    >>> task.encode(to_words(np.array(["yes", "no", "maybe"]))).tolist()
    [1, 0, -100]
    >>> task.decode(np.array([[0.2, 0.8]])).tolist()
    ['yes']
    """

    classes: tuple[str, ...]
    priors: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        classes = distinct_texts("classes", self.classes, 2, MOST_CLASSES)
        keys = [text if (number := to_number(text)) is None else number for text in classes]
        if len(set(keys)) < len(keys):
            raise InvalidArgumentError("classes", classes, "distinct as numbers, too", "Remove one of the spellings.")
        object.__setattr__(self, "classes", classes)
        given = tuple(self.priors) if isinstance(self.priors, list | tuple) else (self.priors,)
        priors = tuple(positive("priors", prior, "Such as priors = [0.76, 0.24].") for prior in given)
        if priors and len(priors) != len(classes):
            raise InvalidArgumentError("priors", priors, f"{len(classes)} numbers, one for each class in their order")
        object.__setattr__(self, "priors", priors)

    @property
    def values_with_meaning(self) -> tuple[str, ...]:
        """The classes."""
        return self.classes

    @property
    def outputs(self) -> int:
        """Number of classes K."""
        return len(self.classes)

    @property
    def requirement(self) -> str:
        """The number of classes, and a few of them."""
        return f"one of the {len(self.classes)} classes {shorten(self.classes)}"

    def encode(self, cells: Words | NDArray[np.generic]) -> NDArray[np.int64]:
        """Return the class of each row in [0, K), int64; `UNDECLARED` for a cell that is none."""
        words = to_words(cells)
        found = match(words.distinct, self.classes)
        return np.where(found < 0, UNDECLARED, found)[words.places]

    def fits(self, cells: Sequence[str | None]) -> NDArray[np.bool_]:
        """Return whether each cell is one of the classes."""
        return np.asarray(match(cells, self.classes) >= 0)

    def decode(self, outputs: NDArray[np.floating[Any]]) -> NDArray[np.str_]:
        """Return the class with the highest of K scores or probabilities, outputs (N, K)."""
        return np.asarray(np.array(self.classes, dtype=np.str_)[np.asarray(outputs).argmax(axis=1)])


@add
@dataclass(frozen=True)
class Regression(Target):
    """A number within public bounds, scaled to [-1, 1] for training and back for predictions.

    Args:
        lower: lowest value of a prediction; public, finite.
        upper: highest value, above `lower`.
        scale: "linear", or "log" for sign(x)·log(1 + |x|) before scaling.
        outside: encoding of a target out of the bounds: "clip" for the nearest bound, or "missing".

    >>> Regression(lower=0, upper=10).decode(np.array([-1.0, 0.0, 3.0])).tolist()
    [0.0, 5.0, 10.0]
    """

    lower: float
    upper: float
    scale: str = "linear"
    outside: str = "clip"

    def __post_init__(self) -> None:
        _ = self.number  # checks the arguments

    @property
    def number(self) -> Number:
        """The kind of column with these bounds."""
        return Number(self.lower, self.upper, self.scale, self.outside)

    @property
    def outputs(self) -> int:
        """One number."""
        return 1

    @property
    def requirement(self) -> str:
        """The bounds."""
        return self.number.requirement

    def encode(self, cells: Words | NDArray[np.generic]) -> NDArray[np.float32]:
        """Return the target of each row in [-1, 1], float32; NaN for a missing one."""
        marked = Number(self.lower, self.upper, self.scale, self.outside, missing="indicator").encode(cells)
        return np.where(marked[:, 1] > 0, np.float32(np.nan), marked[:, 0])

    def fits(self, cells: Sequence[str | None]) -> NDArray[np.bool_]:
        """Return whether each cell is a number within the bounds."""
        return self.number.fits(cells)

    def decode(self, outputs: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Return predictions in the target's units, within the bounds, from outputs (N,) or (N, 1)."""
        return self.number.restore(np.asarray(outputs).reshape(-1))
