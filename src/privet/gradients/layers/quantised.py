"""Products with frozen weights that bitsandbytes holds in 4 bits, under trained adapters (QLoRA).

Weights that torchao quantises are tensors, whose own implementation runs inside vmap, and need no rule.
"""

from __future__ import annotations

__all__ = ["gemm_4bit"]

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.gradients.core.handlers import register_operator
from privet.gradients.core.recorder import Recorder

_BLOCK = 256  # scales per block, where bitsandbytes quantises the scales too


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
    """Compute x Wᵀ + b for per-example x and a shared 4-bit weight, which bitsandbytes dequantises without any example."""
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

    # Dequantised for each use, so that the graph holds four bits of the weight and not all.
    result = recorder.map(
        A.reshape(-1, A.shape[-1]), (), lambda rows: F.linear(rows, weight(rows.dtype)),
        lambda grad, rows: grad @ weight(grad.dtype), lambda rows, grad: None,
    )  # fmt: skip
    result = result if bias is None else result + bias
    return result.view(*A.shape[:-1], result.shape[-1])
