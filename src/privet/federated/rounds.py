"""Rounds: what a server tells its clients, and the clipped sum of what they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from privet.clipping import Rule
from privet.clipping.clipped_sum import BatchSlice, ClippedSum
from privet.gradients.core.per_example import DenseGrad, PerExampleGrad, WrappedGrad
from privet.gradients.engine import Clipper, RunningSum
from privet.gradients.masking.masks import prepare_masks
from privet.gradients.methods.tape import Tape, clip
from privet.sampling import Indices
from privet.sparsification.drawing import Masks, Selection


@dataclass(frozen=True, eq=False)
class Round:
    """What the server tells the clients of a round: only settings and released values, so it is public.

    Args:
        number: number of the round, from 1.
        parameters: name → trained parameter at the start of the round.
        rule: clipping rule of the round.
        masks: name → True where a coordinate is kept; None to keep all.
        selection: the three numbers from which clients build random masks, `selection.masks(shapes)`; None for other masks.
    """

    number: int
    parameters: Mapping[str, Tensor]
    rule: Rule
    masks: Masks | None = None
    selection: Selection | None = None


class Population(Protocol):
    """Clients that can be reached by their numbers, 0 … clients − 1: in this process, or through an engine.

    Attributes:
        clients: public number of clients N.
        privacy_unit: whose data one client holds, in the terms of `Plan.unit`, such as "one user".
        program: what every client runs. Its name and numbers are compared when a run is resumed.
    """

    clients: int
    privacy_unit: str
    program: Callable[..., Any]

    def gather(self, told: Round, cohort: Indices) -> ClippedSum:
        """Return the clipped sum of the cohort's updates, to which a client that does not answer contributes zero.

        Args:
            told: the round.
            cohort: numbers of the drawn clients, all different. Private.
        """


@dataclass(frozen=True, eq=False)
class _Weighted(WrappedGrad):
    """Updates with a factor in [0, 1] for each client in their weighted sum; the norms, which are clipped, do not have it."""

    factors: Tensor

    def materialize(self) -> Tensor:
        return self.inner.materialize()

    def squared_norms(self) -> Tensor:
        return self.inner.squared_norms()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return Σₖ wₖ·factorₖ·Δₖ."""
        return self.inner.weighted_sum(weights * self.factors.to(weights))

    def index_select(self, index: Tensor | slice) -> _Weighted:
        return replace(self, inner=self.inner.index_select(index), factors=self.factors[index])

    def double(self) -> _Weighted:
        return replace(self, inner=self.inner.double())


def contribution(
    deltas: Mapping[str, Tensor], told: Round, weights: Tensor | Sequence[float] | None = None, *, start: int = 0
) -> ClippedSum:
    """Return Σₖ wₖ·clip(m∘Δₖ) over the updates of K clients; on a client's own device, K is 1.

    An update takes the place of a per-example gradient, so any rule clips it, by the code that clips gradients.

    Args:
        deltas: name → (K, *shape) pseudo-gradients, parameters at the start of the round minus those after local training.
        told: the round.
        weights: (K,) weights of the clients, limited to [0, 1]; None for equal weights. A weight may depend on a client's own
            data, such as their number.
        start: position of the first of these clients in the cohort; sums over adjacent positions can be joined.

    Guarantee:
        Each client moves the sum by at most the rule's sensitivity: its clipped update has at most this length, by the rule, and
        a weight of at most 1 cannot make it longer. Statistics of the rule are not weighted. An update that is not finite
        contributes nothing but its statistics, which the sensitivity covers for any norm.

    Source:
        McMahan et al. 2018, "Learning Differentially Private Recurrent Language Models", the estimator with a fixed denominator;
        Reddi et al. 2021, "Adaptive Federated Optimization" (pseudo-gradients).

    >>> from privet.clipping import Flat
    >>> told = Round(1, {"w": torch.zeros(2)}, Flat(bound=1.0))
    >>> found = contribution({"w": torch.tensor([[3.0, 4.0], [0.3, 0.4]])}, told)
    >>> [round(value, 4) for value in found.tensors["w"].tolist()]
    [0.9, 1.2]
    """
    clients = len(next(iter(deltas.values())))
    grads: dict[str, PerExampleGrad] = {name: DenseGrad(deltas[name]) for name in told.parameters}
    tape = Tape(clients, told.parameters, grads)
    if told.masks is not None and clients:
        tape = tape.mask(prepare_masks(told.masks, told.parameters))
    if weights is not None:
        factors = torch.as_tensor(weights, dtype=torch.float64, device=tape.device).nan_to_num(0.0).clamp(0.0, 1.0)
        tape = Tape(clients, told.parameters, {name: _Weighted(grad, factors) for name, grad in tape.grads.items()})
    total = RunningSum(Clipper.of(told.parameters, told.rule, told.masks))
    if clients:
        total.add(torch.arange(clients, device="cpu"), *clip(tape, told.rule, total.clipper.groups))
    return total.to_clipped_sum(clients, BatchSlice(told.number, start, start + clients))


def no_contributions(told: Round) -> ClippedSum:
    """Return the sum over no clients: zeros, which are noised and accounted for like any other sum."""
    return contribution({name: tensor.new_zeros(0, *tensor.shape) for name, tensor in told.parameters.items()}, told)
