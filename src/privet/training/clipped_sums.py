"""From one draw of examples to its clipped sum, whatever the size of the physical batches and the groups in them."""

from __future__ import annotations

__all__ = ["ClippedSummer", "StepError"]

import os
from collections.abc import Iterator

import torch
from torch import nn

from privet._utils.randomness import preserve_generators
from privet.clipping import Projected, Rule
from privet.clipping.clipped_sum import ClippedSum
from privet.errors import LedgerError, PrivetError
from privet.gradients.core.losses import LossFunction
from privet.gradients.engine import Engine, PartialSums
from privet.gradients.per_example_momentum import Averages
from privet.gradients.projection.directions import Directions
from privet.reading.batches import Group, PhysicalBatch
from privet.sampling import Words
from privet.sparsification import Masks
from privet.training.state.iterates import PastIterates

_SHOW = "PRIVET_SHOW_STEP_ERRORS"


class StepError(PrivetError):
    """A step failed by a fault of the library, the machine or a reading process."""


class ClippedSummer:
    """Takes clipped sums of a model's gradients over whole draws; an example whose own computation raises contributes zero.

    Args:
        model, loss_fn: what is differentiated.
        parameters: name → trainable parameter.
        method: how per-example gradients are computed.
        words: source of random words, for projections.
        seeds: source of random words for what the model draws.
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
        seeds: Words,
        iterates: PastIterates,
        averages: Averages | None,
    ) -> None:
        self._words, self._iterates, self._averages = words, iterates, averages
        self._parameters = parameters
        self._engine = Engine(model, loss_fn, parameters, method, seeds=lambda: int(seeds(1)[0]) >> 1, skip_errors=True)
        self._device = next(iter(parameters.values())).device

    @property
    def method(self) -> str:
        """How per-example gradients are computed."""
        return self._engine.method

    @method.setter
    def method(self, method: str) -> None:
        self._engine.method = method

    def sum_draw(self, reading: Iterator[tuple[PhysicalBatch, list[Group]]], rule: Rule, masks: Masks | None) -> ClippedSum:
        """Return the clipped sum over one whole draw, read in physical batches; what comes after it is left unread.

        Args:
            reading: physical batches with the groups of their examples; none for an empty one.
            rule: of the step.
            masks: of the step.

        Raises:
            StepError: something failed that is no example's own computation, such as a reading process that was killed; it tells
                nothing of the draw.
        """
        try:
            return self._sum_draw(reading, rule, masks)
        except PrivetError:
            raise
        except Exception as error:
            if os.environ.get(_SHOW):
                raise
            raise StepError(
                f"the sum of a step could not be computed ({type(error).__name__}); the step counts. What else is known of it "
                f"may hold "
                f"private values and is not told: on data that anybody may see, {_SHOW}=1 in the environment shows it"
            ) from None

    def _sum_draw(self, reading: Iterator[tuple[PhysicalBatch, list[Group]]], rule: Rule, masks: Masks | None) -> ClippedSum:
        total: ClippedSum | None = None
        # One example must not change the directions of another, so they are the step's and not those of a physical batch.
        directions = Directions(self._words(4)) if isinstance(rule, Projected) else None
        with preserve_generators():
            for physical, groups in reading:
                summed = self._sum_batch(physical, groups, rule, masks, directions)
                total = summed if total is None else total.join(summed)
                if physical.last:
                    return total
        raise LedgerError("the reader of the data set ended early; the step is counted")

    def _sum_batch(
        self, physical: PhysicalBatch, groups: list[Group], rule: Rule, masks: Masks | None, directions: Directions | None
    ) -> ClippedSum:
        partial_sums = PartialSums.empty(self._parameters, rule, len(physical.indices))
        past = self._iterates.past()
        for group in groups:
            examples = group.examples.to(self._device)
            if self._averages is None:
                found = self._engine.clipped_sum(examples, rule, masks=masks, past=past, directions=directions)
            else:
                indices = torch.from_numpy(physical.indices)[group.positions]
                found = self._averages.clipped_sum(self._engine, examples, rule, indices, masks=masks)
            if found.sums:
                partial_sums.add(group.positions, found.sums, found.norms)
        return partial_sums.to_clipped_sum(self._parameters, rule, physical.part, masks)
