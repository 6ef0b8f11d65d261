"""Gradient norms estimated from random projections, with one forward-mode product per projection."""

from __future__ import annotations

__all__ = ["estimated_norms"]

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from privet.errors import count
from privet.gradients.core.examples import split_batch
from privet.gradients.core.losses import LossFunction
from privet.gradients.methods.ghost import Program
from privet.gradients.parameters import trainable
from privet.gradients.projection.forward_mode import directional_derivatives


def estimated_norms(
    model: nn.Module, loss_fn: LossFunction, batch: Any, projections: int, *, generator: torch.Generator | None = None
) -> Tensor:
    """Return an estimate of every example's gradient norm from random projections (Johnson–Lindenstrauss).

    For a direction v with independent standard normal entries, ⟨gᵢ, v⟩ is normal with variance ‖gᵢ‖². One forward-mode product
    computes it for the whole batch, with the memory of a forward pass and for any layers.

    Args:
        model: any module whose functions have forward-mode derivatives; nothing is written to it.
        loss_fn: (model, batch) → (B,) losses, one per example.
        batch: B examples along the first dimension of its tensors.
        projections: r ≥ 1; each costs about two forward passes.
        generator: of the directions, on the CPU; torch's global generator if None.

    Returns:
        (B,) float64, √(1/r · Σᵣ ⟨gᵢ, vᵣ⟩²): ‖gᵢ‖ times √(χ²ᵣ/r), so the relative standard deviation is about 1/√(2r).

    Guarantee:
        None by itself: an estimate can be too small, so a sum clipped by estimates has unbounded sensitivity.

    Source:
        Bu et al. 2021, "Fast and Memory Efficient Differentially Private-SGD via JL Projections".

    >>> layer = nn.Linear(3, 1, bias=False)
    >>> x = torch.tensor([[3.0, 0.0, 4.0], [0.0, 0.0, 0.0]])
    >>> norms = estimated_norms(layer, lambda model, batch: model(batch)[:, 0], x, projections=2000)
    >>> bool(abs(norms[0] - 5) < 1), float(norms[1])
    (True, 0.0)
    """
    count("projections", projections)
    parameters, examples = trainable(model), split_batch(batch)
    program = Program(model, loss_fn, parameters)
    squares = [
        directional_derivatives(program, examples, parameters, direction).square_()
        for direction in _draw_directions(parameters, projections, generator)
    ]
    return torch.stack(squares).mean(0).sqrt_()


def _draw_directions(
    parameters: Mapping[str, Tensor], projections: int, generator: torch.Generator | None
) -> Iterator[Mapping[str, Tensor]]:
    for _ in range(projections):
        yield {
            name: torch.randn(p.shape, generator=generator, dtype=p.dtype, device="cpu").to(p.device)
            for name, p in parameters.items()
        }
