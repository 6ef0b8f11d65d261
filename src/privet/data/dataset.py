"""What every loader returns, and the one way in which it is built."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import TensorDataset


@dataclass(frozen=True)
class DataSet:
    """Labelled examples in two parts, with where they came from.

    Args:
        name: what to call it in reports.
        train: inputs (N, *input_shape) float32, or UTF-8 bytes (N, length) uint8 of texts, and labels (N,) int64 in [0, classes),
            or targets (N,) float32. In a user's own file a label outside the declared classes is `privet.data.UNDECLARED`, which
            torch's losses ignore.
        test: the same for examples that are never trained on, or None. Public, and with declared labels only.
        classes: how many labels there are, at least 2, public; None for a regression, which has targets.
        provenance: one sentence: the place that the data came from and the checks that it passed.
        users: whose each training example is, (N,) whole numbers or texts; None if each is somebody else's. Private.
        pixel_range: what a black and a white pixel are, if inputs are images of a known scale; public.
        test_origin: where the test part comes from, a noun phrase; empty for the part that a public data set has.
        notes: what a statement of the guarantee says of the data, in sentences without a full stop.
        assumptions: what has to be true of the data for it, and cannot be checked.
    """

    name: str
    train: TensorDataset
    test: TensorDataset | None
    classes: int | None
    provenance: str
    users: NDArray[np.generic] | None = None
    pixel_range: tuple[float, float] | None = None
    test_origin: str = ""
    notes: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input, without the batch dimension."""
        return tuple(self.train.tensors[0].shape[1:])

    @property
    def test_data(self) -> str | None:
        """What the test part is, for whoever reads the numbers that were measured on it; None without one."""
        return None if self.test is None else self.test_origin or f"the test part of the public data set {self.name}"

    @property
    def examples(self) -> int:
        """How many there are in both parts."""
        return len(self.train) + (0 if self.test is None else len(self.test))


def tensors(inputs: NDArray[np.generic], labels: NDArray[np.generic]) -> TensorDataset:
    """Return inputs (N, …) and labels (N,) as tensors side by side: float32, and int64 for whole numbers, else float32."""
    kind = np.float32 if labels.dtype.kind == "f" else np.int64
    return TensorDataset(
        torch.from_numpy(np.ascontiguousarray(inputs, dtype=np.float32)),
        torch.from_numpy(np.ascontiguousarray(labels, dtype=kind)),
    )
