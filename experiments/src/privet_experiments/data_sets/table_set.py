"""Published numeric tables with one target per row, verified by a checksum of the cells."""

from __future__ import annotations

__all__ = ["MOST_BYTES", "Cells", "Column", "TableSet", "identity"]

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privet.data.dataset import DataSet, public_split, to_tensors
from privet.data.download.packages import decompress, require_digest
from privet.data.download.published import Published
from privet.data.preprocessing import Standardised

Column = NDArray[np.float64]

# Above the size of the longest table as text (75 MB), and small enough that an archive cannot exhaust the memory.
MOST_BYTES = 2**27

# A letter that does not occur in numbers (e marks an exponent).
_NAMES = re.compile(rb"[A-DF-Za-df-z]")


class Cells(NamedTuple):
    """The cells of a table in published order, (rows, columns), with the target last."""

    cells: NDArray[np.generic]


@dataclass(frozen=True)
class TableSet(Published[Cells]):
    """A table whose last column is the target; inputs are scaled to (feature − centre) / spread.

    Args:
        columns: number of columns besides the target.
        delimiter: delimiter of the published file.
        dtype: type of the cells in the cache and for the checksum, such as "<f8".
        sha256: SHA-256 of the cells in this type, row by row.
        names: possible names of the published file in a folder, with or without .gz.
        features: function from the cells (rows, columns) to unscaled inputs.
        target: function from the last column (rows,) to integer labels from 0, or to targets.
        centre: published constant per input.
        spread: published constant per input.
        bounds: published lowest and highest target, for regression; None for classes.
    """

    columns: int
    delimiter: str
    dtype: str
    sha256: str
    names: tuple[str, ...]
    features: Callable[[Column], Column]
    target: Callable[[Column], NDArray[np.generic]]
    centre: tuple[float, ...]
    spread: tuple[float, ...]
    bounds: tuple[float, float] | None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(number of inputs,)."""
        return (len(self.centre),)

    @property
    def files(self) -> str:
        """The names of the published file."""
        return f"{' or '.join(self.names)} (.gz or plain)"

    def parse(self, content: bytes) -> Cells:
        """Return the cells of a published file, compressed or not, with or without a header; unverified."""
        text = decompress(content, MOST_BYTES)
        headed = _NAMES.search(text[: text.find(b"\n")]) is not None
        read = partial(np.loadtxt, delimiter=self.delimiter, skiprows=int(headed), usecols=range(self.columns + 1))
        return Cells(read(io.BytesIO(text)).astype(self.dtype))

    def verify(self, arrays: Cells) -> Cells:
        """Return the cells if they have the pinned SHA-256."""
        require_digest(f"the table {self.name}", np.ascontiguousarray(arrays.cells, self.dtype).tobytes(), self.sha256)
        return arrays

    @property
    def arrays(self) -> type[Cells]:
        """The cells."""
        return Cells

    @property
    def array_type(self) -> str:
        """Type of the cells."""
        return self.dtype

    def from_files(self, folder: Path) -> Cells:
        """Return the cells of the published file."""
        for file in (folder / f"{name}{ending}" for name in self.names for ending in ("", ".gz")):
            if file.is_file():
                return self.parse(file.read_bytes())
        raise FileNotFoundError(f"it holds neither {self.name}.npz nor {self.files}")

    def dataset(self, arrays: Cells, provenance: str) -> DataSet:
        """Return scaled inputs with labels or targets, split by position."""
        cells = arrays.cells.astype(np.float64)
        scale = Standardised(self.centre, self.spread)
        inputs = scale(self.features(cells[:, :-1]))
        targets = self.target(cells[:, -1])
        train, test = public_split(sum(self.examples), self.examples[1])
        return DataSet(
            name=self.name,
            train=to_tensors(inputs[train], targets[train]),
            test=to_tensors(inputs[test], targets[test]),
            classes=self.classes,
            provenance=provenance,
            target_bounds=self.bounds,
            preprocessing=scale,
        )


def identity(values: Column) -> Column:
    """Return the values unchanged."""
    return values
