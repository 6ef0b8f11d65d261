"""Rows that do not fit the inputs of a model, each with the reason.

The rows belong to the user of the model, so messages may name their values, unlike messages about training data.
"""

from __future__ import annotations

__all__ = ["SHOWN", "FoundMisfits", "Misfit", "MisfitError", "find_array_misfits", "find_table_misfits"]

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privet.data.preprocessing import Preprocessing
from privet.errors import PrivetError
from privet.tables import MISSING, UNFIT, Frame, Schema
from privet.tables.cells import Words

# Number of places that a message names.
SHOWN = 20
_LONGEST_VALUE = 40


@dataclass(frozen=True)
class Misfit:
    """A place where a row does not fit.

    Args:
        row: number of the row, from 1; the header of a file does not count.
        column: name of the column, or position in the array; empty for the whole row.
        reason: what is there, and what is allowed.
    """

    row: int
    column: str
    reason: str

    def __str__(self) -> str:
        """Return row, column and reason in one line."""
        return f"row {self.row}, {self.column}: {self.reason}" if self.column else f"row {self.row}: {self.reason}"


@dataclass(frozen=True)
class FoundMisfits:
    """The places of some rows that do not fit.

    Args:
        first: the first places, in the order of the rows.
        places: number of places.
        rows: number of rows with such a place.
    """

    first: tuple[Misfit, ...]
    places: int
    rows: int


class MisfitError(PrivetError, ValueError):
    """Some rows do not fit; the message names the first twenty places and their number.

    Args:
        found: the places.
        fix: advice for the user.
    """

    def __init__(self, found: FoundMisfits, fix: str) -> None:
        self.found, self.fix = found, fix
        shown = "; ".join(map(str, found.first))
        more = f"; and {found.places - len(found.first):,} more" if found.places > len(found.first) else ""
        rows = "1 row does not fit" if found.rows == 1 else f"{found.rows:,} rows do not fit"
        super().__init__(f"{rows} the model: {shown}{more}. {fix}".strip())

    def __reduce__(self) -> tuple[type[MisfitError], tuple[FoundMisfits, str]]:
        return (type(self), (self.found, self.fix))


def find_table_misfits(frame: Frame, schema: Schema) -> FoundMisfits:
    """Return the cells of features that do not fit, and the rows without any cell.

    A missing cell fits, because the schema defines its encoding. A row with too few or too many cells counts as empty.

    Args:
        frame: the table. Columns without features, and the target, are not needed.
        schema: the columns.

    Raises:
        InvalidArgumentError: the table lacks a column of a feature.
    """
    features = [(name, column) for name, column in schema.columns if column.labels()]
    cells = {name: schema.cells(frame, name) for name, _ in features}
    status = {name: column.status(cells[name]) for name, column in features}
    empty = np.all([found == MISSING for found in status.values()], axis=0)
    unfit = {name: found == UNFIT for name, found in status.items()}
    rows = np.flatnonzero(np.any([*unfit.values(), empty], axis=0))
    first: list[Misfit] = []
    for row in map(int, rows[:SHOWN]):
        if empty[row]:
            first.append(Misfit(row + 1, "", "it has no values, or another number of cells than the table has columns"))
        for name, column in features:
            if unfit[name][row]:
                first.append(Misfit(row + 1, f"column {name!r}", f"{_quote(cells[name], row)} is not {column.requirement}"))
    places = int(empty.sum()) + sum(int(found.sum()) for found in unfit.values())
    return FoundMisfits(tuple(first[:SHOWN]), places, len(rows))


def find_array_misfits(array: NDArray[np.generic], preprocessing: Preprocessing) -> FoundMisfits:
    """Return the entries of an array (N, …) that are not allowed; for each row, only the first is named."""
    unfit = preprocessing.unfit(array).reshape(len(array), -1)
    rows = np.flatnonzero(unfit.any(axis=1))
    first: list[Misfit] = []
    for row in map(int, rows[:SHOWN]):
        place = tuple(map(int, np.unravel_index(int(unfit[row].argmax()), array.shape[1:])))
        entry = f"entry {place[0] if len(place) == 1 else place}"
        first.append(Misfit(row + 1, entry, f"{array[(row, *place)]} is not {preprocessing.allowed}"))
    return FoundMisfits(tuple(first), int(unfit.sum()), len(rows))


def _quote(cells: Words | NDArray[np.generic], row: int) -> str:
    value = cells.distinct[cells.places[row]] if isinstance(cells, Words) else cells[row].item()
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
