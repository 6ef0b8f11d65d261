"""Clipping by norms that are estimated from random projections of the gradients that are summed."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from privet.clipping import Projected
from privet.clipping.weighing import weigh
from privet.gradients.combine.sums import SummedGrads
from privet.gradients.core.norms import blocks, full_precision
from privet.gradients.core.per_example import PerExampleGrad
from privet.gradients.methods.tape import LONG, MARGIN, Groups, Tape, sum_precisely
from privet.gradients.projection.directions import Directions


def clip_projected(tape: Tape, rule: Projected, groups: Groups, directions: Directions) -> tuple[dict[str, Tensor], Tensor]:
    """Return the sum weighted by estimated norms, and the estimates, (1, B) float64.

    An example whose estimate or gradient is not finite, or too long to be weighted in float32, contributes exactly zero.
    """
    norms = estimate_norms(tape, rule.projections, directions)[None]
    norms = norms.where(norms < LONG, torch.inf)
    weights = weigh(rule, norms, groups)[0] * MARGIN
    # An estimate does not tell how long the terms of a gradient are, so none is added up without the others of its example.
    formed = replace(tape, grads={name: SummedGrads((grad,)) for name, grad in tape.grads.items()})
    sums = formed.weighted_sum(groups, weights)
    if not bool(torch.stack([value.isfinite().all() for value in sums.values()]).all()):  # the host waits for a device once
        sums = sum_precisely(formed, groups, weights)
    return sums, norms


def estimate_norms(tape: Tape, projections: int, directions: Directions) -> Tensor:
    """Return √(1/r · Σⱼ ⟨gᵢ, vⱼ⟩²), (B,) float64."""
    squares = torch.zeros(tape.examples, dtype=torch.float64, device=tape.device)
    with full_precision(tape.device):
        for drawn in directions.draw(tape.parameters, projections):
            products = [project(grad, drawn[name]) for name, grad in tape.grads.items()]
            squares += sum(products, torch.zeros((), device=tape.device)).square().sum(-1)
    return squares.div_(projections).sqrt_()


def project(grad: PerExampleGrad, directions: Tensor) -> Tensor:
    """Return ⟨gᵢ, vⱼ⟩ for directions (k, *shape), (B, k) float64, from gradients that are formed in blocks and discarded."""
    flat = directions.flatten(1).t()
    products = [
        grad.index_select(block).materialize().detach().reshape(-1, len(flat)) @ flat.to(grad.dtype)
        for block in blocks(grad.examples, grad.numel_per_example, grad.device)
    ]
    return torch.cat(products).double()
