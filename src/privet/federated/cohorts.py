"""Cohorts: the draws of a plan as clients, and the sums that a population gathers from them."""

from __future__ import annotations

__all__ = ["CohortSummer", "Cohorts"]

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from privet.clipping import Rule
from privet.clipping.clipped_sum import ClippedSum
from privet.errors import USER_ERRORS, InvalidArgumentError
from privet.federated.rounds import Population, Round, no_contributions
from privet.plan import Plan
from privet.reading.batches import BatchDataset
from privet.sampling import Indices
from privet.sparsification import Random
from privet.sparsification.drawing import Masks, Selection, total
from privet.training.loop import Batches, raise_hidden


class Cohorts(BatchDataset):
    """The clients of a population as a data set of their numbers: the server reads nothing else of them."""

    row_wise = True

    def __init__(self, population: Population) -> None:
        self._clients, self.privacy_unit = population.clients, population.privacy_unit

    def __len__(self) -> int:
        """Return the number of clients."""
        return self._clients

    def read(self, indices: Indices) -> Any:
        """Return the numbers of these clients, (B,)."""
        return torch.from_numpy(indices)


class CohortSummer:
    """Asks the population for the clipped sum of every round.

    Guarantee:
        What is released is the population's sum under the round's own sensitivity, noise scales and support: the population
        cannot loosen them. Its errors are not shown, because they may depend on who was drawn.
    """

    def __init__(self, plan: Plan, population: Population, parameters: Mapping[str, Tensor]) -> None:
        self._plan, self._population, self._parameters = plan, population, parameters

    def sum_draw(self, batches: Batches, rule: Rule, masks: Masks | None) -> ClippedSum:
        """Return the clipped sum of a cohort; a StepError if the population failed as a whole, and the round counts as spent."""
        ((physical, _),) = batches  # a cohort is read whole
        told = self.tell(physical.part.draw, rule, masks)
        try:
            found = self._population.gather(told, physical.indices)
        except USER_ERRORS as error:  # not even its type may be told: it may be a client's
            raise_hidden(error, "the population could not gather a round, and the round counts as spent")
        return _check_sum(found, told)

    def tell(self, number: int, rule: Rule, masks: Masks | None) -> Round:
        """Return what clients are told in a round: copies of the parameters, the rule, and the masks or how to build them."""
        parameters = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}
        return Round(number, parameters, rule, masks, self._selection(number))

    def _selection(self, number: int) -> Selection | None:
        kind, times = self._plan.sparsification, self._plan.timetable()
        if not isinstance(kind, Random) or times is None:
            return None
        size = total({name: tuple(parameter.shape) for name, parameter in self._parameters.items()})
        return kind.selection(times.block(number), times.blocks, size)


def _check_sum(found: ClippedSum, told: Round) -> ClippedSum:
    """Return the tensors that a population gathered as the sum of a round, whose sensitivity and scales it cannot change."""
    expected = no_contributions(told)
    if not isinstance(found, ClippedSum):
        raise InvalidArgumentError("population.gather", type(found).__name__, "a function that returns a ClippedSum")
    same = {name: tensor.shape for name, tensor in found.tensors.items()} == {
        name: tensor.shape for name, tensor in expected.tensors.items()
    }
    if not same or found.sensitivity > expected.sensitivity or found.noise_scales != expected.noise_scales:
        raise InvalidArgumentError(
            "population.gather", "a function that returns another sum", "one that returns the sum of this round",
            "Build it from contribution() or sum_messages().",
        )  # fmt: skip
    return ClippedSum(found.tensors, expected.sensitivity, expected.norms, None, expected.noise_scales, expected.support)
