"""What `privet check` is about: a program as it is trained, and a few of its examples, read as training reads them."""

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

from privet._utils.randomness import Seeds, generators_kept, seed_generators
from privet.audit.production import Recorder
from privet.clipping import Rule
from privet.clipping.clipped_sum import ClippedSum
from privet.collate import Collate, batch_of_one, copy_batch
from privet.gradients import trainable
from privet.gradients.core.examples import count_examples, select_examples, to_device
from privet.gradients.core.losses import LossFunction
from privet.plan import Plan
from privet.reading.batches import BatchDataset, Group, check_dataset, group_examples, privacy_unit, split
from privet.reading.rows import ExampleReader, physical_batches, ungroup
from privet.reading.tables import build_table
from privet.sampling import FullBatch, Indices
from privet.training import Training
from privet.training.clipped_sums import ClippedSummer
from privet.training.preflight import Preflight
from privet.training.state.iterates import PastIterates

EXAMPLES = 16  # that are looked at, at most
_PART = 5  # of them that go through the model at once: fewer than all, and no divisor of their number
_RANDOM = (nn.modules.dropout._DropoutNd, nn.RNNBase, nn.MultiheadAttention)


@dataclass(frozen=True, eq=False)
class Subject:
    """What is to be trained, to be looked at before.

    Args:
        model: the module, in the mode in which it is to be trained; it is copied, not changed.
        loss_fn: (model, batch) → (B,) losses.
        dataset: map-style, at least two examples; at most sixteen, spread over it, are looked at.
        plan: that it is to be trained by, with its noise.
        collate: list of items → batch, as training is given it.
        whole: whether this is the data set of the plan, and not some examples of it.
        probe_batch: a public batch that training is to be given for its check before the first step, or None.
    """

    model: nn.Module
    loss_fn: LossFunction
    dataset: Dataset[Any]
    plan: Plan
    collate: Collate | None = None
    whole: bool = True
    probe_batch: Any = None

    @staticmethod
    def of_batch(model: nn.Module, loss_fn: LossFunction, batch: Any, plan: Plan, probe_batch: Any = None) -> Subject:
        """Return a subject with the examples of a batch, which stand along the first dimension of its tensors."""
        return Subject(model, loss_fn, BatchData(batch, plan.unit), plan, whole=False, probe_batch=probe_batch)

    @cached_property
    def indices(self) -> Indices:
        """The examples that are looked at."""
        number = len(self.dataset)  # type: ignore[arg-type]
        return np.unique(np.linspace(0, number - 1, min(EXAMPLES, number)).astype(np.int64))

    @property
    def names(self) -> list[str]:
        """The names of the parameters that are trained; none of a model that training refuses for it."""
        return [name for name, parameter in self.model.named_parameters() if parameter.requires_grad]

    def check_data(self) -> None:
        """Refuse a data set that training would refuse.

        Raises:
            InvalidArgumentError: naming what is wrong with it.
        """
        if self.whole:
            check_dataset(self.dataset, self.plan.examples, self.plan.unit)

    @cached_property
    def few(self) -> Dataset[Any]:
        """The examples that are looked at, as a data set that is read as the whole is."""
        return part_of(self.dataset, self.indices)

    @cached_property
    def method(self) -> str:
        """The method that training would choose.

        Raises:
            UnsupportedModelError: training would refuse the program.
        """
        trainable(self.model)  # a model with nothing to train is refused first
        plan, rows_ = self.first_step_plan(silent=True), ExampleReader(self.few, self.collate)
        return Preflight(plan, self.copy(), self.loss_fn, rows_, "auto", self.probe_batch).check()

    def copy(self) -> nn.Module:
        """Return a copy of the model as it is."""
        return copy.deepcopy(self.model)

    def steady(self, dtype: torch.dtype | None = None) -> nn.Module:
        """Return a copy without dropout, in another precision if asked; in evaluation mode if more than that is random."""
        twin = copy.deepcopy(self.model)
        for module in twin.modules():
            if isinstance(module, _RANDOM):
                _switch_off(module)
        if self._draws(twin):
            twin.eval()
        return twin if dtype is None else twin.to(dtype)

    @cached_property
    def is_random(self) -> bool:
        """Whether the model or loss draws random numbers even without dropout and in evaluation mode."""
        return self._draws(self.steady())

    @cached_property
    def precise(self) -> torch.dtype | None:
        """float64 if model and loss can compute in it, else None: in their own precision."""
        model = self.steady(torch.float64)
        try:
            with generators_kept():
                self.loss_fn(model, cast(clone(self.alone[0]), torch.float64)).sum().backward()
        except Exception:  # of whatever kind: what was measured in float64 would be nothing
            return None
        return torch.float64

    def _draws(self, model: nn.Module) -> bool:
        batch = self.alone[0]
        with generators_kept(), torch.no_grad(), suppress(Exception):
            found = []
            for seed in (0, 1):
                seed_generators(seed)
                found.append(self.loss_fn(copy.deepcopy(model), clone(batch)))
            return not torch.equal(found[0].nan_to_num(), found[1].nan_to_num())
        return False

    @cached_property
    def alone(self) -> list[Any]:
        """The batch of one of each of the examples, made here by the user's data set and collate, one call after another."""
        device = next(self.model.parameters()).device
        return [to_device(clone(self.batch_of(self.few, position)), device) for position in range(len(self.indices))]

    def batch_of(self, data: Dataset[Any], position: int) -> Any:
        """Return one example as training hands it to the model, without any of Privet's reading where user code reads."""
        with generators_kept():
            if isinstance(data, BatchDataset):
                return data.read(np.array([position], dtype=np.int64))
            seed_generators(position)
            item = data[position]
            return copy_batch(self.collate([item])) if self.collate is not None else batch_of_one(item)

    def sum_of(self, model: nn.Module, data: Dataset[Any], rule: Rule, *, dtype: torch.dtype | None = None) -> ClippedSum:
        """Return the clipped sum over a data set as training takes it, without noise.

        Args:
            model: with steady random numbers.
            data: some examples, such as `few`.
            rule: that weights them.
            dtype: that real numbers are cast to when they are read; as they are by default.
        """
        parameters, source = trainable(model), self.plan.noise.make_source()
        summer = ClippedSummer(
            model, self.loss_fn, parameters, self.method, source.words, source.words, PastIterates(), averages=None
        )  # fmt: skip
        rows_, everyone = self._rows(data, dtype), np.arange(len(data), dtype=np.int64)  # type: ignore[arg-type]
        return summer.sum_draw(iter(physical_batches(rows_, split(everyone, 1, _PART))), rule, None)

    def _rows(self, data: Dataset[Any], dtype: torch.dtype | None) -> ExampleReader:
        if dtype is None:
            return ExampleReader(data, None if isinstance(data, BatchDataset) else self.collate)
        if isinstance(data, BatchDataset):
            return ExampleReader(_Cast(data, dtype))
        if self.collate is None and (table := _tensors(data)) is not None:
            return ExampleReader(TensorDataset(*(cast(tensor, dtype) for tensor in table)))
        return ExampleReader(data, partial(_collate_cast, self.collate, dtype))

    def first_step(self, model: nn.Module, *, silent: bool) -> dict[str, Tensor]:
        """Return what the optimizer of a training on the few examples is handed in its first step, times the batch size.

        Args:
            model: that is trained; the optimizer leaves it as it is.
            silent: whether there is no noise.
        """
        trainable(model)  # refused here: torch has no optimizer over nothing
        plan, recorder = self.first_step_plan(silent=silent), Recorder(model)
        Training(
            plan, model, self.loss_fn, recorder, self.few, physical_batch_size=_PART, probe_batch=self.probe_batch,
            collate=self.collate if not isinstance(self.few, BatchDataset) else None,
        ).run()  # fmt: skip
        return {name: steps[0].double() * plan.divisor for name, steps in recorder.handed.items()}

    def first_step_plan(self, *, silent: bool) -> Plan:
        """Return the plan with one step, in which all of the few examples take part."""
        plan = self.plan
        loudness = replace(plan.noise, multiplier=0, non_private=True) if silent else plan.noise
        return replace(
            plan, examples=len(self.indices), sampling=FullBatch(), steps=1, noise=loudness, momentum=None, sparsification=None,
            accept_large_delta=True,
        )  # fmt: skip

    @property
    def rule(self) -> Rule:
        """The rule of the first step."""
        return self.plan.clipping.scaled(float(self.first_step_plan(silent=False).bound_factors()[0]))


def clone(batch: Any) -> Any:
    """Return a batch with tensors of its own."""
    return pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, batch)


def cast(batch: Any, dtype: torch.dtype) -> Any:
    """Return a batch with its real numbers in this precision."""
    return pytree.tree_map(lambda leaf: leaf.to(dtype) if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf, batch)


def _collate_cast(collate: Collate | None, dtype: torch.dtype, items: list[Any]) -> Any:
    return cast(batch_of_one(items[0]) if collate is None else copy_batch(collate(items)), dtype)


def _switch_off(module: nn.Module) -> None:
    if isinstance(module, nn.modules.dropout._DropoutNd):
        module.eval()
    else:
        module.dropout = 0.0  # type: ignore[assignment]


def part_of(dataset: Dataset[Any], indices: Indices) -> Dataset[Any]:
    """Return some examples of a data set, read as the whole is, with random numbers that depend on the index alone."""
    if isinstance(dataset, BatchDataset):
        return _Part(dataset, indices)
    if build_table(dataset) is not None:
        found: Dataset[Any] = Subset(dataset, indices.tolist())
        found.privacy_unit = privacy_unit(dataset)  # type: ignore[attr-defined]
        return found
    return Chosen(dataset, indices)


class Chosen(Dataset[Any]):
    """Some items of a data set, whose reading draws the same random numbers every time.

    Args:
        dataset: map-style.
        indices: of the items.
    """

    def __init__(self, dataset: Dataset[Any], indices: Sequence[int] | Indices) -> None:
        self._dataset, self._indices, self.privacy_unit = dataset, [int(index) for index in indices], privacy_unit(dataset)

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, position: int) -> Any:
        # `ExampleReader` seeds every example by itself; these seeds are known, so that a plain loop can draw the same.
        seed_generators(self._indices[position])
        return self._dataset[self._indices[position]]


class Items(Dataset[Any]):
    """Items that are at hand, handed out as copies: what is written into one is gone.

    Args:
        items: as the data set gives them.
        seeds: of what collate draws for each.
        unit: whose data they are.
    """

    def __init__(self, items: Sequence[Any], seeds: Sequence[int], unit: str) -> None:
        self._items, self._seeds, self.privacy_unit = list(items), list(seeds), unit

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, position: int) -> Any:
        seed_generators(self._seeds[position])
        return copy.deepcopy(self._items[position])


class _Part(BatchDataset):
    """Some entries of a data set that makes its batches itself."""

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
        """Return these entries kept apart, each with random numbers that depend on its index alone."""
        if self.row_wise:
            return self._dataset.groups(self._indices[indices], seeds, strict=strict)
        chosen = [self._indices[[index]] for index in indices]
        read = [self._dataset.groups(one, Seeds(bytes(24) + one.tobytes()), strict=strict) for one in chosen]
        return group_examples([ungroup(groups, 1)[0] for groups in read])


class _Cast(BatchDataset):
    """Entries whose real numbers are cast to another precision."""

    def __init__(self, dataset: BatchDataset, dtype: torch.dtype) -> None:
        self._dataset, self._dtype, self.privacy_unit = dataset, dtype, dataset.privacy_unit

    def __len__(self) -> int:
        return len(self._dataset)

    def read(self, indices: Indices) -> Any:
        return cast(self._dataset.read(indices), self._dtype)

    def groups(self, indices: Indices, seeds: Seeds | None = None, *, strict: bool = False) -> list[Group]:
        """Return these entries kept apart."""
        found = self._dataset.groups(indices, seeds, strict=strict)
        return [replace(group, examples=replace(group.examples, leaves=_cast_leaves(group, self._dtype))) for group in found]


def _cast_leaves(group: Group, dtype: torch.dtype) -> tuple[Any, ...]:
    return tuple(cast(leaf, dtype) for leaf in group.examples.leaves)


class BatchData(BatchDataset):
    """The examples of a plain batch, as a data set."""

    row_wise = True

    def __init__(self, batch: Any, unit: str) -> None:
        self.batch, self.privacy_unit = batch, unit

    def __len__(self) -> int:
        return count_examples(self.batch)

    def read(self, indices: Indices) -> Any:
        """Return these examples as one plain batch."""
        return select_examples(self.batch, torch.from_numpy(indices))


class Batches(BatchDataset):
    """Batches of one that are at hand, of any shapes."""

    def __init__(self, batches: Sequence[Any], unit: str) -> None:
        self._batches, self.privacy_unit = list(batches), unit

    def __len__(self) -> int:
        return len(self._batches)

    def read(self, indices: Indices) -> Any:
        """Return the batch of one of one index."""
        return clone(self._batches[int(indices[0])])


def _tensors(data: Dataset[Any]) -> tuple[Tensor, ...] | None:
    """Return the columns of a data set of plain tensors; None if it is another, or its rows differ in shape."""
    if isinstance(data, Items) or build_table(data) is None:
        return None
    read = [data[position] for position in range(len(data))]  # type: ignore[arg-type]
    try:
        return tuple(torch.stack(column) for column in zip(*read, strict=True))
    except RuntimeError:
        return None


__all__ = ["BatchData", "Batches", "Chosen", "Items", "Subject", "cast", "clone", "part_of"]
