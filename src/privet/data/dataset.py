"""What every loader returns, and the one way in which it is built."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import TensorDataset

from privet.errors import InvalidArgumentError

# The largest classification benchmark in wide use has this many classes; more of them means that the target of a
# regression was named by mistake.
MOST_CLASSES = 1000


@dataclass(frozen=True)
class DataSet:
    """Labelled examples in two parts, with where they came from.

    Args:
        name: what to call it in reports.
        train: inputs (N, *input_shape) float32, or UTF-8 bytes (N, length) uint8 of texts, and labels (N,) int64 in [0, classes),
            or targets (N,) float32.
        test: the same for examples that are never trained on, or None.
        classes: how many labels there are, at least 2, public; None for a regression, which has targets.
        provenance: one sentence: the place that the data came from and the checks that it passed.
        users: whose each training example is, (N,) whole numbers or texts; None if each is somebody else's. Private.
        pixel_range: what a black and a white pixel are, if inputs are images of a known scale; public.
    """

    name: str
    train: TensorDataset
    test: TensorDataset | None
    classes: int | None
    provenance: str
    users: NDArray[np.generic] | None = None
    pixel_range: tuple[float, float] | None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input, without the batch dimension."""
        return tuple(self.train.tensors[0].shape[1:])

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


def class_count(name: str, classes: int) -> int:
    """Return `classes` if a classifier can have that many, in [2, 1000]; `name` is the argument to blame."""
    if not 2 <= classes <= MOST_CLASSES:
        raise InvalidArgumentError(
            name,
            f"{classes} classes",
            f"a classification target with 2 to {MOST_CLASSES} classes",
            "Group the values of a continuous target into classes first.",
        )
    return classes
