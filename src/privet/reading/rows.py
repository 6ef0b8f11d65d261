"""Reading of data sets one physical batch at a time, each example on its own."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

from privet._utils.generators import find_generators
from privet._utils.randomness import Seeds
from privet.collate import Collate, Path, collate_one, find_floats
from privet.errors import InvalidArgumentError
from privet.gradients.core.examples import Examples, is_stackable, signature
from privet.reading.batches import UNREADABLE, BatchDataset, Group, PhysicalBatch, group_examples, read_each
from privet.reading.entries import Positions, iter_pieces
from privet.reading.transfer import Packed, pack
from privet.sampling import Indices


class ExampleReader(Dataset[tuple[PhysicalBatch, Any]]):
    """Reads a data set one physical batch at a time; user code sees one example at a time.

    A `TensorDataset`, and torch's own `Subset` and `ConcatDataset` of them, are sliced as a whole: no user code runs. For any
    other map-style data set `dataset[index]` and `collate([item])` are called for one index after another, never `__getitems__`.
    Attributes:
        dataset: the given one; of a list the items that it held at first, in their order then.
        floats: fields of items whose whole numbers become floats; public.
    Guarantee:
        The model's input for an example depends on its index and on fresh random numbers, not on which other examples were
        drawn, if reading does not change what later reads return: an assumption of the statement, which the audit tests.
    """

    def __init__(self, dataset: Any, collate: Collate | None = None) -> None:
        if isinstance(dataset, BatchDataset) and collate is not None:
            fix = "Pass it to the data set instead."
            raise InvalidArgumentError("collate", collate, f"None for {type(dataset).__name__}", fix)
        # Loops shuffle lists between epochs, which would give an entry to another person within a run.
        self.dataset: Any = tuple(dataset) if type(dataset) is list else dataset
        self.collate = collate
        self.floats: frozenset[Path] = frozenset()
        self._reads, self._generators = 0, list[Any]()
        self._table = build_table(self.dataset) if collate is None else None

    def __getitem__(self, batch: PhysicalBatch) -> tuple[PhysicalBatch, list[Group]]:
        return batch, self.read(batch.indices, batch.seeds)

    @property
    def runs_user_code(self) -> bool:
        """Whether reading calls the user's data set or collate, and so needs seeds."""
        return self.dataset.runs_user_code if isinstance(self.dataset, BatchDataset) else self._table is None

    def read(self, indices: Indices, seeds: Seeds | None = None, *, strict: bool = False) -> list[Group]:
        """Read these examples, in groups that can be stacked; no groups for no indices.

        Args:
            seeds: of user code's random numbers, used once; fresh seeds if None.
            strict: for public indices only: whether to propagate exceptions and refuse tensors that are not dense. If not, an
                example that cannot be read is in no group: it contributes zero and does not reveal that it was drawn.
        """
        if len(indices) == 0:
            return []
        if isinstance(self.dataset, BatchDataset):
            return self.dataset.groups(indices, seeds, strict=strict)
        if self._table is not None:
            return self._table.read(indices)

        def read_one(index: int) -> Any:
            return collate_one(self.dataset[index], self.collate, self.floats)

        return group_examples(self._read_each(read_one, indices.tolist(), seeds, strict=strict))

    def read_first(self, number: int) -> list[Group]:
        """Read the first examples, whose structure and types are public, and take their fields with floats for all examples."""
        if self.collate is None and self._table is None and not isinstance(self.dataset, BatchDataset):
            found = self._read_each(lambda index: set(find_floats(self.dataset[index])), range(number), None, strict=True)
            self.floats = frozenset().union(*found)
        return self.read(np.arange(number, dtype=np.int64), strict=True)

    def examples(self, indices: Indices, seeds: Seeds | None = None, *, strict: bool = False) -> list[Any]:
        """Read each of these examples as a batch of one, or `UNREADABLE`; arguments as for `read`."""
        return ungroup(self.read(indices, seeds, strict=strict), len(indices), strict=strict)

    def batch(self, indices: Indices) -> Any:
        """Read these examples as one plain batch, for data that is public or not trained on."""
        return join_rows(self.examples(indices, strict=True))

    def _read_each(self, read: Callable[[int], Any], indices: Sequence[int], seeds: Seeds | None, *, strict: bool) -> list[Any]:
        self._reads += 1
        if self._reads & (self._reads - 1) == 0:  # the 1st, 2nd, 4th, …: a read may create some
            self._generators = find_generators(self.dataset, self.collate)
        return read_each(read, indices, seeds, strict=strict, generators=self._generators)


def ungroup(groups: Sequence[Group], size: int, *, strict: bool = True) -> list[Any]:
    """Return the batch of one at each position of a physical batch of this size; `UNREADABLE` where there is none.

    If not strict, an example whose containers cannot be made again is `UNREADABLE`, too: it is user code that makes them.
    """
    found: list[Any] = [UNREADABLE] * size
    for group in groups:
        for number, position in enumerate(group.positions.tolist()):
            try:
                found[position] = group.examples.get(number)
            except Exception:
                if strict:
                    raise
    return found


def join_rows(rows: Sequence[Any]) -> Any:
    """Join batches of one to one batch.

    Tensors with a first dimension of 1 are concatenated along it. Others, such as a table that collate adds, must be equal.
    """
    if len({signature(row) for row in rows}) != 1:
        allowed = "examples of one shape where they are joined to a batch"
        fix = "Pad them: collate=privet.collate.Padded(multiple=16)."
        raise InvalidArgumentError("dataset", "examples of several shapes", allowed, fix)

    def joined(first: Any, *others: Any) -> Any:
        if not isinstance(first, Tensor):  # the same in all, by the signature
            return first
        if first.shape[:1] == (1,):
            return torch.cat([first, *others])
        if all(one is first or bool(((one == first) | ((one != one) & (first != first))).all()) for one in others):
            return first
        found = "a function that returns different tensors without a batch dimension"
        allowed = "one whose tensors start with a batch dimension, or are the same for every example"
        raise InvalidArgumentError("collate", found, allowed)

    return pytree.tree_map(joined, *rows)


def physical_batches(
    rows: ExampleReader, wanted: Iterable[PhysicalBatch], workers: int = 0
) -> Generator[tuple[PhysicalBatch, list[Group]], None, None]:
    """Yield each physical batch with its groups (none if it is empty), read ahead by worker processes if there are any.

    The result does not depend on the number of workers, except that they read no example that cannot be sent.
    """
    if workers == 0:
        yield from map(rows.__getitem__, wanted)
        return
    loader: DataLoader[Any] = DataLoader(
        rows, batch_size=None, sampler=wanted, num_workers=workers, collate_fn=_pack, worker_init_fn=_ignore_interrupts,
        generator=torch.Generator(),  # the loader would otherwise draw its seed from the global one
    )  # fmt: skip
    for batch, packed in loader:
        yield batch, packed.unpack()


def _pack(read: Any) -> tuple[PhysicalBatch, Packed]:
    return read[0], pack(read[1])


def _ignore_interrupts(worker: int) -> None:
    """Leave Ctrl-C, which reaches all processes of a terminal, to the one that trains."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@dataclass(frozen=True, eq=False)
class TensorTable:
    """Entries that are rows of tensors in one or more underlying data sets of equal shapes."""

    tables: list[tuple[Tensor, ...]]  # tensors (n, …) of each underlying data set
    place: Positions | None  # (N,) for each entry, the number of its data set; None if there is one
    row: Positions | None  # (N,) for each entry, its row there; None if entries are the rows in their order
    tree: pytree.TreeSpec  # structure of one example

    def read(self, indices: Indices) -> list[Group]:
        """Return these entries: each holds its rows `tensor[i : i + 1]`."""
        row = torch.from_numpy(indices if self.row is None else self.row[indices])
        place = None if self.place is None else torch.from_numpy(self.place[indices])
        if place is None:
            leaves = [column.index_select(0, row).unsqueeze(1) for column in self.tables[0]]
        else:
            leaves = [_gather(column, place, row).unsqueeze(1) for column in zip(*self.tables, strict=True)]
        examples = Examples(tuple(leaves), (True,) * len(leaves), self.tree, len(indices), owns_memory=True)
        return [Group(torch.arange(len(indices), device="cpu"), examples)]


def _gather(tensors: Sequence[Tensor], place: Tensor, row: Tensor) -> Tensor:
    found = tensors[0].new_empty(len(row), *tensors[0].shape[1:])
    for one in place.unique().tolist():
        here = place == one
        found[here] = tensors[one][row[here]]
    return found


def build_table(dataset: Any) -> TensorTable | None:
    """Return the rows of a `TensorDataset`, or of torch's own subsets and concatenations of such; None for anything else."""
    if not _is_sliceable(dataset):
        return None
    try:
        found = list(iter_pieces(dataset))
    except InvalidArgumentError:
        return None  # `check_dataset` raises the error
    tables = [tuple(tensor.detach() for tensor in piece.base.tensors) for piece in found]
    if len({tuple((tensor.shape[1:], tensor.dtype, tensor.device) for tensor in tensors) for tensors in tables}) != 1:
        return None
    plain = type(dataset) is TensorDataset
    place, row = np.empty(len(dataset), dtype=np.int64), np.empty(len(dataset), dtype=np.int64)
    for number, piece in enumerate(found):
        place[piece.entries], row[piece.entries] = number, piece.index
    # default_collate turns items that are tuples into lists.
    tree = pytree.tree_structure(tables[0] if plain else list(tables[0]))
    return TensorTable(tables, None if len(tables) == 1 else place, None if plain else row, tree)


def _is_sliceable(dataset: Any) -> bool:
    if type(dataset) is Subset:
        return _is_sliceable(dataset.dataset)
    if type(dataset) is ConcatDataset:
        return all(map(_is_sliceable, dataset.datasets))
    return type(dataset) is TensorDataset and len(dataset.tensors) > 0 and all(map(is_stackable, dataset.tensors))
