"""Cells that do not fit a schema: counts for the owner of a table to train on, places and reasons for rows to predict."""

from __future__ import annotations

__all__ = ["SHOWN", "MisfitError", "Misfits", "Places", "count_misfits", "list_misfits"]

from dataclasses import dataclass

import numpy as np

from privet.errors import PrivetError
from privet.tables.cells import UNDECLARED, Words
from privet.tables.columns import MISSING, UNFIT
from privet.tables.frames import Frame
from privet.tables.schema import Schema

# Number of places that a message names.
SHOWN = 20
_LONGEST_VALUE = 40
_EMPTY = "it has no values, or another number of cells than the table has columns"


@dataclass(frozen=True)
class Misfits:
    """Counts of private cells; private themselves.

    Args:
        rows: number of rows.
        columns: column → number of cells that are missing, and of cells that do not fit; the target last.
        rows_without_target: number of rows without influence on training, because their target does not fit.
        broken: number of rows with too few or too many cells, all of which count as missing.
        unused: columns of the table that the schema does not name.
    """

    rows: int
    columns: dict[str, tuple[int, int]]
    rows_without_target: int
    broken: int
    unused: tuple[str, ...]


@dataclass(frozen=True)
class Places:
    """The places of rows to predict that do not fit.

    Args:
        first: the first places, in the order of the rows: row from 1, column, and reason.
        number: number of places.
        rows: number of rows with such a place.
    """

    first: tuple[str, ...]
    number: int
    rows: int


class MisfitError(PrivetError, ValueError):
    """Some rows to predict do not fit; the message names the first twenty places and their number.

    Args:
        found: the places.
        fix: advice for the user.
    """

    def __init__(self, found: Places, fix: str) -> None:
        self.found, self.fix = found, fix
        more = f"; and {found.number - len(found.first):,} more" if found.number > len(found.first) else ""
        rows = "1 row does not fit" if found.rows == 1 else f"{found.rows:,} rows do not fit"
        super().__init__(f"{rows} the model: {'; '.join(found.first)}{more}. {fix}".strip())

    def __reduce__(self) -> tuple[type[MisfitError], tuple[Places, str]]:
        return (type(self), (self.found, self.fix))


def count_misfits(frame: Frame, schema: Schema) -> Misfits:
    """Return the numbers of cells of a table that do not fit its schema.

    Guarantee:
        None: the counts depend on private rows. They are for the owner of the table; a schema that is changed after looking at
        them is no longer public.

    Raises:
        InvalidArgumentError: the table lacks a column of the schema.
    """
    status = schema.status(frame, schema.kinds)
    counts = {name: (int((found == MISSING).sum()), int((found == UNFIT).sum())) for name, found in status.items()}
    targets = schema.encode_target(frame)
    lost = np.isnan(targets) if targets.dtype.kind == "f" else targets == UNDECLARED
    unused = tuple(name for name in frame.columns if name not in schema.kinds)
    return Misfits(frame.rows, counts, int(lost.sum()), frame.broken, unused)


def list_misfits(frame: Frame, schema: Schema) -> Places:
    """Return the cells of features that do not fit, and the rows without any cell, of rows to predict.

    The rows belong to the user of the model, so reasons may name their values. A missing cell fits, because the schema defines
    its encoding. A row with too few or too many cells counts as empty.

    Args:
        frame: the table. Columns without features, and the target, are not needed.
        schema: the columns.

    Raises:
        InvalidArgumentError: the table lacks a column of a feature.
    """
    names = [name for name, column in schema.columns if column.labels()]
    status = schema.status(frame, names)
    empty = np.all([found == MISSING for found in status.values()], axis=0)
    unfit = {name: found == UNFIT for name, found in status.items()}
    rows = np.flatnonzero(np.any([*unfit.values(), empty], axis=0))
    first: list[str] = []
    for row in map(int, rows[:SHOWN]):
        first += [f"row {row + 1}: {_EMPTY}"] if empty[row] else []
        for name in (name for name in names if unfit[name][row]):
            first.append(f"row {row + 1}, column {name!r}: {_quote(schema, frame, name, row)}")
    return Places(tuple(first[:SHOWN]), int(empty.sum()) + sum(int(found.sum()) for found in unfit.values()), len(rows))


def _quote(schema: Schema, frame: Frame, name: str, row: int) -> str:
    """Return what a cell is, and what is allowed."""
    cells = schema.cells(frame, name)
    text = repr(cells.distinct[cells.places[row]] if isinstance(cells, Words) else cells[row].item())
    shown = text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
    return f"{shown} is not {schema.kinds[name].requirement}"
