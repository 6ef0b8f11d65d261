"""Attention: scaled dot-product attention, which has no batching rule in torch, and multi-head attention.

Axes: scaled dot products are of (B, n, heads, L, E) and (B, n, heads, S, E), viewed as (B·n, heads, ·, E), or without heads, or
without n and heads. Multi-head inputs are (B, T, n, d), time first as the user passes them, viewed as (R, T, d), R = B·n rows.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.gradients.core.handlers import register_handler
from privet.gradients.core.recorder import Recorder
from privet.gradients.layers.linear import follow_linear


@register_handler(F.scaled_dot_product_attention, always=True)
def scaled_dot_product_attention(
    recorder: Recorder, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, *rest: Any, **options: Any
) -> Tensor | None:
    """Compute attention as torch does for one example; None for unsupported dimensions.

    torch fuses what has four dimensions, and rounds otherwise where a softmax is saturated: so the examples add no dimension.
    """
    q, k, v = (recorder.to_batched(x) for x in (query, key, value))
    dimensions = q.dim()
    if not 3 <= dimensions <= 5 or k.dim() != dimensions or v.dim() != dimensions:
        return None
    mask = None if attn_mask is None else recorder.to_batched(attn_mask)
    if mask is not None:
        mask = mask.reshape(len(mask), *(1,) * (dimensions - mask.dim()), *mask.shape[1:])
    if dimensions == 4 and options.get("enable_gqa"):  # what an example has in front are heads
        return None
    if dimensions > 3:
        lead = torch.broadcast_shapes(q.shape[:2], k.shape[:2], v.shape[:2])
        q, k, v = (x.expand(*lead, *x.shape[2:]).flatten(0, 1) for x in (q, k, v))
        if mask is not None:
            mask = mask[:, 0] if lead[1] == 1 else mask.expand(*lead, *mask.shape[2:]).flatten(0, 1)
    found: Tensor = F.scaled_dot_product_attention(q, k, v, mask, *rest, **options)
    return found.unflatten(0, lead) if dimensions > 3 else found


def _linear(recorder: Recorder, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if recorder.follows(weight) or recorder.follows(bias):
        return follow_linear(recorder, x, weight, bias, transposed=False)
    return F.linear(x, weight, bias)


def _slice(recorder: Recorder, parameter: Tensor, start: int, stop: int) -> Tensor:
    return recorder.view(parameter, parameter[start:stop])


def _project(
    recorder: Recorder, query: Tensor, key: Tensor, value: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, ...]:
    width = query.shape[-1]
    if query is key and key is value:
        return _linear(recorder, query, weight, bias).chunk(3, -1)

    def part(x: Tensor, first: int, last: int) -> Tensor:
        rows = _slice(recorder, weight, first * width, last * width)
        return _linear(recorder, x, rows, None if bias is None else _slice(recorder, bias, first * width, last * width))

    if key is value:
        return part(query, 0, 1), *part(key, 1, 3).chunk(2, -1)
    return part(query, 0, 1), part(key, 1, 2), part(value, 2, 3)


def _bias_of_scores(attn_mask: Tensor | None, key_padding_mask: Tensor | None, heads: int, dtype: torch.dtype) -> Tensor | None:
    """Return the additive mask of the scores, broadcastable to (R, heads, L, S).

    Args:
        attn_mask: (B, L, S), or (B, n·heads, L, S).
        key_padding_mask: (B, n, S).
    """
    total = None
    for mask, given in ((attn_mask, "scores"), (key_padding_mask, "keys")):
        if mask is None:
            continue
        if mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -math.inf)
        if given == "keys":
            mask = mask.flatten(0, 1)[:, None, None, :]
        else:
            mask = mask[:, None] if mask.dim() == 3 else mask.unflatten(1, (-1, heads)).flatten(0, 1)
        total = mask if total is None else total + mask
    return total


@register_handler(F.multi_head_attention_forward, always=True)
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
    """Follow `F.multi_head_attention_forward`; None for rare options, broadcast biases, and rows that share one mask."""
    parameters = (
        in_proj_weight, in_proj_bias, bias_k, bias_v, out_proj_weight, out_proj_bias, q_proj_weight, k_proj_weight, v_proj_weight,
    )  # fmt: skip
    rare = add_zero_attn or static_k is not None or static_v is not None or (is_causal and attn_mask is None)
    dropped = dropout_p if training else 0.0
    widths = ((in_proj_bias, 3 * embed_dim_to_check), (out_proj_bias, out_proj_weight.shape[0]))
    broadcast = any(bias is not None and bias.shape != (width,) for bias, width in widths)
    if rare or broadcast or not recorder.is_shared(*parameters):
        return None
    inputs = {id(x): recorder.to_batched(x) for x in (query, key, value)}
    single = inputs[id(query)].dim() == 3  # (B, T, d): an example without a dimension of rows
    # Then torch ignores the mask, which may be on another device.
    causal = is_causal and key_padding_mask is None and not need_weights and not dropped
    masks = [None if mask is None else recorder.to_batched(mask) for mask in (None if causal else attn_mask, key_padding_mask)]
    if single:
        inputs = {name: x.unsqueeze(2) for name, x in inputs.items()}
        masks[1] = None if masks[1] is None else masks[1].unsqueeze(1)
    count = inputs[id(query)].shape[2]
    if count > 1 and masks[0] is not None and masks[0].dim() == 3:
        return None
    rows = {name: x.transpose(1, 2).flatten(0, 1) for name, x in inputs.items()}
    q, k, v = (rows[id(x)] for x in (query, key, value))
    if use_separate_proj_weight:
        biases: Any = (None,) * 3
        if in_proj_bias is not None:
            width = q.shape[-1]
            biases = [_slice(recorder, in_proj_bias, i * width, (i + 1) * width) for i in range(3)]
        weights = (q_proj_weight, k_proj_weight, v_proj_weight)
        q, k, v = (_linear(recorder, x, w, b) for x, w, b in zip((q, k, v), weights, biases, strict=True))  # type: ignore[arg-type]
    else:
        assert in_proj_weight is not None
        q, k, v = _project(recorder, q, k, v, in_proj_weight, in_proj_bias)
    if bias_k is not None and bias_v is not None:
        extra = (recorder.to_batched(row).flatten(1, 2).repeat_interleave(count, 0) for row in (bias_k, bias_v))
        k, v = (torch.cat([x, row], 1) for x, row in zip((k, v), extra, strict=True))
        masks = [None if mask is None else F.pad(mask, (0, 1)) for mask in masks]
    q, k, v = (x.view(*x.shape[:2], num_heads, -1).transpose(1, 2) for x in (q, k, v))
    bias = _bias_of_scores(masks[0], masks[1], num_heads, q.dtype)
    weights_out = None
    if need_weights or dropped:
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        attention = torch.softmax(scores if bias is None else scores + bias, -1)
        if dropped:
            attention = recorder.dropout(attention, dropped)
        heads = attention @ v
        if need_weights:
            weights_out = (attention.mean(1) if average_attn_weights else attention).unflatten(0, (-1, count))
    else:
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=causal)
    out = _linear(recorder, heads.transpose(1, 2).flatten(2), out_proj_weight, out_proj_bias)
    out = out.unflatten(0, (-1, count)).transpose(1, 2)
    if single:
        out, weights_out = out.squeeze(2), None if weights_out is None else weights_out.squeeze(1)
    return out, weights_out
