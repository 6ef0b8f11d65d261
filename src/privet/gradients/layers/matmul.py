"""Products that are linear maps in another form: matmul, addmm, einsum, bilinear forms, and frozen weights in 4 bits (QLoRA).

Axes: as for linear maps, x is (B, …, d) and a weight (d, p) or (p, d).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.gradients.core.handlers import register_handler
from privet.gradients.core.recorder import Recorder
from privet.gradients.layers.linear import follow_linear, is_complex

_BLOCK = 256  # scales per block, where bitsandbytes quantises the scales too


@register_handler(torch.matmul, torch.mm, torch.mv, Tensor.matmul, Tensor.mm, Tensor.mv, Tensor.__matmul__)
def matmul(recorder: Recorder, input: Tensor, other: Tensor) -> Tensor | None:
    """Follow `x @ W`, `x @ v`, `W @ x` and `v @ x`; None for complex numbers."""
    if (recorder.follows(other) and recorder.is_shared(input)) or (recorder.follows(input) and recorder.is_shared(other)):
        return None
    if is_complex(input, other):
        return None
    if recorder.follows(other) and other.dim() == 2:
        return follow_linear(recorder, input, other, None, transposed=True)
    if recorder.follows(other) and other.dim() == 1:
        return follow_linear(recorder, input, recorder.view(other, other[None]), None, transposed=False).squeeze(-1)
    if recorder.follows(input) and input.dim() == 2 and other.dim() >= 3:
        return follow_linear(recorder, other.mT, input, None, transposed=False).mT
    if recorder.follows(input) and input.dim() == 2 and other.dim() == 2:
        return follow_linear(recorder, other, input, None, transposed=False)
    return None


@register_handler(Tensor.__rmatmul__)
def reversed_matmul(recorder: Recorder, input: Tensor, other: Tensor) -> Tensor | None:
    """Follow `other @ input`."""
    found: Tensor | None = matmul(recorder, other, input)
    return found


@register_handler(torch.addmm, Tensor.addmm)
def addmm(recorder: Recorder, input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor | None:
    """Follow `b + x @ W`; None for factors, complex numbers, and a b that torch broadcasts."""
    plain = recorder.is_shared(input, mat2) and not recorder.is_shared(mat1)
    if not plain or beta != 1 or alpha != 1 or input.shape != mat2.shape[1:] or is_complex(mat1, mat2):
        return None
    return follow_linear(recorder, mat1, mat2, input, transposed=True)


@register_handler(torch.einsum)
def einsum(recorder: Recorder, equation: Any, *operands: Any) -> Tensor | None:
    """Follow an einsum of a real followed weight and a real per-example tensor whose only common indices are contracted."""
    operands = tuple(operands[0]) if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
    if not isinstance(equation, str):
        return None
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    plain = all(len(set(term)) == len(term) and term.isalpha() for term in (*terms, out))
    if not arrow or len(terms) != 2 or not plain or [recorder.follows(x) for x in operands].count(True) != 1:
        return None
    which = 0 if recorder.follows(operands[0]) else 1
    weight, x, of_weight, of_x = operands[which], operands[1 - which], terms[which], terms[1 - which]
    letters = {*of_weight, *of_x}
    if (
        recorder.is_shared(x)
        or is_complex(weight, x)
        or any((letter in of_weight) + (letter in of_x) + (letter in out) != 2 for letter in letters)
    ):
        return None
    contracted = [letter for letter in of_x if letter in of_weight]
    kept, made = ([letter for letter in term if letter in out] for term in (of_x, of_weight))
    sizes = dict(zip(of_weight + of_x, (*weight.shape, *x.shape[1:]), strict=True))
    width = math.prod(sizes[letter] for letter in contracted)
    rows = weight.permute([of_weight.index(letter) for letter in (*made, *contracted)]).reshape(-1, width)
    order = [of_x.index(letter) + 1 for letter in (*kept, *contracted)]
    vectors = x.permute(0, *order).reshape(len(x), *(sizes[letter] for letter in kept), width)
    result = follow_linear(recorder, vectors, recorder.view(weight, rows), None, transposed=False)
    found = [*kept, *made]
    result = result.reshape(len(x), *(sizes[letter] for letter in found))
    return result.permute(0, *(found.index(letter) + 1 for letter in out))


@register_handler(F.bilinear, torch.bilinear)
def bilinear(recorder: Recorder, input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
    """Follow `F.bilinear` as a linear map of the outer products of its inputs; None for complex numbers."""
    if recorder.is_shared(input1) or recorder.is_shared(input2) or not recorder.is_shared(weight, bias):
        return None
    if is_complex(input1, input2, weight):
        return None
    if bias is not None and bias.shape != weight.shape[:1]:
        return None
    outer = (input1.unsqueeze(-1) * input2.unsqueeze(-2)).flatten(-2)
    return follow_linear(recorder, outer, recorder.view(weight, weight.flatten(1)), bias, transposed=False)


@register_handler("bitsandbytes::gemm_4bit")
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
