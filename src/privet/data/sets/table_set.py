"""Published tables of numbers: rows with one target, checked by the digest of the cells."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privet.data.dataset import DataSet, tensors
from privet.data.download.checksums import require_sha256
from privet.data.download.packages import unpacked
from privet.data.download.published import Published
from privet.data.sets.split import public_split

Column = NDArray[np.float64]

# More than the longest of the tables holds as text (75 MB), and little enough that an archive cannot fill the memory.
MOST_BYTES = 2**27

# A letter that no number has; an exponent is written with an e.
_NAMES = re.compile(rb"[A-DF-Za-df-z]")


class Cells(NamedTuple):
    """The cells of a table in the order of publication, (rows, columns), with the target last."""

    cells: NDArray[np.generic]


@dataclass(frozen=True)
class TableSet(Published[Cells]):
    """A table whose last column is the target.

    Args:
        columns: how many there are beside the target.
        delimiter: between cells of the published file.
        dtype: of the cells, such as "<f8": what the digest is over, and how they are kept.
        sha256: of the cells in this type, row by row.
        names: of the published file, as folders hold it; each with or without .gz.
        features: (rows, columns) → the inputs, before they are scaled.
        target: (rows,) → labels from 0, as whole numbers, or targets.
        centre: what is subtracted from each input; published constants.
        spread: what it is divided by after that; published constants.
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

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(number of inputs,)."""
        return (len(self.centre),)

    @property
    def files(self) -> str:
        """The names of the published file."""
        return f"{' or '.join(self.names)} (.gz or plain)"

    def parsed(self, content: bytes) -> Cells:
        """Return the cells of a published file, packed or not, with or without a line of names; unchecked."""
        text = unpacked(content, MOST_BYTES)
        headed = _NAMES.search(text[: text.find(b"\n")]) is not None
        read = partial(np.loadtxt, delimiter=self.delimiter, skiprows=int(headed), usecols=range(self.columns + 1))
        return Cells(read(io.BytesIO(text)).astype(self.dtype))

    def verified(self, arrays: Cells) -> Cells:
        """Return the cells if they have their SHA-256."""
        require_sha256(f"the table {self.name}", np.ascontiguousarray(arrays.cells, self.dtype).tobytes(), self.sha256)
        return arrays

    def from_folder(self, folder: Path) -> Cells:
        """Return the cells of `name`.npz, else of the published file."""
        if not folder.is_dir():
            raise FileNotFoundError("there is no such folder")
        if (archive := folder / f"{self.name}.npz").is_file():
            return self.from_npz(archive)
        for file in (folder / f"{name}{ending}" for name in self.names for ending in ("", ".gz")):
            if file.is_file():
                return self.parsed(file.read_bytes())
        raise FileNotFoundError(f"it holds neither {self.name}.npz nor {self.files}")

    def from_npz(self, archive: Path) -> Cells:
        """Return the array `cells` of the archive."""
        if not archive.is_file():
            raise FileNotFoundError("it is not there")
        with open(archive, "rb") as file, np.load(file, allow_pickle=False) as stored:
            return Cells(stored["cells"])

    def dataset(self, arrays: Cells, provenance: str) -> DataSet:
        """Return scaled inputs and their labels or targets, divided by position."""
        cells = arrays.cells.astype(np.float64)
        inputs = (self.features(cells[:, :-1]) - self.centre) / self.spread
        targets = self.target(cells[:, -1])
        train, test = public_split(sum(self.examples), self.examples[1])
        return DataSet(
            name=self.name,
            train=tensors(inputs[train], targets[train]),
            test=tensors(inputs[test], targets[test]),
            classes=self.classes,
            provenance=provenance,
        )


def unchanged(values: Column) -> Column:
    """Return what it is given: features and targets that are inputs as they stand."""
    return values
