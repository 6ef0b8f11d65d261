"""Counts of the cells that do not fit a schema: for the owner of the table, not for release."""

from __future__ import annotations

__all__ = ["Misfits", "count_misfits"]

from dataclasses import dataclass

import numpy as np

from privet.tables.cells import UNDECLARED
from privet.tables.columns import MISSING, UNFIT
from privet.tables.frames import Frame
from privet.tables.schema import Schema


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


def count_misfits(frame: Frame, schema: Schema) -> Misfits:
    """Return the numbers of cells of a table that do not fit its schema.

    Guarantee:
        None: the counts depend on private rows. They are for the owner of the table; a schema that is changed after looking at
        them is no longer public.

    Raises:
        InvalidArgumentError: the table lacks a column of the schema.
    """
    status = schema.status(frame)
    counts = {name: (int((found == MISSING).sum()), int((found == UNFIT).sum())) for name, found in status.items()}
    targets = schema.encode_target(frame)
    lost = np.isnan(targets) if targets.dtype.kind == "f" else targets == UNDECLARED
    unused = tuple(name for name in frame.columns if name not in schema.kinds)
    return Misfits(frame.rows, counts, int(lost.sum()), frame.broken, unused)
