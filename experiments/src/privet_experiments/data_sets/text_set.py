"""Published sets of labelled sentences."""

from __future__ import annotations

__all__ = ["MOST_BYTES", "TextSet", "Texts", "decode", "encode"]

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import TensorDataset

from privet.data.dataset import DataSet
from privet.data.download.packages import decompress, require_digest
from privet.data.download.published import Published

# Above the size of the largest file (4 MB), and small enough that a malicious archive cannot exhaust the memory.
MOST_BYTES = 2**26


class Texts(NamedTuple):
    """Sentences (N, length) in UTF-8, padded with zeros, and labels (N,) of both splits, all as unsigned bytes."""

    x_train: NDArray[np.uint8]
    y_train: NDArray[np.uint8]
    x_test: NDArray[np.uint8]
    y_test: NDArray[np.uint8]


@dataclass(frozen=True)
class TextSet(Published[Texts]):
    """A set of sentences in two files with tab-separated columns "sentence" and "label", in any order.

    Args:
        length: length in bytes of the longest sentence, without surrounding white space.
        names: names of the training and the test file, each with or without .gz.
        sha256: SHA-256 of the arrays of `Texts`, one after the other.
    """

    length: int
    names: tuple[str, str]
    sha256: str

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(length,)."""
        return (self.length,)

    @property
    def files(self) -> str:
        """The two files."""
        return f"{' and '.join(self.names)} (.gz or plain)"

    def parse(self, read: Callable[[str], bytes]) -> Texts:
        """Return the texts of the two files, unverified; `read` maps a file name to its bytes, compressed or not."""
        (x_train, y_train), (x_test, y_test) = (self._columns(decompress(read(name), MOST_BYTES)) for name in self.names)
        return Texts(x_train, y_train, x_test, y_test)

    def verify(self, arrays: Texts) -> Texts:
        """Return the texts if they have the pinned SHA-256."""
        require_digest(f"the texts of {self.name}", b"".join(np.ascontiguousarray(one).tobytes() for one in arrays), self.sha256)
        return arrays

    @property
    def arrays(self) -> type[Texts]:
        """Sentences and labels of both splits."""
        return Texts

    def from_files(self, folder: Path) -> Texts:
        """Return the texts of the two files."""
        return self.parse(lambda name: next(file for file in _either(folder, name)).read_bytes())

    def dataset(self, arrays: Texts, provenance: str) -> DataSet:
        """Return the sentences' bytes, (N, length) uint8, and their labels."""
        return DataSet(
            name=self.name,
            train=_tensors(arrays.x_train, arrays.y_train),
            test=_tensors(arrays.x_test, arrays.y_test),
            classes=self.classes,
            provenance=provenance,
        )

    def _columns(self, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        head, *lines = content.decode("utf-8").rstrip("\n").split("\n")
        rows = [line.split("\t") for line in lines]
        sentence, label = (head.split("\t").index(name) for name in ("sentence", "label"))
        return encode([row[sentence] for row in rows], self.length), np.array([int(row[label]) for row in rows], dtype=np.uint8)


def encode(sentences: Sequence[str], length: int) -> NDArray[np.uint8]:
    """Encode sentences in UTF-8 without surrounding white space, padded with zeros to (N, length)."""
    rows = b"".join(sentence.strip().encode("utf-8").ljust(length, b"\0") for sentence in sentences)
    return np.frombuffer(rows, dtype=np.uint8).reshape(len(sentences), length)


def decode(rows: Tensor) -> list[str]:
    """Return the sentences that `encode` encoded as (N, length)."""
    return [bytes(row).rstrip(b"\0").decode("utf-8") for row in rows.numpy()]


def _tensors(sentences: NDArray[np.uint8], labels: NDArray[np.uint8]) -> TensorDataset:
    return TensorDataset(torch.from_numpy(sentences.copy()), torch.from_numpy(labels.astype(np.int64)))


def _either(folder: Path, name: str) -> Iterable[Path]:
    found = [file for file in (folder / f"{name}.gz", folder / name) if file.is_file()]
    if not found:
        raise FileNotFoundError(f"the folder has no {name}")
    return found
