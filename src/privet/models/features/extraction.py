"""Computing features once: in parts, each of which is kept on the disk under the digest of what it was computed from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from privet._utils.files import cache_directory, write_atomically
from privet.data import DataSet

Advance = Callable[[int], object]
Compute = Callable[[Tensor], Tensor]

# Examples whose features are one file. Parts of a set share files with the whole of it, and whoever is stopped goes on.
_PART = 1000


@dataclass(frozen=True)
class Extractor:
    """A fixed function of one example.

    Args:
        name: of its folder in the cache, a word.
        version: whatever decides its results beside the inputs: weights, sizes, and a number that grows with the code.
        prepared: for a data set, returns inputs (N, *input_shape) → features (N, ...); refuses sets that it is not made for. It
            loads what it needs when it is called, not before.
        scaled: whether the scale of pixels decides its results.
        lengths: for features that are sequences filled up with zeros, returns how long they are, (N, ...) → (N,). Examples are
            then put in order, the shortest first: samples are drawn in the order of the set, so small physical batches are of
            about one length, and a network can leave out what is zero in all of one.
    """

    name: str
    version: str
    prepared: Callable[[DataSet], Compute]
    scaled: bool = False
    lengths: Callable[[Tensor], Tensor] | None = None

    def folder(self) -> Path:
        """Return where its results are kept."""
        return cache_directory() / "features" / self.name

    def key(self, data: DataSet) -> str:
        """Return what decides the features of an example of this set, apart from its input."""
        return f"{self.version} {data.pixel_range if self.scaled else ''}"


def unheard(examples: int) -> None:
    """Take no notice of progress."""


def extracted(data: DataSet, extractor: Extractor, advance: Advance = unheard) -> DataSet:
    """Return the data set with features in the place of its inputs; `privet.models.features.extracted` by extractor."""
    prepared: list[Compute] = []

    def compute(inputs: Tensor) -> Tensor:
        if not prepared:  # weights are not loaded where all results are there
            prepared.append(extractor.prepared(data))
        with torch.no_grad():
            return prepared[0](inputs)

    def of(examples: TensorDataset) -> TensorDataset:
        inputs, *others = examples.tensors
        found = _features(inputs, extractor, extractor.key(data), compute, advance)
        if extractor.lengths is None:
            return TensorDataset(found, *others)
        order = extractor.lengths(found).argsort(stable=True)
        return TensorDataset(*(tensor[order] for tensor in (found, *others)))

    return replace(data, train=of(data.train), test=None if data.test is None else of(data.test), pixel_range=None)


def _features(inputs: Tensor, extractor: Extractor, key: str, compute: Compute, advance: Advance) -> Tensor:
    whole: Tensor | None = None
    for start in range(0, len(inputs), _PART):
        part = inputs[start : start + _PART]
        found = _kept(part, extractor.folder() / f"{_digest(key, part)}.npy", compute)
        if whole is None:
            whole = torch.empty(len(inputs), *found.shape[1:], dtype=found.dtype)
        whole[start : start + len(part)] = found
        advance(len(part))
    return compute(inputs) if whole is None else whole


def _kept(part: Tensor, file: Path, compute: Compute) -> Tensor:
    if file.is_file():
        try:
            return torch.from_numpy(np.load(file, allow_pickle=False))
        except (OSError, ValueError):
            file.unlink(missing_ok=True)  # damaged: computed anew
    found = compute(part)
    write_atomically(file, partial(_save, found))
    return found


def _save(found: Tensor, temporary: Path) -> None:
    with temporary.open("xb") as opened:  # a path without its suffix would be given one
        np.save(opened, found.numpy())


def _digest(key: str, part: Tensor) -> str:
    described = f"{key} {part.dtype} {tuple(part.shape)}".encode()
    return hashlib.sha256(described + part.contiguous().numpy().tobytes()).hexdigest()[:40]
