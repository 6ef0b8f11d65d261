"""Data sets read one physical batch at a time, every example by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset

from privet._utils.randomness import Seeds
from privet.collate import Collate, batch_of_one, own_batch
from privet.errors import InvalidArgumentError, UnsupportedModelError
from privet.gradients.core.examples import signature
from privet.reading.batches import UNREADABLE, Batched, Group, PhysicalBatch, group_examples, read_each
from privet.reading.tables import table_of
from privet.reading.transfer import Packed, pack
from privet.sampling import Indices

_SAME = Seeds(bytes(range(32)))  # public: what is compared has to be read with equal random numbers


class Rows(Dataset[tuple[PhysicalBatch, Any]]):
    """A data set read one physical batch at a time, of which user code is handed one example at a time.

    A `TensorDataset`, and torch's own `Subset` and `ConcatDataset` of them, are sliced as a whole: no user code runs. Of any
    other map-style data set `dataset[index]` and `collate([item])` are called for one index after another, never `__getitems__`.

    Args:
        dataset: map-style, with a length.
        collate: list of one item → batch of one; by default what `default_collate` makes of it.

    Guarantee:
        What the model is handed for an example depends on its index and on fresh random numbers, whoever else was drawn, if the
        data set's reads do not change what later reads return. That they do not is an assumption of the statement;
        `check_repeatable` tests it on indices that are public.
    """

    def __init__(self, dataset: Dataset[Any], collate: Collate | None = None) -> None:
        if isinstance(dataset, Batched) and collate is not None:
            raise InvalidArgumentError(
                "collate", collate, f"None for {type(dataset).__name__}", "Give it to the data set instead."
            )
        self.dataset, self.collate = dataset, collate
        self._table = table_of(dataset) if collate is None else None

    def __getitem__(self, batch: PhysicalBatch) -> tuple[PhysicalBatch, list[Group]]:
        return batch, self.read(batch.indices, batch.seeds)

    @property
    def runs_user_code(self) -> bool:
        """Whether reading calls the data set or collate, and so needs seeds."""
        return self.dataset.runs_user_code if isinstance(self.dataset, Batched) else self._table is None

    def read(self, indices: Indices, seeds: Seeds | None = None, *, strict: bool = False) -> list[Group]:
        """Return these examples, those that can be stacked in one group each; none for no indices.

        Args:
            indices: (B,) of the examples.
            seeds: of user code's random numbers, used once; fresh ones if None.
            strict: whether an exception of user code passes, and tensors that are not dense are refused. If not, an example that
                cannot be read is in no group, and so contributes zero; nothing tells that it was drawn. Only for public indices.
        """
        if len(indices) == 0:
            return []
        if isinstance(self.dataset, Batched):
            return self.dataset.groups(indices, seeds, strict=strict)
        if self._table is not None:
            return self._table.read(indices)
        return group_examples(read_each(self._one, indices.tolist(), seeds, strict=strict))

    def examples(self, indices: Indices, seeds: Seeds | None = None, *, strict: bool = False) -> list[Any]:
        """Return the batch of one of each of these examples, or `UNREADABLE`; the arguments are those of `read`."""
        return ungroup(self.read(indices, seeds, strict=strict), len(indices))

    def batch(self, indices: Indices) -> Any:
        """Return these examples as one plain batch, for what is not private or not trained on.

        Raises:
            InvalidArgumentError: they cannot stand in one batch. Whatever user code raises passes.
        """
        return join_rows(self.examples(indices, strict=True))

    def check_repeatable(self, indices: Sequence[int]) -> None:
        """Refuse a data set whose reads change what later reads return, as far as reading a few examples shows it.

        Each is read twice in this order and once in the opposite one, with equal random numbers for each index.

        Args:
            indices: a few that are public, or whose examples are: what is raised may tell what they hold.

        Raises:
            UnsupportedModelError: a read of the same index returned something else.
        """
        listed = [int(index) for index in indices]
        first, again, backwards = (self._read_alone(order) for order in (listed, listed, listed[::-1]))
        for index, *seen in zip(listed, first, again, backwards[::-1], strict=True):
            if not all(_equal(seen[0], other) for other in seen[1:]):
                raise UnsupportedModelError(
                    f"reading example {index} of the {type(self.dataset).__name__} again returns something else: its reads, or "
                    "collate, change what later reads return, so one example would change another. Write into copies, and draw "
                    "random numbers from the global generators of torch, NumPy or Python, which Privet seeds for every example."
                )

    def _read_alone(self, indices: list[int]) -> list[Any]:
        return [self.examples(np.array([index], dtype=np.int64), _SAME, strict=True)[0] for index in indices]

    def _one(self, index: int) -> Any:
        item = self.dataset[index]
        return batch_of_one(item) if self.collate is None else own_batch(self.collate([item]))


def ungroup(groups: Sequence[Group], size: int) -> list[Any]:
    """Return the batch of one of each position of a physical batch of that size; `UNREADABLE` where there is none."""
    found: list[Any] = [UNREADABLE] * size
    for group in groups:
        for number, position in enumerate(group.positions.tolist()):
            found[position] = group.examples.one(number)
    return found


def join_rows(rows: Sequence[Any]) -> Any:
    """Return batches of one as one batch.

    Tensors with a first dimension of 1 are joined along it. Others do not have the examples there, such as a table that collate
    adds: they must be equal, and there is one of them.

    Raises:
        InvalidArgumentError: structure, shapes, or what is shared differ.
    """
    if len({signature(row) for row in rows}) != 1:
        raise InvalidArgumentError(
            "dataset", "examples of several shapes", "examples of one shape where they are put together",
            "Pad them: collate=privet.collate.Padded(multiple=16).",
        )  # fmt: skip

    def joined(*leaves: Any) -> Any:
        if isinstance(leaves[0], Tensor) and leaves[0].shape[:1] == (1,):
            return torch.cat(leaves)
        if all(_equal(leaves[0], leaf) for leaf in leaves[1:]):
            return leaves[0]
        raise InvalidArgumentError(
            "collate",
            "a function that returns different tensors without the dimension of the batch",
            "one whose tensors start with it, or are the same for every example",
        )

    return pytree.tree_map(joined, *rows)


def _equal(one: Any, other: Any) -> bool:
    """Return whether two batches of one are the same, not-a-numbers included."""
    (leaves, tree), (others, other_tree) = pytree.tree_flatten(one), pytree.tree_flatten(other)
    return tree == other_tree and all(map(_equal_leaves, leaves, others))


def _equal_leaves(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if (one.shape, one.dtype, one.layout) != (other.shape, other.dtype, other.layout):
            return False
        return bool(((one == other) | ((one != one) & (other != other))).all())
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"))
    if one is other or type(one) is not type(other):
        return one is other
    try:
        return bool(one == other) or _compares_nothing(one)
    except Exception:
        return True  # an equality that fails, such as that of a dataclass with tensors, tells nothing


def _compares_nothing(value: object) -> bool:
    """Return whether equality of such objects is identity: then two reads always differ, which tells nothing."""
    compare: object = type(value).__eq__
    return compare is object.__eq__


def physical_batches(
    rows: Rows, wanted: Iterable[PhysicalBatch], workers: int = 0
) -> Iterable[tuple[PhysicalBatch, list[Group]]]:
    """Yield each wanted physical batch with its groups (none when it is empty), read ahead by worker processes if asked.

    Args:
        rows: what to read.
        wanted: in the order of the steps; may be endless.
        workers: number of reading processes; 0 reads in this one. What is read does not depend on it.
    """
    return (rows[batch] for batch in wanted) if workers == 0 else _read_ahead(rows, wanted, workers)


def _read_ahead(rows: Rows, wanted: Iterable[PhysicalBatch], workers: int) -> Iterator[tuple[PhysicalBatch, list[Group]]]:
    # A generator of its own: the loader would draw its seed from the user's.
    loader: DataLoader[Any] = DataLoader(
        _Packing(rows), batch_size=None, sampler=wanted, num_workers=workers, collate_fn=_unchanged, generator=torch.Generator()
    )
    for batch, packed in loader:
        yield batch, packed.unpack()


class _Packing(Dataset[tuple[PhysicalBatch, Packed]]):
    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def __getitem__(self, batch: PhysicalBatch) -> tuple[PhysicalBatch, Packed]:
        return batch, pack(self._rows[batch][1])


def _unchanged(item: Any) -> Any:
    return item
