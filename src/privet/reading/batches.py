"""From sampled indices to physical batches of bounded size, whose examples are kept apart."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset, IterableDataset

from privet._utils.randomness import Seeds, generators_kept, seed_generators
from privet.accounting import Unit
from privet.accounting import unit as whose
from privet.clipping.clipped_sum import Part
from privet.collate import own_batch
from privet.errors import InvalidArgumentError, UnsupportedModelError
from privet.gradients.core.examples import Examples, Flat, flat_signature, flatten, split_batch, stack_flat, stackable
from privet.reading.entries import check_distinct
from privet.sampling import Indices, Words

EXAMPLE = "one example"


class _Unreadable:
    """What stands for an example that could not be read; it contributes nothing."""


UNREADABLE = _Unreadable()


@dataclass(frozen=True)
class PhysicalBatch:
    """What goes through the model at once: part of one step's draw.

    Args:
        indices: of the examples.
        part: which positions of the draw they are.
        last: whether the step ends with it.
        seeds: of user code's random numbers while the batch is read; None where no user code runs, or for fresh ones.
    """

    indices: Indices
    part: Part
    last: bool
    seeds: Seeds | None = None


def split(draw: Indices, number: int, size: int, words: Words | None = None) -> Iterator[PhysicalBatch]:
    """Yield the physical batches of one draw: at least one, which is empty if the draw is.

    Args:
        draw: indices of the step's examples.
        number: of the draw within the run.
        size: most examples in a physical batch.
        words: source of uniform 64-bit words, for a key of the step's seeds; there are none if None.
    """
    starts, seeds = range(0, max(len(draw), 1), size), None if words is None else Seeds.draw(words)
    for start in starts:
        stop = min(start + size, len(draw))
        part, own = Part(number, start, stop), None if seeds is None else seeds.after(start)
        yield PhysicalBatch(draw[start:stop], part, last=start == starts[-1], seeds=own)


@dataclass(frozen=True, eq=False)
class Group:
    """Examples of a physical batch that have equal structure and shapes; which those are depends on each by itself.

    Args:
        positions: (b,) int64, within the physical batch, increasing.
        examples: that are there.
    """

    positions: Tensor
    examples: Examples


def group_examples(examples: Sequence[Any]) -> list[Group]:
    """Return the examples of a physical batch in groups of one signature each, in the order of their first ones.

    Args:
        examples: for each position the batch of one, or `UNREADABLE`, which is in no group.
    """
    found: dict[Hashable, tuple[list[int], list[Flat]]] = {}
    for position, example in enumerate(examples):
        if example is not UNREADABLE:
            flat = flatten(example)
            positions, alike = found.setdefault(_key(flat), ([], []))
            positions.append(position)
            alike.append(flat)
    return [Group(torch.tensor(positions), stack_flat(alike)) for positions, alike in found.values()]


def _key(flat: Flat) -> Hashable:
    try:
        key = flat_signature(flat)
        hash(key)
    except Exception:  # of a container of the user's own
        return object()
    return key


def read_each(read: Callable[[int], Any], indices: Sequence[int], seeds: Seeds | None, *, strict: bool) -> list[Any]:
    """Return what user code reads, one example after another, each with random numbers of its own.

    Args:
        read: index → batch of one.
        indices: of the examples.
        seeds: for these positions, used once; fresh ones if None.
        strict: whether to let an exception pass. If not, the example is `UNREADABLE`, whatever it was that failed: the run must
            not tell that it was drawn.

    Guarantee:
        What is returned for a position depends on its index and the position's seed; on another example only if `read` keeps
        something from one call to the next. The global generators of torch, NumPy and Python are then as they were.

    Raises:
        UnsupportedModelError: if strict, an example holds a tensor that is not dense.
    """
    numbers, found = (seeds or Seeds.draw()).numbers(len(indices)), []
    with generators_kept():
        for index, number in zip(indices, numbers, strict=True):
            seed_generators(number)
            try:
                example = read(index)
            except Exception:
                if strict:
                    raise
                example = UNREADABLE
            found.append(example)
    if strict:
        for example in found:
            _check_dense(example)
    return found


def _check_dense(example: Any) -> None:
    for leaf in pytree.tree_leaves(example):
        if isinstance(leaf, Tensor) and not stackable(leaf):
            kind = "nested" if leaf.is_nested else str(leaf.layout).removeprefix("torch.").replace("_", " ")
            raise UnsupportedModelError(
                f"an example of the data set holds a {type(leaf).__name__} ({kind}); it must hold dense tensors. "
                "Make it dense in the data set or in collate (to_dense(), to_padded_tensor(), privet.collate.Padded)."
            )


class Batched(Dataset[Any], ABC):
    """A map-style data set that makes its batches itself, such as one whose entries are users.

    Attributes:
        privacy_unit: whose data an entry is, as `Plan.unit` says it.
        row_wise: whether `read` may be given several indices at once, as it makes each entry of that one index alone, along the
            first dimension of its tensors. For Privet's own only: any other is given one index at a time.
    """

    privacy_unit: str = EXAMPLE
    row_wise: bool = False

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of entries."""

    @abstractmethod
    def read(self, indices: Indices) -> Any:
        """Return the batch of these entries."""

    @property
    def runs_user_code(self) -> bool:
        """Whether reading calls anything that is not Privet's or torch's own."""
        return not self.row_wise

    def groups(self, indices: Indices, seeds: Seeds | None = None, *, strict: bool = False) -> list[Group]:
        """Return these entries kept apart; the arguments are those of `read_each`."""
        if self.row_wise:
            return [Group(torch.arange(len(indices)), split_batch(self.read(indices)))]
        return group_examples(
            read_each(lambda index: own_batch(self.read(np.array([index]))), indices.tolist(), seeds, strict=strict)
        )

    def __getitem__(self, index: int) -> Any:
        """Return one entry, without the dimension of the batch."""
        one = self.read(np.array([index], dtype=np.int64))
        return pytree.tree_map(lambda leaf: leaf[0] if isinstance(leaf, Tensor) else leaf, one)


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


def check_dataset(dataset: object, examples: int, unit: str | Unit = EXAMPLE) -> None:
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
    if held != str(unit):
        raise InvalidArgumentError(
            "dataset", f"a data set whose entries are of {held!r}", f"of the plan's unit, {str(unit)!r}",
            "Make it by privet.units, or give it an attribute privacy_unit that says whose data an entry is, as in Plan.unit.",
        )  # fmt: skip
    if entries != examples:
        raise InvalidArgumentError(
            "dataset", f"{entries} {whose(unit).counted}s", f"of exactly the plan's size, {examples}",
            "The guarantee is stated for that number; make the plan for this data set.",
        )  # fmt: skip
    check_distinct(dataset)
