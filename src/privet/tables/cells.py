"""Cells of one column, each read on its own: as a number, or as one of a list of values.

A reading never raises and never looks at another cell, so that the encoding of a row depends on that row alone. Libraries of
tables do look at others: a single gap turns their integers into floats, a single text their numbers into text. So a number means
the same however it is stored and spelled.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Label of an example whose class is not declared. torch's losses ignore it by default: such an example has loss and gradient
# zero, so an undeclared label neither stops training nor affects the model.
UNDECLARED = -100

# Spellings of a missing value in common programs.
MISSING_CELLS = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")

# Numbers as programs write them: whole ones, and others. "1_0" and "1e5" are rather identifiers, though Python reads them.
_WHOLE = re.compile(r"([+-]?)(\d+)(?:\.0*)?", re.ASCII)
_FRACTION = re.compile(r"[+-]?\d*\.\d+|[+-]?\d+(?:\.\d*)?[eE][+-]\d+|[+-]?\d*\.\d+[eE][+-]?\d+", re.ASCII)


@dataclass(frozen=True, eq=False)
class Words:
    """Cells as text without surrounding spaces, each distinct one stored once, None if missing; `places` are theirs, (N,)."""

    distinct: tuple[str | None, ...]
    places: NDArray[np.int32]

    def __len__(self) -> int:
        """Return the number of cells."""
        return len(self.places)


def to_cells(values: Iterable[object]) -> Words:
    """Return any values as text, each on its own.

    None and NaN are missing, and so is a complex number that is not real; bytes are text in UTF-8; numbers and others are as
    Python writes them, whole numbers as integers.

    >>> to_cells([0.5, 0.5 + 0j, 1j, b"a", 2.0, 2]).distinct
    ('0.5', None, 'a', '2')
    """
    known: dict[str | None, int] = {}
    places = [known.setdefault(_text(value), len(known)) for value in values]
    return Words(tuple(known), np.array(places, dtype=np.int32))


def to_words(cells: Words | NDArray[np.generic]) -> Words:
    """Return cells as text; those of an array of numbers as `to_cells` writes them, and NaN as missing."""
    if isinstance(cells, Words):
        return cells
    numbers, places = np.unique(cells, return_inverse=True)
    words = to_cells(numbers.tolist())
    return Words(words.distinct, words.places[places])


def list_cells(cells: Words | NDArray[np.generic]) -> list[object]:
    """Return the text of each cell, "" for a missing one; those of an array of numbers as numbers."""
    return [cells.distinct[place] or "" for place in cells.places] if isinstance(cells, Words) else cells.tolist()


def plain(text: str) -> str:
    """Return a text, and a number in the one spelling that it has among `to_cells` of numbers.

    >>> [plain(text) for text in ("2.0", "007", "-0.0", "1.50", "1e+16", "1_0", "2 x")]
    ['2', '7', '0', '1.5', '10000000000000000', '1_0', '2 x']
    """
    if whole := _WHOLE.fullmatch(text):
        digits = whole[2].lstrip("0")
        return f"{'-' * (whole[1] == '-')}{digits}" if digits else "0"
    return (_text(float(text)) or text) if _FRACTION.fullmatch(text) else text


def spellings(texts: Iterable[str]) -> set[str]:
    """Return public texts as `plain` spells them, and numbers among them also if they are written unusually, such as 1e5."""
    known = [*texts]
    return {*map(plain, known)} | {cell for cell in map(_text, map(to_number, known)) if cell is not None}


def mark_missing(cells: Words | NDArray[np.generic], texts: Collection[str]) -> Words | NDArray[np.generic]:
    """Return cells in which those that are one of some texts, the result of `spellings`, are missing.

    >>> mark_missing(np.array([1.0, -9.0]), {"-9"}).tolist()
    [1.0, nan]
    """
    if not isinstance(cells, Words):
        # Of numbers that are no floats, such as 2⁵³ + 1, the nearest float has another text.
        pairs = zip(texts, parse_numbers([*texts]).tolist(), strict=True)
        numbers = [number for text, number in pairs if _text(number) == text]
        if cells.dtype.kind == "f":
            values = cells.astype(np.float64)
            return np.where(np.isin(values, numbers), np.nan, values) if numbers else cells
        if not any(isinstance(to_number(text), int) for text in texts):
            return cells
    words = to_words(cells)
    return Words(tuple(None if cell is not None and plain(cell) in texts else cell for cell in words.distinct), words.places)


def to_number(text: str) -> int | float | None:
    """Return the finite number that a string denotes, exact for integers, or None."""
    for parse in (int, float):
        try:
            value = parse(text)
        except ValueError:
            continue
        # An integer is finite, and may be too large for isfinite, which makes it a float.
        return value if isinstance(value, int) or math.isfinite(value) else None
    return None


def parse_numbers(cells: Sequence[str | None]) -> NDArray[np.float64]:
    """Return the number of each cell, (N,); NaN for a cell that is none. A cell may be infinite."""
    return np.array([_float(cell) for cell in cells], dtype=np.float64)


def match(cells: Iterable[object], values: Sequence[str]) -> NDArray[np.int64]:
    """Return the place of each cell among distinct values, (N,), and −1 for a cell that is none of them.

    A numeric value matches every spelling of its number, unless several values have that number.

    >>> match(["b", "1.0", "c", None], ["a", "b", "1"])
    array([ 1,  2, -1, -1])
    """
    known = {value: place for place, value in enumerate(values)}
    numbers: dict[int | float, int] = {}
    for place, value in enumerate(values):
        number = to_number(value)
        if number is not None:
            numbers[number] = -1 if number in numbers else place

    def find(cell: object) -> int:
        if cell is None:
            return -1
        found = known.get(cell) if isinstance(cell, str) else None
        if found is None:
            number = to_number(cell) if isinstance(cell, str) else cell
            found = None if number is None else numbers.get(number)  # type: ignore[call-overload]
        return -1 if found is None else found

    each = list(cells)
    table = {cell: find(cell) for cell in set(each)}
    return np.array([table[cell] for cell in each], dtype=np.int64)


def _text(value: object) -> str | None:
    if isinstance(value, complex | np.complexfloating):  # in a column with one such cell, frames make all others complex, too
        value = value.real if value.imag == 0 else None
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, np.floating):  # which NumPy writes with fewer digits than the same number in an array
        value = float(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, np.datetime64 | np.timedelta64) and np.isnat(value):
        return None
    if isinstance(value, str):
        return value.strip()
    if type(value).__name__ in ("NAType", "NaTType"):  # missing cells of pandas, which is not imported here
        return None
    try:
        return str(value)
    except Exception:  # such as an integer of more digits than Python writes: no cell raises
        return None


def _float(cell: str | None) -> float:
    try:
        return math.nan if cell is None else float(cell)
    except ValueError:
        return math.nan
