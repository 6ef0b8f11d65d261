"""Sketches of parameters and gradients: the check compares several of them, and stores none."""

from __future__ import annotations

import torch
from torch import Tensor

_WIDTH, _ROWS = 1 << 10, 8
_LARGE = 1 << 14


def sketch(large: Tensor) -> Tensor:
    """Return a linear function of a tensor that has about its norm: itself if it is small, else sums with random signs.

    Source:
        Achlioptas 2003, "Database-friendly random projections", theorem 1.1.
    """
    flat = large.flatten()
    if flat.numel() <= _LARGE:
        return flat
    rows = flat.numel() // _WIDTH
    signs = torch.randint(2, (_ROWS, rows), generator=torch.Generator().manual_seed(0), device="cpu").mul_(2).sub_(1)
    head, tail = flat[: rows * _WIDTH], flat[rows * _WIDTH :]
    return torch.cat([(signs.to(flat) @ head.view(rows, _WIDTH)).flatten() / _ROWS**0.5, tail])
