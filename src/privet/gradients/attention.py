"""Multi-head attention as torch's own module computes it: projections that are linear maps, and a product without parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.gradients.elementwise import per_example_view
from privet.gradients.layout import Layout
from privet.gradients.linear import product
from privet.gradients.recorder import Recorder


def _followed_part(recorder: Recorder, parameter: Tensor, start: int, stop: int) -> Tensor:
    """Return some rows of a parameter, followed if it is."""
    rows = parameter[start:stop]
    if recorder.follows(parameter):
        recorder.note_derived(rows, [parameter])
    return rows


def _apply(recorder: Recorder, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the linear map, followed if a parameter of it is."""
    if recorder.follows(weight) or recorder.follows(bias):
        found = product(recorder, x, weight, bias, transposed=False, layout=Layout(recorder.examples, 0))
        if found is not None:
            return found
    return F.linear(x, weight, bias)


def _row_for_each(recorder: Recorder, row: Tensor) -> Tensor:
    """Return a (1, 1, d) parameter as (B, 1, d)."""
    view = per_example_view(recorder, row, 3, Layout(recorder.examples, 0)) if recorder.follows(row) else None
    return row.expand(recorder.examples, 1, -1) if view is None else view


def _packed(
    recorder: Recorder, query: Tensor, key: Tensor, value: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, ...]:
    """Return the three projections by one matrix, in as few products as the inputs allow."""
    width = query.shape[-1]
    if query is key and key is value:
        return _apply(recorder, query, weight, bias).chunk(3, -1)

    def part(x: Tensor, first: int, last: int) -> Tensor:
        rows = _followed_part(recorder, weight, first * width, last * width)
        return _apply(recorder, x, rows, None if bias is None else _followed_part(recorder, bias, first * width, last * width))

    if key is value:
        return part(query, 0, 1), *part(key, 1, 3).chunk(2, -1)
    return part(query, 0, 1), part(key, 1, 2), part(value, 2, 3)


def _bias_of_scores(
    attn_mask: Tensor | None, key_padding_mask: Tensor | None, batch: int, heads: int, dtype: torch.dtype
) -> Tensor | None:
    """Return what is added to the scores, broadcastable to (B, heads, L, S)."""
    total = None
    for mask, shape in ((attn_mask, (-1, heads)), (key_padding_mask, None)):
        if mask is None:
            continue
        if mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -math.inf)
        if shape is None:
            mask = mask[:, None, None, :]
        elif mask.dim() == 3:
            mask = mask.view(batch, heads, *mask.shape[1:])
        total = mask if total is None else total + mask
    return total


def multi_head_attention(
    recorder: Recorder,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Any:
    """Follow `F.multi_head_attention_forward`, whose tensors are (T, B, d); None for its rarer options."""
    rare = add_zero_attn or static_k is not None or static_v is not None or (is_causal and attn_mask is None)
    if rare or query.dim() != 3 or query.shape[1] != recorder.examples:
        return None
    first = {id(x): x.transpose(0, 1) for x in (query, key, value)}
    q, k, v = (first[id(x)] for x in (query, key, value))
    if use_separate_proj_weight:
        biases: Any = (None,) * 3
        if in_proj_bias is not None:
            width = query.shape[-1]
            biases = [_followed_part(recorder, in_proj_bias, i * width, (i + 1) * width) for i in range(3)]
        weights = (q_proj_weight, k_proj_weight, v_proj_weight)
        q, k, v = (_apply(recorder, x, w, b) for x, w, b in zip((q, k, v), weights, biases, strict=True))  # type: ignore[arg-type]
    else:
        assert in_proj_weight is not None
        q, k, v = _packed(recorder, q, k, v, in_proj_weight, in_proj_bias)
    if bias_k is not None and bias_v is not None:
        k, v = (torch.cat([x, _row_for_each(recorder, row)], 1) for x, row in ((k, bias_k), (v, bias_v)))
        attn_mask, key_padding_mask = (None if mask is None else F.pad(mask, (0, 1)) for mask in (attn_mask, key_padding_mask))
    q, k, v = (x.view(*x.shape[:2], num_heads, -1).transpose(1, 2) for x in (q, k, v))
    bias = _bias_of_scores(attn_mask, key_padding_mask, len(q), num_heads, q.dtype)
    dropped = dropout_p if training else 0.0
    weights_out = None
    if need_weights:
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        attention = F.dropout(torch.softmax(scores if bias is None else scores + bias, -1), dropped)
        heads = attention @ v
        weights_out = attention.mean(1) if average_attn_weights else attention
    else:
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropped)
    out = _apply(recorder, heads.transpose(1, 2).flatten(2), out_proj_weight, out_proj_bias)
    return out.transpose(0, 1), weights_out


def _product(
    recorder: Recorder, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, *rest: Any, **options: Any
) -> Tensor | None:
    """Follow the mask of `F.scaled_dot_product_attention`, where models add a learned bias of relative positions."""
    if attn_mask is None or not recorder.follows(attn_mask) or any(map(recorder.follows, (query, key, value))):
        return None
    layout = recorder.layout(query, 3)
    view = None if layout is None else per_example_view(recorder, attn_mask, query.dim(), layout)
    if view is None:
        return None
    result: Tensor = F.scaled_dot_product_attention(query, key, value, view, *rest, **options)
    recorder.pass_on(query, result)
    return result


HANDLERS: dict[Any, Callable[..., Any]] = {
    F.multi_head_attention_forward: multi_head_attention,
    F.scaled_dot_product_attention: _product,
}
