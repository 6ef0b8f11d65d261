"""From one draw of examples to its clipped sum, whatever the size of the physical batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import nn

from privet.batches import PhysicalBatch, Rows
from privet.clipping import Projected, Rule
from privet.errors import LedgerError
from privet.gradients import METHODS, clipped_sum, empty_sum
from privet.gradients.averages import Averages
from privet.gradients.directions import Directions
from privet.gradients.interception import LossFunction
from privet.gradients.probe import probe, probe_projections
from privet.gradients.recorder import UntraceableError
from privet.gradients.trees import to_device
from privet.momentum import Iterates
from privet.plan import Plan
from privet.sampling import Words
from privet.sparsification import Masks
from privet.training.checks import check_one_entry_each
from privet.values import ClippedSum


def choose_method(
    plan: Plan, model: nn.Module, loss_fn: LossFunction, rows: Rows, *, method: str, probed: bool, probe_batch: Any
) -> str:
    """Return how gradients are to be computed, after checking on made-up examples that clipping means what it promises.

    Args:
        plan: of the training.
        model, loss_fn: what is differentiated.
        rows: of the data set, for the shapes of its examples.
        method: the one that is asked for, or "auto" for the fastest that is found right.
        probed: whether to check; if not, the method is returned as it is.
        probe_batch: a public batch to check with; None to make one up.

    Raises:
        UnsupportedModelError: examples influence each other, or the method is wrong for this model.
    """
    batch = probe_batch
    if batch is None:
        first = np.arange(min(3, plan.examples), dtype=np.int64)
        batch = to_device(rows.read(first), next(model.parameters()).device)
        check_one_entry_each(batch, len(first))
    if not probed:
        return method
    methods, public = tuple(METHODS) if method == "auto" else (method,), probe_batch is not None
    chosen = probe(model, loss_fn, batch, public=public, methods=methods)
    if isinstance(plan.clipping, Projected):
        probe_projections(model, loss_fn, batch, public=public)
    return chosen


class Summing:
    """Clipped sums of a model's gradients over whole draws.

    Args:
        model, loss_fn: what is differentiated.
        parameters: name → trainable parameter.
        method: how per-example gradients are computed.
        words: source of random words, for projections.
        iterates: past parameters whose gradients are added.
        averages: of every example's gradients over the steps, if they are what is clipped.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction,
        parameters: dict[str, nn.Parameter],
        method: str,
        words: Words,
        iterates: Iterates,
        averages: Averages | None,
    ) -> None:
        self.method = method
        self._model, self._loss_fn, self._parameters = model, loss_fn, parameters
        self._words, self._iterates, self._averages = words, iterates, averages
        self._device = next(iter(parameters.values())).device

    def over_draw(self, reading: Iterator[tuple[PhysicalBatch, Any]], rule: Rule, masks: Masks | None) -> ClippedSum:
        """Return the clipped sum over one whole draw, read in physical batches; what comes after it is left unread.

        Args:
            reading: physical batches with their content, None for an empty one.
            rule: of the step.
            masks: of the step.
        """
        total: ClippedSum | None = None
        # One example must not change the directions of another, so they are the step's and not those of a physical batch.
        directions = Directions(self._words(4)) if isinstance(rule, Projected) else None
        for physical, content in reading:
            if content is None:
                summed = empty_sum(self._parameters, rule, physical.part, masks)
            else:
                summed = self._over_batch(to_device(content, self._device), physical, rule, masks, directions)
            total = summed if total is None else total.join(summed)
            if physical.last:
                return total
        raise LedgerError("the reader of the data set ended early; the step is counted")

    def _over_batch(
        self, batch: Any, physical: PhysicalBatch, rule: Rule, masks: Masks | None, directions: Directions | None
    ) -> ClippedSum:
        check_one_entry_each(batch, len(physical.indices))
        arguments = (self._model, self._loss_fn, batch, rule)

        def summed(method: str) -> ClippedSum:
            if self._averages is not None:
                return self._averages.clipped_sum(*arguments, physical.indices, method=method, part=physical.part, masks=masks)
            past = self._iterates.past()
            return clipped_sum(*arguments, method=method, part=physical.part, masks=masks, past=past, directions=directions)

        try:
            return summed(self.method)
        except UntraceableError:
            # A branch that only these examples take; stopping here would tell that they were drawn.
            return summed("loop")
