"""The program that `privet check` checks: a user's model, loss and plan with a few examples."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.data import Dataset

from privet._utils.randomness import Seeds, preserve_generators, seed_generators
from privet.audit.production import ReleaseRecorder
from privet.clipping import Rule
from privet.clipping.gep import refuse_anchors
from privet.collate import Collate
from privet.gradients import trainable
from privet.gradients.core.examples import count_examples, select_examples, to_device
from privet.gradients.core.losses import LossFunction
from privet.plan import Plan
from privet.reading.batches import BatchDataset
from privet.reading.rows import ExampleReader
from privet.sampling import FullBatch, Indices
from privet.training import Reading, Training

_EXAMPLES = 16  # largest number of examples to check
_CHUNK = 5  # examples that go through the model at once: fewer than all, and not a divisor of their number
_Value = TypeVar("_Value")


@dataclass(frozen=True, eq=False)
class AuditedProgram:
    """A program to check before training; arguments as for `privet.audit.check`. The model is copied, not changed."""

    model: nn.Module
    loss_fn: LossFunction
    plan: Plan
    dataset: Dataset[Any] | None = None
    collate: Collate | None = None
    batch: Any = None
    probe_batch: Any = None

    @cached_property
    def indices(self) -> Indices:
        """Indices of the examples to check, evenly spaced."""
        number = count_examples(self.batch) if self.dataset is None else len(self.dataset)  # type: ignore[arg-type]
        return np.unique(np.linspace(0, number - 1, min(_EXAMPLES, number)).astype(np.int64))

    @cached_property
    def reader(self) -> ExampleReader:
        """Reads the data set as training does."""
        return ExampleReader(self.dataset, None if isinstance(self.dataset, BatchDataset) else self.collate)

    @cached_property
    def singles(self) -> list[Any]:
        """The examples as batches of one on the model's device, each read and collated by calls of its own."""
        if self.dataset is None:
            made = [select_examples(self.batch, slice(index, index + 1)) for index in self.indices.tolist()]
        else:
            made = self.reader.examples(self.indices, Seeds(bytes(32)), strict=True)
        return [to_device(cast(batch, None), next(self.model.parameters()).device) for batch in made]

    @property
    def names(self) -> list[str]:
        """Names of the trainable parameters; empty for a model without any, which training refuses."""
        return [name for name, parameter in self.model.named_parameters() if parameter.requires_grad]

    @cached_property
    def method(self) -> str:
        """The method that training chooses for the program and the whole data set, after its check on public input.

        Raises:
            PrivetError: training refuses the program or the data set.
        """
        refuse_anchors(self.plan.clipping, "an audit")
        data, plan = self.dataset, self.plan
        if data is None:
            data, plan = _Batches(self.singles, str(plan.unit)), self.first_step_plan(len(self.singles), silent=True)
        collate, reading = None if self.dataset is None else self.reader.collate, Reading(probe_batch=self.probe_batch)
        return self._begin(plan, copy.deepcopy(self.model), data, collate=collate, reading=reading)[0].method

    def _begin(self, plan: Plan, model: nn.Module, data: Dataset[Any], **options: Any) -> tuple[Training, ReleaseRecorder]:
        trainable(model)  # refuses a model without trainable parameters, for which torch has no optimizer
        recorder = ReleaseRecorder(model)
        return Training(plan, model, self.loss_fn, recorder, data, **options), recorder

    def without_dropout(self, dtype: torch.dtype | None = None) -> nn.Module:
        """Return a copy of the model without dropout, cast to a type if given; in evaluation mode if it is still random."""
        twin = copy.deepcopy(self.model)
        for module in twin.modules():
            if isinstance(module, nn.modules.dropout._DropoutNd):
                module.eval()
            elif isinstance(module, nn.RNNBase | nn.MultiheadAttention):
                module.dropout = 0.0
        if self._draws(twin):
            twin.eval()
        return twin if dtype is None else twin.to(dtype)

    @cached_property
    def is_random(self) -> bool:
        """Whether the model or loss is random even without dropout and in evaluation mode."""
        return self._draws(self.without_dropout())

    def _draws(self, model: nn.Module) -> bool:
        def losses(seed: int) -> Tensor:
            return seeded(seed, self.loss_fn, copy.deepcopy(model), cast(self.singles[0], None)).nan_to_num()

        with torch.no_grad(), suppress(Exception):
            return not torch.equal(losses(0), losses(1))
        return False

    @cached_property
    def precise_dtype(self) -> torch.dtype | None:
        """float64 if model and loss support it, else None for their own precision."""
        with suppress(Exception):
            batch = cast(self.singles[0], torch.float64)
            seeded(0, self.loss_fn, self.without_dropout(torch.float64), batch).sum().backward()
            return torch.float64
        return None

    def first_step(self, model: nn.Module, batches: Sequence[Any], *, silent: bool = True) -> dict[str, Tensor]:
        """Return the sum that the optimizer receives in the first step on these batches of one; `silent`: without noise."""
        data = _Batches(batches, str(self.plan.unit))
        plan, options = self.first_step_plan(len(data), silent=silent), {"method": self.method, "reading": Reading(probe=False)}
        training, recorder = self._begin(plan, model, data, physical_batch_size=_CHUNK, **options)
        training.run()
        return {name: steps[0].double() * plan.divisor for name, steps in recorder.received.items()}

    def first_step_plan(self, examples: int, *, silent: bool) -> Plan:
        """Return the plan with one step on all of this number of examples."""
        noise = replace(self.plan.noise, multiplier=0, non_private=True) if silent else self.plan.noise
        return replace(
            self.plan, examples=examples, sampling=FullBatch(), steps=1, noise=noise, momentum=None, sparsification=None,
            embeddings=None, accept_large_delta=True,
        )  # fmt: skip

    @property
    def rule(self) -> Rule:
        """The rule of the first step."""
        factors = self.first_step_plan(len(self.indices), silent=False).bound_factors()
        return self.plan.clipping.scale_bound(float(factors[0]))


def seeded(seed: int, call: Callable[..., _Value], *arguments: Any) -> _Value:
    """Return the result of a call with seeded random generators, which are restored afterwards."""
    with preserve_generators():
        seed_generators(seed)
        return call(*arguments)


def cast(batch: Any, dtype: torch.dtype | None) -> Any:
    """Return a copy of a batch with its floating-point tensors cast to a type, if one is given."""

    def copied(leaf: Tensor) -> Tensor:
        return leaf.to(dtype=dtype if leaf.is_floating_point() else None, copy=True)

    return pytree.tree_map_only(Tensor, copied, batch)


class _Batches(BatchDataset):
    """Batches of one in memory, of any shapes; at least two entries, as in a plan, of which a missing one contributes nothing."""

    def __init__(self, batches: Sequence[Any], unit: str) -> None:
        self._batches, self.privacy_unit = batches, unit

    def __len__(self) -> int:
        return max(2, len(self._batches))

    def read(self, indices: Indices) -> Any:
        return cast(self._batches[int(indices[0])], None)
