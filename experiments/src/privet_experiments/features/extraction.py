"""Computation of features in parts, each cached on disk under a digest of its inputs."""

from __future__ import annotations

__all__ = ["Advance", "Compute", "Extractor", "extracted", "ignore_progress"]

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

# Examples per cache file. A subset of a data set shares its files, and an interrupted computation can continue.
_PART = 1000


@dataclass(frozen=True)
class Extractor:
    """A fixed function of one example.

    Args:
        name: one word, the name of its folder in the cache.
        version: everything but the inputs that determines its results: weights, sizes, and a version number of the code.
        prepared: function from a data set to the function inputs (N, *input_shape) → features (N, ...); it refuses unsupported
            data sets, and loads weights only when it is called.
        scaled: whether its results depend on the pixel range.
        lengths: for features that are sequences padded with zeros, function from features (N, ...) to lengths (N,). Examples are
            then sorted by length: samples are drawn in the order of the data set, so small physical batches have about equal
            lengths and a network can skip common padding.
    """

    name: str
    version: str
    prepared: Callable[[DataSet], Compute]
    scaled: bool = False
    lengths: Callable[[Tensor], Tensor] | None = None

    def folder(self) -> Path:
        """Return the folder of its results."""
        return cache_directory() / "features" / self.name

    def key(self, data: DataSet) -> str:
        """Return the key of everything but the input that determines the features of an example."""
        return f"{self.version} {data.pixel_range if self.scaled else ''}"


def ignore_progress(examples: int) -> None:
    """Do nothing."""


def extracted(data: DataSet, extractor: Extractor, advance: Advance = ignore_progress) -> DataSet:
    """Return the data set with its inputs replaced by features; see `privet_experiments.features.extracted`."""
    prepared: list[Compute] = []

    def compute(inputs: Tensor) -> Tensor:
        if not prepared:  # load weights only if some results are not cached
            prepared.append(extractor.prepared(data))
        with torch.no_grad():
            return prepared[0](inputs)

    def replace_inputs(examples: TensorDataset) -> TensorDataset:
        inputs, *others = examples.tensors
        found = _compute_in_parts(inputs, extractor, extractor.key(data), compute, advance)
        if extractor.lengths is None:
            return TensorDataset(found, *others)
        order = extractor.lengths(found).argsort(stable=True)
        return TensorDataset(*(tensor[order] for tensor in (found, *others)))

    train = replace_inputs(data.train)
    return replace(data, train=train, test=None if data.test is None else replace_inputs(data.test), pixel_range=None)


def _compute_in_parts(inputs: Tensor, extractor: Extractor, key: str, compute: Compute, advance: Advance) -> Tensor:
    whole: Tensor | None = None
    for start in range(0, len(inputs), _PART):
        part = inputs[start : start + _PART]
        found = _load_or_compute(part, extractor.folder() / f"{_digest(key, part)}.npy", compute)
        if whole is None:
            whole = torch.empty(len(inputs), *found.shape[1:], dtype=found.dtype)
        whole[start : start + len(part)] = found
        advance(len(part))
    return compute(inputs) if whole is None else whole


def _load_or_compute(part: Tensor, file: Path, compute: Compute) -> Tensor:
    if file.is_file():
        try:
            return torch.from_numpy(np.load(file, allow_pickle=False))
        except (OSError, ValueError):
            file.unlink(missing_ok=True)  # damaged: compute it again
    found = compute(part)
    write_atomically(file, partial(_save, found))
    return found


def _save(found: Tensor, temporary: Path) -> None:
    with temporary.open("xb") as opened:  # given a path without the suffix .npy, numpy would append it
        np.save(opened, found.numpy())


def _digest(key: str, part: Tensor) -> str:
    described = f"{key} {part.dtype} {tuple(part.shape)}".encode()
    return hashlib.sha256(described + part.contiguous().numpy().tobytes()).hexdigest()[:40]
