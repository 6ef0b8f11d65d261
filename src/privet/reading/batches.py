"""Physical batches of bounded size from sampled indices, with isolated examples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset, IterableDataset

from privet._utils.generators import find_generators, seed_held
from privet._utils.randomness import Seeds, preserve_generators, seed_generators
from privet.accounting.privacy_unit import Unit
from privet.accounting.privacy_unit import find_unit as whose
from privet.clipping.clipped_sum import BatchSlice
from privet.collate import copy_batch
from privet.errors import USER_ERRORS, InvalidArgumentError, UnsupportedModelError
from privet.gradients.core.examples import (
    Examples,
    Flat,
    flat_signature,
    flatten,
    is_stackable,
    loose_key,
    split_batch,
    stack_flat,
)
from privet.reading.entries import check_distinct
from privet.sampling import Indices, Words

EXAMPLE = "one example"
# Packages whose tables are indexed by column.
_FRAMES = ("pandas", "polars", "pyarrow")
_MAP_STYLE = "a map-style data set, whose item i is example i, such as torch.utils.data.TensorDataset(inputs, labels)"


UNREADABLE = object()  # in the place of an example that could not be read; it contributes nothing


@dataclass(frozen=True)
class PhysicalBatch:
    """The examples of one pass through the model: part of one step's draw."""

    indices: Indices
    part: BatchSlice  # their positions within the draw
    last: bool  # whether it is the last physical batch of the step
    seeds: Seeds | None = None  # of user code's random numbers during reading; None if no user code runs, or for fresh seeds


def split(draw: Indices, number: int, size: int, words: Words | None = None, first: int = 0) -> Iterator[PhysicalBatch]:
    """Yield the physical batches of a step's draw, of at most `size` examples; an empty draw yields one empty batch.

    `words` is a source of uniform 64-bit words, for the key of the step's seeds; the batches have no seeds if None. The draw may
    be the part of a larger one that begins at position `first`.
    """
    starts, seeds = range(0, max(len(draw), 1), size), None if words is None else Seeds.draw(words)
    for start in starts:
        stop = min(start + size, len(draw))
        part, own = BatchSlice(number, first + start, first + stop), None if seeds is None else seeds.after(first + start)
        yield PhysicalBatch(draw[start:stop], part, last=start == starts[-1], seeds=own)


@dataclass(frozen=True, eq=False)
class Group:
    """Examples of a physical batch with equal structure and shapes. Each example's group depends on that example alone."""

    positions: Tensor  # (b,) int64, within the physical batch, increasing
    examples: Examples


def group_examples(examples: Sequence[Any]) -> list[Group]:
    """Group batches of one by structure and shapes, in order of first occurrence; those that cannot be flattened are left out."""
    found: dict[Hashable, tuple[list[int], list[Flat]]] = {}
    for position, example in enumerate(examples):
        if example is UNREADABLE:
            continue
        try:
            flat = flatten(example)
            positions, alike = found.setdefault(flat_signature(flat, loose_key), ([], []))
        except Exception:  # from a user-defined container
            continue
        positions.append(position)
        alike.append(flat)
    return [Group(torch.tensor(positions, device="cpu"), stack_flat(alike)) for positions, alike in found.values()]


def move_groups(groups: Iterable[Group], device: torch.device) -> Iterator[Group]:
    """Yield groups with their tensors on a device. Those that cannot be moved are left out, like unreadable examples.

    Whether that is so depends on what the examples of a group have in common: the device that they are on, or a class of tensors.
    """
    for group in groups:
        try:
            moved = group.examples.to(device)
        except Exception:
            continue
        yield Group(group.positions, moved)


def read_each(
    read: Callable[[int], Any], indices: Sequence[int], seeds: Seeds | None, *, strict: bool, generators: Sequence[Any] = ()
) -> list[Any]:
    """Read examples one after another by user code (index → batch of one), each with its own random seed.

    Args:
        seeds: for these positions, used once; fresh seeds if None.
        strict: whether to propagate exceptions, and refuse tensors that are not dense. If not, an example that fails is
            `UNREADABLE`: an exception would reveal that it was drawn.
        generators: of user code, from `find_generators`; they are seeded like the global ones.
    Guarantee:
        The result for a position depends on its index and its seed, and on another example only if `read` keeps state between
        calls. The global generators of torch, NumPy and Python are restored afterwards.
    """
    numbers, found = (seeds or Seeds.draw()).numbers(len(indices)), []
    with preserve_generators():
        for index, number in zip(indices, numbers, strict=True):
            seed_generators(number)
            seed_held(generators, number)
            try:
                found.append(read(index))
            except KeyboardInterrupt:
                raise
            except USER_ERRORS:
                if strict:
                    raise
                found.append(UNREADABLE)
    leaves = pytree.tree_leaves(found) if strict else []
    if odd := [leaf for leaf in leaves if isinstance(leaf, Tensor) and not is_stackable(leaf)]:
        kind = "nested" if odd[0].is_nested else str(odd[0].layout).removeprefix("torch.").replace("_", " ")
        raise UnsupportedModelError(
            f"an example of the data set contains a {type(odd[0]).__name__} ({kind}); it must hold dense tensors. "
            "Convert it in the data set or in collate (to_dense(), to_padded_tensor(), privet.collate.Padded)."
        )
    return found


class BatchDataset(Dataset[Any], ABC):
    """A map-style data set that assembles its own batches, such as one whose entries are users.

    Attributes:
        privacy_unit: the unit that one entry holds the data of, in the terms of `Plan.unit`.
        row_wise: whether `read` accepts several indices and computes each entry, along the first dimension of its tensors, from
            its own index alone. For Privet's own data sets only: all others receive one index at a time.
    """

    privacy_unit: str | Unit = EXAMPLE
    row_wise: bool = False

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of entries."""

    @abstractmethod
    def read(self, indices: Indices) -> Any:
        """Return the batch of these entries."""

    @property
    def runs_user_code(self) -> bool:
        """Whether reading calls code that belongs neither to Privet nor to torch."""
        return not self.row_wise

    def groups(self, indices: Indices, seeds: Seeds | None = None, *, strict: bool = False) -> list[Group]:
        """Return these entries isolated; arguments as for `read_each`."""
        if self.row_wise:
            return [Group(torch.arange(len(indices), device="cpu"), split_batch(self.read(indices)))]

        def read(index: int) -> Any:
            return copy_batch(self.read(np.array([index])))

        return group_examples(read_each(read, indices.tolist(), seeds, strict=strict, generators=find_generators(self)))

    def __getitem__(self, index: int) -> Any:
        """Return one entry, without the batch dimension."""
        one = self.read(np.array([index], dtype=np.int64))
        return pytree.tree_map(lambda leaf: leaf[0] if isinstance(leaf, Tensor) else leaf, one)


def check_map_style(dataset: object) -> int:
    """Return the length of a map-style data set; refuse others."""
    package, kind = type(dataset).__module__.partition(".")[0], type(dataset).__name__
    found, wanted, fix = f"a {kind}", _MAP_STYLE, ""
    if isinstance(dataset, DataLoader):
        wanted, fix = "the data set itself", "Sampling is the plan's; pass loader.dataset."
    elif package in _FRAMES:
        found = f"a {package} {kind}"
        fix = "Load it by a public schema: privet.data.load(frame, schema=schema).train, or make tensors of its columns."
    elif isinstance(dataset, str | bytes | Path):
        fix = "For the path of a file: privet.data.load(path).train."
    elif isinstance(dataset, Mapping) and package == "datasets":
        found, wanted = f"a {kind} of {', '.join(map(str, dataset))}", "one of its splits"
        fix = "Pass dataset['train'], say."
    elif isinstance(dataset, Mapping) and 0 not in dataset:
        fix = "Join its columns: TensorDataset(*columns.values())."
    elif isinstance(dataset, IterableDataset):
        found = f"a stream ({kind})"
        fix = (
            "Every step draws from all examples, and a stream has only the next ones. Load it whole (datasets: streaming=False; "
            "others: list(dataset), if memory allows), or write a data set that reads example i from its file."
        )
    elif not isinstance(dataset, Sized) or not hasattr(dataset, "__getitem__"):
        fix = "It needs a length and indexing by position."
    if fix:
        raise InvalidArgumentError("dataset", found, wanted, fix)
    return len(dataset)  # type: ignore[arg-type]


def check_dataset(dataset: object, examples: int, unit: str | Unit = EXAMPLE) -> None:
    """Refuse a data set that is not map-style, differs from the plan in size or privacy unit, or repeats an entry."""
    entries = check_map_style(dataset)
    held = str(getattr(dataset, "privacy_unit", EXAMPLE))
    if held != str(unit):
        allowed = f"of the plan's unit, {str(unit)!r}"
        fix = "Create it with privet.units, or set its attribute privacy_unit to the unit of its entries, as in Plan.unit."
        raise InvalidArgumentError("dataset", f"a data set whose entries are of {held!r}", allowed, fix)
    if entries != examples:
        arrays = isinstance(dataset, tuple | list) and all(isinstance(part, Tensor | np.ndarray) for part in dataset)
        allowed = f"of exactly the plan's size, {examples}"
        fix = (
            "Join inputs and labels in one data set: torch.utils.data.TensorDataset(inputs, labels)."
            if arrays
            else "The guarantee is stated for that number; create the plan for this data set."
        )
        raise InvalidArgumentError("dataset", f"{entries} {whose(unit).counted}s", allowed, fix)
    check_distinct(dataset)
