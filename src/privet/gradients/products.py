"""Products that are linear maps written in another way: matmul, addmm, einsum, bilinear forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.gradients.linear import product
from privet.gradients.recorder import Recorder


def _matmul(recorder: Recorder, input: Tensor, other: Tensor) -> Tensor | None:
    """Follow `x @ W`, `x @ v` and `W @ x`."""
    if recorder.follows(other) and other.dim() == 2:
        return product(recorder, input, other, None, transposed=True)
    if recorder.follows(other) and other.dim() == 1:
        scores = product(recorder, input, _derived(recorder, other, other[None]), None, transposed=False)
        return None if scores is None else scores.squeeze(-1)
    if recorder.follows(input) and input.dim() == 2 and other.dim() >= 2:
        columns = product(recorder, other.mT, input, None, transposed=False)
        return None if columns is None else columns.mT
    return None


def _addmm(recorder: Recorder, input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor | None:
    """Follow `b + x @ W`."""
    if beta != 1 or alpha != 1 or input.dim() != 1:
        return None
    return product(recorder, mat1, mat2, input, transposed=True)


def _derived(recorder: Recorder, parameter: Tensor, view: Tensor) -> Tensor:
    recorder.note_derived(view, [parameter])
    return view


def _einsum(recorder: Recorder, equation: str, *operands: Any) -> Tensor | None:
    """Follow an einsum of a followed weight and a tensor of examples that have no index in common but contracted ones."""
    operands = tuple(operands[0]) if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    plain = all(len(set(term)) == len(term) and term.isalpha() for term in (*terms, out))
    if not arrow or len(terms) != 2 or not plain or [recorder.follows(x) for x in operands].count(True) != 1:
        return None
    which = 0 if recorder.follows(operands[0]) else 1
    weight, x, of_weight, of_x = operands[which], operands[1 - which], terms[which], terms[1 - which]
    if any((letter in of_weight) + (letter in of_x) + (letter in out) != 2 for letter in {*of_weight, *of_x}):
        return None
    contracted = [letter for letter in of_x if letter in of_weight]
    kept, made = ([letter for letter in term if letter in out] for term in (of_x, of_weight))
    sizes = dict(zip(of_weight + of_x, (*weight.shape, *x.shape), strict=True))
    width = math.prod(sizes[letter] for letter in contracted)
    rows = weight.permute([of_weight.index(letter) for letter in (*made, *contracted)]).reshape(-1, width)
    vectors = x.permute([of_x.index(letter) for letter in (*kept, *contracted)]).reshape(*(sizes[s] for s in kept), width)
    result = product(recorder, vectors, _derived(recorder, weight, rows), None, transposed=False)
    if result is None:
        return None
    order = [*kept, *made]
    return result.reshape([sizes[letter] for letter in order]).permute([order.index(letter) for letter in out])


def _bilinear(recorder: Recorder, input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
    """Follow `F.bilinear` as a linear map of the outer products of its inputs."""
    if recorder.follows(input1) or recorder.follows(input2):
        return None
    outer = (input1.unsqueeze(-1) * input2.unsqueeze(-2)).flatten(-2)
    matrix = weight.flatten(1)
    if recorder.follows(weight):
        recorder.note_derived(matrix, [weight])
    return product(recorder, outer, matrix, bias, transposed=False)


HANDLERS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__), _matmul),
    **dict.fromkeys((torch.addmm, Tensor.addmm), _addmm),
    torch.einsum: _einsum,
    F.bilinear: _bilinear,
    torch.bilinear: _bilinear,
}
