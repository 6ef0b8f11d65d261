"""The data set that all loaders return."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import TensorDataset

from privet.data.preprocessing import Preprocessing
from privet.errors import InvalidArgumentError
from privet.tables import Schema


@dataclass(frozen=True, repr=False)
class DataSet:
    """Labelled examples for training and testing, with their provenance.

    Args:
        name: name in reports.
        train: inputs (N, *input_shape) float32, or UTF-8 bytes (N, length) uint8 of texts, and labels (N,) int64 in [0, classes),
            or targets (N,) float32, which a schema scales to [-1, 1]. In a user's file, a label outside the declared classes is
            `privet.data.UNDECLARED`, which torch's losses ignore, and a missing target of a regression is NaN.
        test: the same for test examples, which are public and have declared targets only; or None.
        classes: public number of classes, ≥ 2; None for regression.
        provenance: one sentence on the source of the data and the checks that it passed.
        users: (N,) user of each training example, as integers or strings; None if no users are known. Private.
        pixel_range: values of a black and a white pixel, for images of a known scale; public.
        preprocessing: the function that scaled raw arrays to these inputs; None if the inputs have no raw arrays.
        schema: the public schema of a table; None for other data.
        class_names: names of the classes in order; empty for the numbers from 0.
        test_origin: origin of the test data, as a noun phrase; empty for the test split of a public data set.
        notes: sentences about the data for the privacy statement, without a full stop.
        public: facts about the data that the guarantee takes as public.
        target_bounds: public bounds of a regression target in its unit, for data without a schema; None for others.
    """

    name: str
    train: TensorDataset
    test: TensorDataset | None
    classes: int | None
    provenance: str
    users: NDArray[np.generic] | None = None
    pixel_range: tuple[float, float] | None = None
    preprocessing: Preprocessing | None = None
    schema: Schema | None = None
    class_names: tuple[str, ...] = ()
    test_origin: str = ""
    notes: tuple[str, ...] = ()
    public: tuple[str, ...] = ()
    target_bounds: tuple[float, float] | None = None

    def __repr__(self) -> str:
        """Return the public facts of the data set in one line."""
        target = f"a target of {self.classes} classes" if self.classes else "a number as target"
        test = "no test data" if self.test is None else f"{len(self.test):,} test examples"
        return f"<DataSet {self.name!r}: {len(self.train):,} training examples of shape {self.input_shape}, {target}, {test}>"

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input, without the batch dimension."""
        return tuple(self.train.tensors[0].shape[1:])

    @property
    def test_data(self) -> str | None:
        """Description of the test data, for reports; None without test data."""
        return None if self.test is None else self.test_origin or f"the test split of the public data set {self.name}"

    @property
    def examples(self) -> int:
        """Number of training and test examples."""
        return len(self.train) + (0 if self.test is None else len(self.test))


def to_tensors(inputs: NDArray[np.generic], labels: NDArray[np.generic]) -> TensorDataset:
    """Return inputs (N, …) as float32, and labels (N,) as int64 if they are integers, else as float32."""
    kind = np.float32 if labels.dtype.kind == "f" else np.int64
    return TensorDataset(
        torch.from_numpy(np.ascontiguousarray(inputs, dtype=np.float32)),
        torch.from_numpy(np.ascontiguousarray(labels, dtype=kind)),
    )


def refuse_copy(train: TensorDataset, test: TensorDataset, source: str) -> None:
    """Refuse test data with the same rows as the training data, in any order; `source` names them in the error.

    This is the one refusal that depends on private values. It comes before any spending, and only the owner, who has both files,
    sees it. The owner calls the test rows public, so it tells whoever may read them nothing, unless they are the private ones.
    Without it, a copy would be scored as unseen data, and figures of a private table would be called public.
    """
    if len(train) == len(test) and np.array_equal(_sort_rows(train), _sort_rows(test)):
        fix = "It holds the same rows. Test data is assumed to be public."
        raise InvalidArgumentError("test", source[:200], "other data than the private rows", fix)


def _sort_rows(rows: TensorDataset) -> NDArray[np.bytes_]:
    """Return the bytes of each row, inputs and target, in ascending order, (N,)."""
    parts = [part.numpy().reshape(len(rows), -1).view(np.uint8) for part in rows.tensors]
    whole = np.ascontiguousarray(np.concatenate(parts, axis=1))
    return np.sort(whole.view(f"S{whole.shape[1]}")[:, 0])


def public_split(examples: int, test_examples: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the row numbers of a training and a test split, which depend on the public numbers of rows only."""
    # The streams of RandomState are frozen; those of Generator may change between versions of NumPy.
    order = np.random.RandomState(0).permutation(examples)
    return order[test_examples:], order[:test_examples]
