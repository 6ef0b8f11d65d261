"""The reference for every method: the library's plain loop, and an independent implementation of its rules."""

from __future__ import annotations

import torch
from torch.utils import _pytree as pytree

from privet.audit._program.oracle import (
    SHRINK,
    distance,
    moved,
    norms_of,
    plain_gradients,
    relative_error,
    size,
    without,
)
from privet.audit._program.oracle import relative_error_per_example as relative_error_of_any

__all__ = [
    "FORMULAS",
    "SHRINK",
    "distance",
    "moved",
    "norms_of",
    "plain_clipped_sum",
    "plain_gradients",
    "relative_error",
    "relative_error_per_example",
    "select",
    "size",
    "without",
]


def relative_error_per_example(found, expected):
    """Return the library's relative error; the expected gradient must not vanish, as that of a saturated loss does."""
    assert size(expected) > 0
    return relative_error_of_any(found, expected)


def select(batch, index):
    return pytree.tree_map(lambda leaf: leaf[index], batch)


# Independent implementation of the rules with their usual settings: weights by norm n and bound c, and sensitivity over c.
FORMULAS = {
    "Flat": (lambda n, c: torch.clamp(c / n, max=1.0), 1.0),
    "Automatic": (lambda n, c: c / (n + 0.01), 1.0),
    "Normalize": (lambda n, c: torch.where(n < 1e-12, 0.0, c / n), 1.0),
    "PSAC": (lambda n, c: c / (n + 1e-4 / (n + 1e-4)), 1.0),
    "PSASC": (lambda n, c: c / (0.9 * n + 1e-4 / (n + 1e-4)), 1 / 0.9),
    "Global": (lambda n, c: (n <= c).double(), 1.0),
}


def plain_clipped_sum(gradients, kind, bound, groups=None):
    """Return the clipped sum, with each group of parameters clipped separately; one group by default."""
    groups = groups or [list(gradients)]
    weight, _ = FORMULAS[kind]
    found = {}
    for group in groups:
        weights = weight(norms_of({name: gradients[name] for name in group}), bound / len(groups) ** 0.5)
        found |= {name: SHRINK * torch.einsum("b,b...->...", weights, gradients[name]) for name in group}
    return found
