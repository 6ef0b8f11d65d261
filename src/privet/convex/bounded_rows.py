"""Rows of features with bounded norm: a constant is appended for the intercept, and longer rows are scaled down."""

from __future__ import annotations

__all__ = ["bound_rows", "read_rows"]

import torch
from torch import Tensor

from privet.errors import InvalidArgumentError

# Rows end up shorter than 1 by this share, so that no rounding error leaves a row longer than 1.
_MARGIN = 1e-6
CHUNK = 2048


def bound_rows(inputs: Tensor, radius: float, intercept: float) -> Tensor:
    """Return rows (x, c)/R of features and intercept, scaled down where their norm exceeds 1; shape (N, D + 1).

    For classification, scaling a row down changes no prediction, because it scales all scores of the row alike.

    Args:
        inputs: (N, …) features, which are flattened.
        radius: R > 0, the largest norm that is left unchanged.
        intercept: c ≥ 0, appended to every row.

    Guarantee:
        Each row depends on one example alone. Its norm is at most 1 in exact arithmetic. A row that is not finite becomes zero,
        which contributes nothing.

    >>> bound_rows(torch.tensor([[3.0], [0.0]]), radius=2.0, intercept=1.0)
    tensor([[0.9487, 0.3162],
            [0.0000, 0.5000]])
    """
    rows = inputs.flatten(1)
    whole = torch.cat((rows, rows.new_full((len(rows), 1), intercept)), dim=1) / radius
    # The largest feature is divided out first, so that no square overflows.
    largest = whole.abs().amax(1, keepdim=True).clamp_min(1.0)
    norms = (whole / largest).norm(dim=1, keepdim=True) * largest
    bounded = whole / norms.clamp_min(1.0) * (1 - _MARGIN)
    return torch.where(bounded.isfinite().all(1, keepdim=True), bounded, torch.zeros_like(bounded))


def read_rows(inputs: Tensor, usable: Tensor, examples: int, features: int, radius: float, intercept: float) -> Tensor:
    """Return the bounded rows of a data set in float64; rows that are not usable, (N,) bool, become zero."""
    shape = (len(inputs), inputs[:1].numel())
    if shape != (examples, features) or len(usable) != examples:
        raise InvalidArgumentError("the shape of the data", shape, f"that of the plan, {(examples, features)}")
    rows = torch.zeros(examples, features + 1, dtype=torch.float64, device=inputs.device)
    for start in range(0, examples, CHUNK):
        part = slice(start, start + CHUNK)
        bounded = bound_rows(inputs[part].double(), radius, intercept)
        rows[part] = torch.where(usable[part, None], bounded, torch.zeros_like(bounded))
    return rows
