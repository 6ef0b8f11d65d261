"""Positions and examples in one dimension: (B, T, …) seen as (B·T, …), as many models do before a product.

Sizes cannot tell (B·T, d) from any other matrix. So only what is seen to be flattened, and then passed through functions that
work on each row, is taken as such.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.gradients.recorder import Recorder


def _flattened(recorder: Recorder, result: object, x: object, *_arguments: Any, **_options: Any) -> None:
    """Note a view or reshape that joins the first two dimensions, or more."""
    if not isinstance(x, Tensor) or not isinstance(result, Tensor):
        return
    if recorder.is_flat(x):
        recorder.pass_on(x, result)
        return
    joined = x.dim() - result.dim() + 1
    if 0 < result.dim() < x.dim() > 2 and result.shape[1:] == x.shape[joined:]:
        recorder.note_flat(result, x, joined)


def _by_row(recorder: Recorder, result: object, *arguments: Any, **_options: Any) -> None:
    """Note the result of a function that works on each row by itself."""
    for argument in arguments:
        if isinstance(argument, Tensor):
            recorder.pass_on(argument, result)


def _moved(recorder: Recorder, result: object, x: Tensor, *dimensions: Any, **options: Any) -> None:
    """Note a transposition or permutation that leaves the first dimension where it is."""
    order = dimensions[0] if len(dimensions) == 1 and not isinstance(dimensions[0], int) else dimensions
    swapped = len(order) == 2 and x.dim() != 2 and 0 not in order and -x.dim() not in order
    if swapped or (len(order) == x.dim() and order[0] == 0):
        recorder.pass_on(x, result)


def _softmax(recorder: Recorder, result: object, x: Tensor, dim: int = 0, *_arguments: Any, **_options: Any) -> None:
    """Note a softmax along a dimension that is not the first."""
    if dim not in (0, -x.dim()):
        recorder.pass_on(x, result)


_FLATTENING = (Tensor.view, Tensor.reshape, Tensor.flatten, torch.reshape, torch.flatten)
_BY_ROW = (
    torch.relu, torch.tanh, torch.sigmoid, Tensor.relu, Tensor.tanh, Tensor.sigmoid, Tensor.to, Tensor.float, Tensor.contiguous,
    F.relu, F.gelu, F.silu, F.tanh, F.sigmoid, F.elu, F.leaky_relu, F.dropout, F.mish, F.softplus, F.hardswish,
    torch.add, torch.mul, Tensor.add, Tensor.mul, Tensor.__add__, Tensor.__mul__, Tensor.__rmul__, Tensor.__radd__,
    torch.pow, Tensor.pow, Tensor.__pow__, torch.matmul, Tensor.matmul, Tensor.__matmul__, F.scaled_dot_product_attention,
)  # fmt: skip

OBSERVERS: dict[Any, Callable[..., None]] = {
    **dict.fromkeys(_FLATTENING, _flattened),
    **dict.fromkeys(_BY_ROW, _by_row),
    **dict.fromkeys((Tensor.transpose, torch.transpose, Tensor.permute, torch.permute), _moved),
    **dict.fromkeys((F.softmax, torch.softmax, Tensor.softmax), _softmax),
}
