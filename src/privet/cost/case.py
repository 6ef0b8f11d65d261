"""One model and batch whose private step is compared with a plain one."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from privet._utils.tensors import total_size
from privet.clipping import Rule
from privet.cost.memory import peak_of
from privet.cost.steps import KINDS, TimedStep, alternating, paired_ratio, step_of
from privet.gradients import trainable
from privet.gradients.core.examples import count_examples, select_examples
from privet.gradients.core.losses import LossFunction

_WARM_UP_EXAMPLES = 2


@dataclass(frozen=True)
class Case:
    """A model with a batch."""

    name: str
    model: nn.Module
    loss_fn: LossFunction
    batch: Any
    probe_batch: Any = None  # as for `privet.Reading`

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return next(self.model.parameters()).device

    def step(self, kind: str, rule: Rule) -> AbstractContextManager[TimedStep]:
        """Return a context with a step of one kind."""
        return step_of(kind, self.model, self.loss_fn, self.batch, rule, self.probe_batch)

    def time(self, rule: Rule, rounds: int) -> dict[str, list[float]]:
        """Return kind of step → seconds in each round."""
        with ExitStack() as steps:
            return alternating({kind: steps.enter_context(self.step(kind, rule)) for kind in KINDS}, rounds)

    def measure_peak(self, kind: str, rule: Rule) -> float:
        """Return the peak memory of a kind of step in this process, in MB."""
        warm_up = replace(self, batch=select_examples(self.batch, slice(_WARM_UP_EXAMPLES)))
        with warm_up.step("plain", rule) as step, self.step(kind, rule) as measured:
            step()  # memory that torch allocates at first use belongs to no kind of step
            return peak_of(measured, device=self.device)

    def summarize(self, times: Mapping[str, Sequence[float]], peaks: Mapping[str, float]) -> dict[str, Any]:
        """Return name → number for sizes, median times and their ratios to a plain step, and peaks of memory."""
        plain, *others = KINDS
        return {
            "model": self.name,
            "parameters": total_size(trainable(self.model).values()),
            "batch_size": count_examples(self.batch),
            "plain_ms": 1e3 * statistics.median(times[plain]),
            "ratios": {kind: paired_ratio(times[kind], times[plain]) for kind in others},
            "peak_mb": dict(peaks),
        }
