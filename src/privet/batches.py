"""From sampled indices to physical batches of bounded size."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, default_collate

from privet.accounting import unit as whose
from privet.errors import InvalidArgumentError, count
from privet.sampling import Indices
from privet.values import Part

Collate = Callable[[list[Any]], Any]
EXAMPLE = "one example"


@dataclass(frozen=True)
class PhysicalBatch:
    """What goes through the model at once: part of one step's draw.

    Args:
        indices: of the examples.
        part: which positions of the draw they are.
        last: whether the step ends with it.
    """

    indices: Indices
    part: Part
    last: bool


def split(draw: Indices, number: int, size: int) -> Iterator[PhysicalBatch]:
    """Yield the physical batches of one draw: at least one, which is empty if the draw is.

    Args:
        draw: indices of the step's examples.
        number: of the draw within the run.
        size: most examples in a physical batch.
    """
    starts = range(0, max(len(draw), 1), size)
    for start in starts:
        stop = min(start + size, len(draw))
        yield PhysicalBatch(draw[start:stop], Part(number, start, stop), last=start == starts[-1])


class Batched(Dataset[Any], ABC):
    """A map-style data set that is read a batch at a time, such as one whose entries are users.

    Attributes:
        privacy_unit: whose data an entry is, as `Plan.unit` says it.
    """

    privacy_unit: str = EXAMPLE

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of entries."""

    @abstractmethod
    def read(self, indices: Indices) -> Any:
        """Return the batch of these entries."""

    def __getitem__(self, index: int) -> Any:
        """Return one entry, without the dimension of the batch."""
        one = self.read(np.array([index], dtype=np.int64))
        return pytree.tree_map(lambda leaf: leaf[0] if isinstance(leaf, Tensor) else leaf, one)


class Rows(Dataset[tuple[PhysicalBatch, Any]]):
    """A data set read one physical batch at a time.

    A `TensorDataset` is indexed whole, and a `Batched` data set reads its batches itself; any other map-style data set is read
    example by example (`__getitems__` if it has it), then collated.

    Args:
        dataset: map-style, with a length.
        collate: list of examples → batch; `default_collate` if None.
    """

    def __init__(self, dataset: Dataset[Any], collate: Collate | None = None) -> None:
        if isinstance(dataset, Batched) and collate is not None:
            raise InvalidArgumentError(
                "collate", collate, f"None for {type(dataset).__name__}", "Give it to the data set instead."
            )
        self.dataset, self.collate = dataset, collate or default_collate
        self.whole = isinstance(dataset, TensorDataset) and collate is None

    def __getitem__(self, batch: PhysicalBatch) -> tuple[PhysicalBatch, Any]:
        return batch, self.read(batch.indices) if len(batch.indices) else None

    def read(self, indices: Indices) -> Any:
        """Return the batch of these examples."""
        if isinstance(self.dataset, Batched):
            return self.dataset.read(indices)
        if self.whole:
            where = torch.from_numpy(indices)
            return tuple(tensor[where] for tensor in self.dataset.tensors)  # type: ignore[attr-defined]
        several = getattr(self.dataset, "__getitems__", None)
        listed = indices.tolist()
        return self.collate(several(listed) if several else [self.dataset[index] for index in listed])


def physical_batches(rows: Rows, wanted: Iterable[PhysicalBatch], workers: int = 0) -> Iterable[tuple[PhysicalBatch, Any]]:
    """Yield each wanted physical batch with its content (None when empty), read ahead by worker processes if asked.

    Args:
        rows: what to read.
        wanted: in the order of the steps; may be endless.
        workers: number of reading processes; 0 reads in this one.
    """
    if workers == 0:
        return (rows[batch] for batch in wanted)
    return DataLoader(rows, batch_size=None, sampler=wanted, num_workers=workers, collate_fn=_unchanged)


def _unchanged(item: Any) -> Any:
    return item


def check_map_style(dataset: object) -> int:
    """Return the length of a map-style data set.

    Raises:
        InvalidArgumentError: it is something else.
    """
    if isinstance(dataset, DataLoader):
        raise InvalidArgumentError(
            "dataset", "a DataLoader", "the data set itself", "Sampling is the plan's; hand in loader.dataset."
        )
    if isinstance(dataset, IterableDataset) or not isinstance(dataset, Sized) or not hasattr(dataset, "__getitem__"):
        raise InvalidArgumentError("dataset", type(dataset).__name__, "map-style: with a length and indexing by position")
    return len(dataset)


def privacy_unit(dataset: object) -> str:
    """Return whose data an entry of a data set is, as `Plan.unit` says it: its attribute of that name, or an example."""
    return str(getattr(dataset, "privacy_unit", EXAMPLE))


def check_dataset(dataset: object, examples: int, unit: str = EXAMPLE) -> None:
    """Refuse a data set that is not map-style, not of the plan's size, that repeats an entry, or of another unit than the plan's.

    Args:
        dataset: what is to be trained on; its attribute `privacy_unit`, if there is one, says whose data an entry is.
        examples: the plan's number of entries.
        unit: the plan's.

    Raises:
        InvalidArgumentError: naming what it was.
    """
    entries = check_map_style(dataset)
    held = privacy_unit(dataset)
    if held != unit:
        raise InvalidArgumentError(
            "dataset", f"a data set whose entries are of {held!r}", f"of the plan's unit, {unit!r}",
            "Make it by privet.units, or give it an attribute privacy_unit that says whose data an entry is, as in Plan.unit.",
        )  # fmt: skip
    if entries != examples:
        raise InvalidArgumentError(
            "dataset", f"{entries} {whose(unit).counted}s", f"of exactly the plan's size, {examples}",
            "The guarantee is stated for that number; make the plan for this data set.",
        )  # fmt: skip
    if isinstance(dataset, Subset) and len(set(dataset.indices)) < len(dataset.indices):
        raise InvalidArgumentError(
            "dataset", "a Subset that repeats indices", f"one in which each of the {examples} entries occurs once",
            "Somebody who occurs twice would contribute twice.",
        )  # fmt: skip


def check_sizes(physical_batch_size: object, workers: object) -> None:
    """Refuse impossible sizes."""
    count("physical_batch_size", physical_batch_size, fix="It bounds memory only and does not change the result.")
    count("workers", workers, minimum=0)
