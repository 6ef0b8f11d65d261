"""What is asked of somebody's own model, loss and examples: ORACLE, ISOLATION, SENS and NOISE."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from privet.audit import noise, oracle
from privet.audit.checks import Check, certain
from privet.audit.observations import Noise
from privet.audit.production import Recorder
from privet.batches import Batched
from privet.clipping import Projected
from privet.gradients import clipped_sum, empty_sum, per_example_gradients, trainable
from privet.gradients.interception import LossFunction
from privet.gradients.probe import probe
from privet.gradients.trees import belongs, examples_in, rows
from privet.plan import Plan
from privet.sampling import FullBatch, Indices
from privet.training import Training
from privet.values import ClippedSum

# Of double precision on models of some depth, and of the shrinking of every contribution.
_TOLERANCE, _SLACK = 1e-7, 1 + 1e-6
_EXAMPLES = 8  # of a batch that are looked at
_PROBED = 3
_COORDINATES = 1 << 20  # of a model whose noise is looked at

# What one example's real numbers can be.
_CONTENTS: dict[str, Callable[[Tensor], object]] = {
    "as it is": lambda leaf: None,
    "NaN": lambda leaf: leaf.fill_(torch.nan),
    "infinite in one place": lambda leaf: leaf.view(-1)[:1].fill_(torch.inf),
    "zero": lambda leaf: leaf.zero_(),
    "1e20": lambda leaf: leaf.fill_(1e20),
    "a thousand times as large": lambda leaf: leaf.mul_(1e3),
}


@dataclass(frozen=True, eq=False)
class Subject:
    """What is to be trained, to be looked at before.

    Args:
        model: the module; it is copied, not changed.
        loss_fn: (model, batch) → (B,) losses.
        batch: some examples, of which at most eight are looked at; at least two.
        plan: that it is to be trained by, with its noise.
    """

    model: nn.Module
    loss_fn: LossFunction
    batch: Any
    plan: Plan

    @property
    def few(self) -> Any:
        """The examples that are looked at."""
        return rows(self.batch, slice(0, _EXAMPLES))

    @property
    def names(self) -> list[str]:
        """The names of the parameters that are trained."""
        return list(trainable(self.model))

    def steady(self, dtype: torch.dtype | None = None) -> nn.Module:
        """Return a copy in evaluation mode, in which nothing is random, and in another precision if asked."""
        twin = copy.deepcopy(self.model).eval()
        return twin if dtype is None else twin.to(dtype)


def oracle_checks(subject: Subject) -> list[Check]:
    """Return whether per-example gradients, and their clipped sum, are those of plain autograd, one example at a time."""
    model, batch, rule = subject.steady(torch.float64), oracle.cast(subject.few, torch.float64), subject.plan.clipping
    expected = oracle.plain_gradients(model, subject.loss_fn, batch)
    found = per_example_gradients(model, subject.loss_fn, batch)
    result = [_close("gradients are those of plain autograd", oracle.relative_error_per_example(found, expected))]
    if not isinstance(rule, Projected):
        total = clipped_sum(model, subject.loss_fn, batch, rule).tensors
        gradients = {name: total[name] for name in expected}
        error = oracle.relative_error(gradients, oracle.weighted_sum(expected, rule))
        result.append(_close("the clipped sum is that of plain autograd", error))
    return result


def _close(name: str, error: float) -> Check:
    return certain(name, f"relative error {error:.1e}", holds=error <= _TOLERANCE)


def isolation_checks(subject: Subject) -> list[Check]:
    """Return whether an example's gradient is the same with and without others, and nothing of the model changes by itself.

    Raises:
        UnsupportedModelError: it is not, or something does.
    """
    method = probe(subject.model, subject.loss_fn, rows(subject.batch, slice(0, _PROBED)), public=True)
    return [certain("examples leave each other's gradients alone", f"{method!r} computes them", holds=True)]


def sensitivity_checks(subject: Subject) -> list[Check]:
    """Return whether one of these examples, also with contents that no data set should have, moves the sum by what it may."""
    rule = subject.plan.clipping
    if isinstance(rule, Projected):
        return []
    model, batch = subject.steady(torch.float64), oracle.cast(subject.few, torch.float64)

    def summed(content: Any) -> ClippedSum:
        if examples_in(content) == 0:
            return empty_sum(trainable(model), rule)
        return clipped_sum(model, subject.loss_fn, content, rule)

    found = []
    for kind, content in _contents(batch):
        rest = summed(oracle.without(content, 0))
        moved = oracle.moved(summed(content), rest) / rule.sensitivity
        found.append(_within(f"an example that is {kind}", moved))
    twice = rows(batch, torch.tensor([0, *range(examples_in(batch))]))
    found.append(_within("an example that is there twice", oracle.moved(summed(twice), summed(batch)) / rule.sensitivity))
    return found


def _within(name: str, moved: float) -> Check:
    return certain(name, f"moves the sum by {moved:.6g} of what it may", holds=moved <= _SLACK)


def _contents(batch: Any) -> Iterator[tuple[str, Any]]:
    """Yield the batch with every content of its first example; only the first if it holds no real numbers."""
    examples = examples_in(batch)
    for kind, fill in _CONTENTS.items():
        content = pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, batch)
        real = [leaf for leaf in pytree.tree_leaves(content) if belongs(leaf, examples) and leaf.is_floating_point()]
        if real or kind == "as it is":
            for leaf in real:
                fill(leaf[0])
            yield kind, content


def noise_checks(subject: Subject) -> list[Check]:
    """Return whether every parameter of the model gets the plan's noise: of two first steps, less what is summed in them."""
    quiet, *loud = (_first_step(subject, silent=silent) for silent in (True, False, False))
    plan = _everybody(subject, silent=False)
    names = tuple(quiet)
    scales = plan.clipping.noise_scales(names)
    common = float(plan.multipliers()[0] * plan.bound_factors()[0]) * plan.clipping.sensitivity
    each = max(1, _COORDINATES // len(names))
    parts = {
        name: np.stack([((one[name] - quiet[name]).flatten()[:each] / (common * scales.get(name, 1.0))).numpy() for one in loud])
        for name in names
    }
    ends = np.cumsum([part.shape[1] for part in parts.values()]).tolist()
    places = {name: slice(end - part.shape[1], end) for end, (name, part) in zip(ends, parts.items(), strict=True)}
    values = np.concatenate(list(parts.values()), axis=1)
    return noise.checks(Noise(values, np.ones(values.shape, dtype=bool), places))


def _everybody(subject: Subject, *, silent: bool) -> Plan:
    plan, examples = subject.plan, examples_in(subject.few)
    loudness = replace(plan.noise, multiplier=0, non_private=True) if silent else plan.noise
    return replace(
        plan, examples=examples, sampling=FullBatch(), steps=1, noise=loudness, momentum=None, sparsification=None,
        accept_large_delta=True,
    )  # fmt: skip


def _first_step(subject: Subject, *, silent: bool) -> dict[str, Tensor]:
    """Return what the optimizer of a training on these examples is handed, times the batch size."""
    plan, model = _everybody(subject, silent=silent), subject.steady()
    recorder = Recorder(model)
    Training(plan, model, subject.loss_fn, recorder, _Rows(subject.few, plan.unit)).run()
    return {name: steps[0].double() * plan.divisor for name, steps in recorder.handed.items()}


class _Rows(Batched):
    def __init__(self, batch: Any, unit: str) -> None:
        self._batch, self.privacy_unit = batch, unit

    def __len__(self) -> int:
        return examples_in(self._batch)

    def read(self, indices: Indices) -> Any:
        return rows(self._batch, torch.from_numpy(indices))
