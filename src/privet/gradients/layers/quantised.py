"""Products with frozen weights that bitsandbytes holds in 4 bits, under trained adapters (QLoRA).

Weights that torchao quantises are tensors, whose own implementation runs inside vmap, and need no rule.
"""

from __future__ import annotations

__all__ = ["gemm_4bit"]

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.gradients.core.handlers import register_operator
from privet.gradients.core.recorder import Recorder

_BLOCK = 256  # scales per block, where bitsandbytes quantises the scales too


class _Product(torch.autograd.Function):
    """Rows times a weight that is dequantised for each use, so that the graph holds four bits of it and not all."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Callable[[torch.dtype], Tensor]) -> Tensor:
        ctx.weight = weight
        return F.linear(rows, weight(rows.dtype))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad @ ctx.weight(grad.dtype), None


@register_operator("bitsandbytes::gemm_4bit")
def gemm_4bit(
    recorder: Recorder,
    A: Tensor,  # noqa: N803
    B: Tensor,  # noqa: N803
    shapeB: Sequence[int],  # noqa: N803
    absmax: Tensor,
    blocksize: int,
    quant_type: str,
    bias: Tensor | None = None,
    absmax_8bit: Tensor | None = None,
    absmax_code: Tensor | None = None,
    absmax_offset: Tensor | None = None,
) -> Tensor | None:
    """Compute x Wᵀ + b for per-example x and a shared 4-bit weight; bitsandbytes dequantises the weight, and sees no example.

    Returns:
        None for a weight or a bias of each example.
    """
    if not recorder.is_shared(B, absmax, bias, absmax_8bit, absmax_code, absmax_offset):
        return None
    operators = torch.ops.bitsandbytes

    def weight(dtype: torch.dtype) -> Tensor:
        scales = absmax
        if absmax_8bit is not None:
            blocks = operators.dequantize_blockwise.default(absmax_8bit, absmax, absmax_code, _BLOCK, torch.float32)
            scales = blocks + absmax_offset
        found: Tensor = operators.dequantize_4bit.default(B, scales, blocksize, quant_type, shapeB, dtype)
        return found

    result: Tensor = _Product.apply(A.reshape(-1, A.shape[-1]), weight)  # type: ignore[no-untyped-call]
    result = result if bias is None else result + bias
    return result.view(*A.shape[:-1], result.shape[-1])
