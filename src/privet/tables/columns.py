"""Kinds of columns: the encoding of a cell, determined by the cell and the public constants of the schema.

Features are bounded whatever a cell holds: numbers lie in [-1, 1], categories and indicators are 0 or 1, and the features of a
text have a Euclidean norm of at most 1.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privet._utils.registry import add
from privet.errors import InvalidArgumentError, choice, count
from privet.tables.cells import Words, match, plain, to_words

# Whether a cell fits its column.
FITS = 0
MISSING = 1
UNFIT = 2

# Encodings of a missing cell: features of 0, or these and an additional indicator of 1.
NEUTRAL, INDICATOR = "neutral", "indicator"
_MOST_VALUES = 10_000
_SHOWN = 5  # values in a message
_MOST_TEXT_FEATURES = 2**20
_WORD = re.compile(r"\w+")
_TRUE = ("true", "t", "yes", "y", "1", "1.0")
_FALSE = ("false", "f", "no", "n", "0", "0.0")

Matrix = NDArray[np.float32]


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
    missing: str = NEUTRAL
    unknown: str = NEUTRAL

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", distinct_texts("values", self.values, 1, _MOST_VALUES))
        fix = "Or one of the values."
        if self.missing not in self.values:
            choice("missing", self.missing, (NEUTRAL, INDICATOR), fix)
        if self.unknown not in self.values:
            choice("unknown", self.unknown, (NEUTRAL, INDICATOR, "missing"), fix)

    def labels(self) -> tuple[str, ...]:
        """Return a label for each value, and those of the indicators."""
        asked = [("missing", self.missing), ("unknown", self.unknown)]
        return (*(f"={value}" for value in self.values), *(f" is {what}" for what, becomes in asked if becomes == INDICATOR))

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
            if becomes == INDICATOR:
                return labels.index(indicator)
            return neutral if becomes == NEUTRAL else self.values.index(becomes)

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
    missing: str = NEUTRAL

    def __post_init__(self) -> None:
        for name in ("true", "false"):
            given = getattr(self, name)
            cells = (given,) if isinstance(given, str | int | float) else given
            object.__setattr__(self, name, distinct_texts(name, cells, 1, 100))
        if both := {*map(_folded, self.true)} & {*map(_folded, self.false)}:
            raise InvalidArgumentError("false", sorted(both), "different from the cells that mean true")
        choice("missing", self.missing, (NEUTRAL, INDICATOR, "true", "false"))

    def labels(self) -> tuple[str, ...]:
        """Return the column itself, and the indicator of missing cells if there is one."""
        return ("", " is missing") if self.missing == INDICATOR else ("",)

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
        table = stack_features(values, lost) if self.missing == INDICATOR else stack_features(values)
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


def _folded(cell: str) -> str:
    return plain(cell).casefold()


def stack_features(*features: NDArray[np.generic]) -> Matrix:
    """Return features, each (N,), as the columns of a matrix."""
    return np.stack(features, axis=1).astype(np.float32)
