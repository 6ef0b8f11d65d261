"""AuditedProgram of `privet check`: a user's program and a few of its examples, read as in training."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.data import Dataset, Subset, TensorDataset

from privet._utils.randomness import Seeds, preserve_generators, seed_generators
from privet.audit.production import ReleaseRecorder
from privet.clipping import Rule
from privet.clipping.clipped_sum import ClippedSum
from privet.clipping.gep import refuse_anchors
from privet.collate import Collate, collate_one, copy_batch
from privet.gradients import trainable
from privet.gradients.core.examples import count_examples, select_examples, to_device
from privet.gradients.core.losses import LossFunction
from privet.plan import Plan
from privet.reading.batches import BatchDataset, Group, check_dataset, group_examples, privacy_unit, split
from privet.reading.rows import ExampleReader, physical_batches, ungroup
from privet.reading.tables import build_table
from privet.sampling import FullBatch, Indices
from privet.training import Reading, Training
from privet.training.clipped_sums import ClippedSummer
from privet.training.preflight import Preflight
from privet.training.state.iterates import PastIterates

EXAMPLES = 16  # largest number of examples to check
_CHUNK = 5  # examples that go through the model at once: fewer than all, and not a divisor of their number
_RANDOM = (nn.modules.dropout._DropoutNd, nn.RNNBase, nn.MultiheadAttention)


@dataclass(frozen=True, eq=False)
class AuditedProgram:
    """A program to check before training.

    Args:
        model: the module, in the mode for training; it is copied, not changed.
        loss_fn: (model, batch) → (B,) losses.
        dataset: map-style data set with at least two examples, of which at most sixteen, evenly spaced, are used.
        plan: plan of the training, with its noise.
        collate: collate function for training, list of items → batch, or None.
        whole: whether this is the whole data set of the plan, not a sample of it.
        probe_batch: public batch for the check before the first step of training, or None.
    """

    model: nn.Module
    loss_fn: LossFunction
    dataset: Dataset[Any]
    plan: Plan
    collate: Collate | None = None
    whole: bool = True
    probe_batch: Any = None

    @staticmethod
    def of_batch(model: nn.Module, loss_fn: LossFunction, batch: Any, plan: Plan, probe_batch: Any = None) -> AuditedProgram:
        """Return a subject with the examples of a batch, along the first dimension of its tensors."""
        return AuditedProgram(model, loss_fn, BatchData(batch, str(plan.unit)), plan, whole=False, probe_batch=probe_batch)

    @cached_property
    def indices(self) -> Indices:
        """Indices of the examples to check."""
        number = len(self.dataset)  # type: ignore[arg-type]
        return np.unique(np.linspace(0, number - 1, min(EXAMPLES, number)).astype(np.int64))

    @property
    def names(self) -> list[str]:
        """Names of the trainable parameters; empty for a model without any, which training refuses."""
        return [name for name, parameter in self.model.named_parameters() if parameter.requires_grad]

    def check_data(self) -> None:
        """Check that training would accept the data set.

        Raises:
            InvalidArgumentError: it would not; the message gives the reason.
        """
        refuse_anchors(self.plan.clipping, "an audit")
        if self.whole:
            check_dataset(self.dataset, self.plan.examples, self.plan.unit)

    @cached_property
    def selected(self) -> Dataset[Any]:
        """The examples to check, as a data set that is read like the whole one."""
        return select_entries(self.dataset, self.indices)

    @cached_property
    def method(self) -> str:
        """The method that training would choose.

        Raises:
            UnsupportedModelError: training would refuse the program.
        """
        trainable(self.model)  # refuses a model without trainable parameters
        plan, rows_ = self.first_step_plan(silent=True), ExampleReader(self.selected, self.collate)
        return Preflight(plan, self.copy(), self.loss_fn, rows_, "auto", self.probe_batch).check()

    def copy(self) -> nn.Module:
        """Return a copy of the model."""
        return copy.deepcopy(self.model)

    def without_dropout(self, dtype: torch.dtype | None = None) -> nn.Module:
        """Return a copy of the model without dropout, cast to a type if given; in evaluation mode if it is still random."""
        twin = copy.deepcopy(self.model)
        for module in twin.modules():
            if isinstance(module, _RANDOM):
                _disable_dropout(module)
        if self._is_random(twin):
            twin.eval()
        return twin if dtype is None else twin.to(dtype)

    @cached_property
    def is_random(self) -> bool:
        """Whether the model or loss is random even without dropout and in evaluation mode."""
        return self._is_random(self.without_dropout())

    @cached_property
    def precise_dtype(self) -> torch.dtype | None:
        """float64 if model and loss support it, else None for their own precision."""
        model = self.without_dropout(torch.float64)
        try:
            with preserve_generators():
                self.loss_fn(model, cast(clone(self.single_batches[0]), torch.float64)).sum().backward()
        except Exception:  # of any kind: float64 is not supported
            return None
        return torch.float64

    def _is_random(self, model: nn.Module) -> bool:
        batch = self.single_batches[0]
        with preserve_generators(), torch.no_grad(), suppress(Exception):
            found = []
            for seed in (0, 1):
                seed_generators(seed)
                found.append(self.loss_fn(copy.deepcopy(model), clone(batch)))
            return not torch.equal(found[0].nan_to_num(), found[1].nan_to_num())
        return False

    @cached_property
    def single_batches(self) -> list[Any]:
        """The examples as batches of one, each built by a separate call of the user's data set and collate function."""
        device = next(self.model.parameters()).device
        return [to_device(clone(self.batch_of(self.selected, position)), device) for position in range(len(self.indices))]

    def batch_of(self, data: Dataset[Any], position: int) -> Any:
        """Return one example as the model receives it in training, but read by user code only, without Privet's reader."""
        with preserve_generators():
            if isinstance(data, BatchDataset):
                return data.read(np.array([position], dtype=np.int64))
            seed_generators(position)
            return collate_one(data[position], self.collate)

    def sum_of(self, model: nn.Module, data: Dataset[Any], rule: Rule, *, dtype: torch.dtype | None = None) -> ClippedSum:
        """Return the clipped sum over a data set as in training, without noise.

        Args:
            model: a deterministic model.
            data: some examples, such as `selected`.
            rule: clipping rule.
            dtype: type to which floating-point tensors are cast when read; None for no cast.
        """
        parameters, source = trainable(model), self.plan.noise.make_source()
        summer = ClippedSummer(
            model, self.loss_fn, parameters, self.method, source.words, source.words, PastIterates(), averages=None
        )  # fmt: skip
        rows_, indices = self._rows(data, dtype), np.arange(len(data), dtype=np.int64)  # type: ignore[arg-type]
        return summer.sum_draw(iter(physical_batches(rows_, split(indices, 1, _CHUNK))), rule, None)

    def _rows(self, data: Dataset[Any], dtype: torch.dtype | None) -> ExampleReader:
        if dtype is None:
            return ExampleReader(data, None if isinstance(data, BatchDataset) else self.collate)
        if isinstance(data, BatchDataset):
            return ExampleReader(_Cast(data, dtype))
        if self.collate is None and (table := _tensors(data)) is not None:
            return ExampleReader(TensorDataset(*(cast(tensor, dtype) for tensor in table)))
        return ExampleReader(data, partial(_collate_cast, self.collate, dtype))

    def first_step(self, model: nn.Module, *, silent: bool) -> dict[str, Tensor]:
        """Return the sum that the optimizer receives in the first step of training on the selected examples.

        Args:
            model: the model, which the recording optimizer does not change.
            silent: train without noise.
        """
        trainable(model)  # refuses a model without trainable parameters, for which torch has no optimizer
        plan, recorder = self.first_step_plan(silent=silent), ReleaseRecorder(model)
        collate = None if isinstance(self.selected, BatchDataset) else self.collate
        Training(
            plan, model, self.loss_fn, recorder, self.selected, collate=collate, physical_batch_size=_CHUNK,
            reading=Reading(probe_batch=self.probe_batch),
        ).run()  # fmt: skip
        return {name: steps[0].double() * plan.divisor for name, steps in recorder.received.items()}

    def first_step_plan(self, *, silent: bool) -> Plan:
        """Return the plan with one step on all selected examples."""
        plan = self.plan
        noise = replace(plan.noise, multiplier=0, non_private=True) if silent else plan.noise
        return replace(
            plan, examples=len(self.indices), sampling=FullBatch(), steps=1, noise=noise, momentum=None, sparsification=None,
            accept_large_delta=True,
        )  # fmt: skip

    @property
    def rule(self) -> Rule:
        """The rule of the first step."""
        return self.plan.clipping.scale_bound(float(self.first_step_plan(silent=False).bound_factors()[0]))


def clone(batch: Any) -> Any:
    """Return a copy of a batch with cloned tensors."""
    return pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, batch)


def cast(batch: Any, dtype: torch.dtype) -> Any:
    """Return a batch with its floating-point tensors cast to this type."""
    return pytree.tree_map(lambda leaf: leaf.to(dtype) if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf, batch)


def _collate_cast(collate: Collate | None, dtype: torch.dtype, items: list[Any]) -> Any:
    return cast(collate_one(items[0]) if collate is None else copy_batch(collate(items)), dtype)


def _disable_dropout(module: nn.Module) -> None:
    if isinstance(module, nn.modules.dropout._DropoutNd):
        module.eval()
    else:
        module.dropout = 0.0  # type: ignore[assignment]


def select_entries(dataset: Dataset[Any], indices: Indices) -> Dataset[Any]:
    """Return some examples of a data set, read like the whole, with random numbers that depend on the index only."""
    if isinstance(dataset, BatchDataset):
        return _Part(dataset, indices)
    if build_table(dataset) is not None:
        found: Dataset[Any] = Subset(dataset, indices.tolist())
        found.privacy_unit = privacy_unit(dataset)  # type: ignore[attr-defined]
        return found
    return SeededSubset(dataset, indices)


class SeededSubset(Dataset[Any]):
    """Some items of a data set, each read with the same random numbers every time.

    Args:
        dataset: map-style data set.
        indices: indices of the items.
    """

    def __init__(self, dataset: Dataset[Any], indices: Sequence[int] | Indices) -> None:
        self._dataset, self._indices, self.privacy_unit = dataset, [int(index) for index in indices], privacy_unit(dataset)

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, position: int) -> Any:
        # Rows seeds each example too, but these seeds are known, so that a plain loop can draw the same numbers.
        seed_generators(self._indices[position])
        return self._dataset[self._indices[position]]


class Items(Dataset[Any]):
    """Items in memory, returned as copies, so that changes are lost.

    Args:
        items: items of a data set.
        seeds: seed of the random numbers of collate for each item.
        unit: unit of privacy.
    """

    def __init__(self, items: Sequence[Any], seeds: Sequence[int], unit: str) -> None:
        self._items, self._seeds, self.privacy_unit = list(items), list(seeds), unit

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, position: int) -> Any:
        seed_generators(self._seeds[position])
        return copy.deepcopy(self._items[position])


class _Part(BatchDataset):
    """Some entries of a data set that builds its own batches."""

    def __init__(self, dataset: BatchDataset, indices: Indices) -> None:
        self._dataset, self._indices, self.privacy_unit = dataset, indices, dataset.privacy_unit
        self.row_wise = dataset.row_wise

    def __len__(self) -> int:
        return len(self._indices)

    def read(self, indices: Indices) -> Any:
        if self.row_wise:
            return self._dataset.read(self._indices[indices])
        (found,) = ungroup(self.groups(indices, strict=True), 1)
        return found

    def groups(self, indices: Indices, seeds: Seeds | None = None, *, strict: bool = False) -> list[Group]:
        """Return these entries separately, each with random numbers that depend on its index only."""
        if self.row_wise:
            return self._dataset.groups(self._indices[indices], seeds, strict=strict)
        chosen = [self._indices[[index]] for index in indices]
        read = [self._dataset.groups(one, Seeds(bytes(24) + one.tobytes()), strict=strict) for one in chosen]
        return group_examples([ungroup(groups, 1)[0] for groups in read])


class _Cast(BatchDataset):
    """Entries with floating-point tensors cast to another type."""

    def __init__(self, dataset: BatchDataset, dtype: torch.dtype) -> None:
        self._dataset, self._dtype, self.privacy_unit = dataset, dtype, dataset.privacy_unit

    def __len__(self) -> int:
        return len(self._dataset)

    def read(self, indices: Indices) -> Any:
        return cast(self._dataset.read(indices), self._dtype)

    def groups(self, indices: Indices, seeds: Seeds | None = None, *, strict: bool = False) -> list[Group]:
        """Return these entries separately."""
        found = self._dataset.groups(indices, seeds, strict=strict)
        return [replace(group, examples=replace(group.examples, leaves=_cast_leaves(group, self._dtype))) for group in found]


def _cast_leaves(group: Group, dtype: torch.dtype) -> tuple[Any, ...]:
    return tuple(cast(leaf, dtype) for leaf in group.examples.leaves)


class BatchData(BatchDataset):
    """The examples of a batch as a data set."""

    row_wise = True

    def __init__(self, batch: Any, unit: str) -> None:
        self.batch, self.privacy_unit = batch, unit

    def __len__(self) -> int:
        return count_examples(self.batch)

    def read(self, indices: Indices) -> Any:
        """Return these examples as one batch."""
        return select_examples(self.batch, torch.from_numpy(indices))


class Batches(BatchDataset):
    """Batches of one in memory, of any shapes."""

    def __init__(self, batches: Sequence[Any], unit: str) -> None:
        self._batches, self.privacy_unit = list(batches), unit

    def __len__(self) -> int:
        return len(self._batches)

    def read(self, indices: Indices) -> Any:
        """Return the batch of one at one index."""
        return clone(self._batches[int(indices[0])])


def _tensors(data: Dataset[Any]) -> tuple[Tensor, ...] | None:
    """Return the columns of a data set of tensors; None for other data sets, or if its rows differ in shape."""
    if isinstance(data, Items) or build_table(data) is None:
        return None
    read = [data[position] for position in range(len(data))]  # type: ignore[arg-type]
    try:
        return tuple(torch.stack(column) for column in zip(*read, strict=True))
    except RuntimeError:
        return None


__all__ = ["AuditedProgram", "BatchData", "Batches", "Items", "SeededSubset", "cast", "clone", "select_entries"]
