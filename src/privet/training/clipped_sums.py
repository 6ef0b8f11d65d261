"""Clipped sums of gradients over a whole draw of examples, which is read in physical batches."""

from __future__ import annotations

__all__ = ["ClippedSummer", "StepError", "raise_hidden"]

import contextlib
import os
from collections.abc import Iterator
from typing import NoReturn

import torch
from torch import nn

from privet._utils.randomness import preserve_generators
from privet.clipping import Projected, Rule
from privet.clipping.clipped_sum import ClippedSum
from privet.errors import USER_ERRORS, LedgerError, PrivetError
from privet.gradients.core.losses import LossFunction
from privet.gradients.core.private import hide_warnings, hold_signals, raise_interrupt
from privet.gradients.core.randomness import make_seed_source
from privet.gradients.engine import Engine, PartialSums
from privet.gradients.per_example_momentum import Averages
from privet.gradients.projection.directions import Directions
from privet.gradients.projection.subspace import Subspace
from privet.reading.batches import Group, PhysicalBatch, move_groups
from privet.sampling import Words
from privet.sparsification import Masks
from privet.training.state.iterates import PastIterates

_SHOW = "PRIVET_SHOW_STEP_ERRORS"


class StepError(PrivetError):
    """A step failed because of a fault in the library, the machine or a reading process."""


class ClippedSummer:
    """Computes clipped sums of a model's gradients over whole draws; an example whose own computation raises contributes zero.

    Args:
        model, loss_fn: model and loss that are differentiated.
        parameters: name → trainable parameter.
        method: how per-example gradients are computed.
        words: source of random words, for projections.
        seeds: source of random words for the model's own random numbers.
        iterates: past parameters whose gradients are added.
        averages: averages of each example's gradients over the steps, if those are clipped; None otherwise.
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
        self._engine = Engine(model, loss_fn, parameters, method, seeds=make_seed_source(seeds), skip_errors=True)
        self._device = next(iter(parameters.values())).device

    @property
    def method(self) -> str:
        """How per-example gradients are computed."""
        return self._engine.method

    @method.setter
    def method(self, method: str) -> None:
        self._engine.method = method

    def sum_draw(
        self,
        reading: Iterator[tuple[PhysicalBatch, list[Group]]],
        rule: Rule,
        masks: Masks | None,
        subspace: Subspace | None = None,
    ) -> ClippedSum:
        """Return the clipped sum over one whole draw; later draws are not read.

        Args:
            reading: physical batches with the groups of their examples; an empty batch has no groups.
            rule: clipping rule of the step.
            masks: masks of the step, or None.
            subspace: subspace of the step, for `clipping.GEP`; or None.

        Raises:
            StepError: something other than an example's own computation failed, such as a reading process that was killed. The
                message does not depend on the draw.
        """
        total: ClippedSum | None = None
        # The same directions for the whole step: directions per physical batch would depend on which examples share one.
        directions = Directions(self._words(4)) if isinstance(rule, Projected) else None
        last = False
        while not last:
            # Signals wait for the end of a physical batch, not of the step: a draw may have many.
            with hold_signals(), hide_warnings(), _explain_failures(), preserve_generators():
                summed, last = self._sum_next(reading, rule, masks, directions, subspace)
                total = summed if total is None else total.join(summed)
        assert total is not None
        return total

    def _sum_next(
        self,
        reading: Iterator[tuple[PhysicalBatch, list[Group]]],
        rule: Rule,
        masks: Masks | None,
        directions: Directions | None,
        subspace: Subspace | None,
    ) -> tuple[ClippedSum, bool]:
        """Return the clipped sum over the next physical batch, and whether it is the last of the draw.

        A function of its own, so that examples are gone while warnings are hidden: their `__del__` may warn or raise.
        """
        physical, groups = next(reading, (None, []))
        if physical is None:
            raise LedgerError("the reader of the data set ended early; the step counts as spent")
        return self._sum_batch(physical, groups, rule, masks, directions, subspace), physical.last

    def _sum_batch(
        self,
        physical: PhysicalBatch,
        groups: list[Group],
        rule: Rule,
        masks: Masks | None,
        directions: Directions | None,
        subspace: Subspace | None,
    ) -> ClippedSum:
        summed = self._parameters if subspace is None else subspace.released
        partial_sums = PartialSums.empty(summed, rule, len(physical.indices))
        past = self._iterates.past()
        for group in move_groups(groups, self._device):
            examples = group.examples
            if self._averages is None:
                found = self._engine.clipped_sum(examples, rule, masks=masks, past=past, directions=directions, subspace=subspace)
            else:
                indices = torch.from_numpy(physical.indices)[group.positions]
                found = self._averages.clipped_sum(self._engine, examples, rule, indices, masks=masks, subspace=subspace)
            if found.sums:
                partial_sums.add(group.positions, found.sums, found.norms)
        return partial_sums.to_clipped_sum(summed, rule, physical.part, masks)


@contextlib.contextmanager
def _explain_failures() -> Iterator[None]:
    """Return a context in which any failure but an interrupt becomes a StepError that tells nothing about the draw."""
    try:
        yield
    except PrivetError:
        raise
    except USER_ERRORS as error:
        raise_hidden(error, "the sum of a step could not be computed, and the step counts as spent")


def raise_hidden(error: BaseException, what: str) -> NoReturn:
    """Raise a StepError that says what failed, and nothing of an error that may tell of the draw.

    An interrupt is raised as it is; so is any error if the user asks for it, for public data.
    """
    raise_interrupt(error)
    if os.environ.get(_SHOW):
        raise error
    raise StepError(
        f"{what}. Details may contain private values and are not shown; for public data, set {_SHOW}=1 in the environment to "
        "see them"
    ) from None
