"""Functions that draw random numbers: independent ones for each example, from the generators of the pass.

The rules run inside vmap, and in the loop over single examples. Axes of random numbers: B examples first, then the dimensions
that one example sees.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.gradients.core.batching import is_batched
from privet.gradients.core.randomness import Draw, without_options
from privet.gradients.core.recorder import UntraceableError

# (draw, *arguments of the function) → its result
RandomRule = Callable[..., Any]
RULES: dict[Any, RandomRule] = {}


def random_rule(*functions: Any) -> Callable[[RandomRule], RandomRule]:
    """Return a decorator that registers a rule for functions that draw random numbers, and heeds `out` and `requires_grad`."""

    def register(rule: RandomRule) -> RandomRule:
        @functools.wraps(rule)
        def complete(draw: Draw, *arguments: Any, **options: Any) -> Any:
            found = rule(draw, *arguments, **options)
            return _finish(draw, found, options) if "out" in options or "requires_grad" in options else found

        RULES.update(dict.fromkeys(functions, complete))
        return rule

    return register


def _finish(draw: Draw, found: Tensor, options: dict[str, Any]) -> Tensor:
    """Return the result of a rule in the tensor `out`, or as a leaf that requires a gradient, as a caller asked."""
    out, asked = options.get("out"), options.get("requires_grad")
    together = draw.is_together and (asked or (out is not None and out.shape != found.shape))
    if together:
        raise UntraceableError("random numbers are asked to require a gradient, or drawn into a tensor of another shape")
    if out is not None:
        found = out.resize_(found.shape).copy_(found) if out.shape != found.shape else out.copy_(found)
    return found.requires_grad_() if asked else found


def _uniform(x: Tensor, generator: torch.Generator) -> Tensor:
    return x.uniform_(generator=generator)


def _normal(x: Tensor, generator: torch.Generator) -> Tensor:
    return x.normal_(generator=generator)


def _factory_rule(function: Any, fill: Callable[[Tensor, torch.Generator], Tensor]) -> RandomRule:
    def rule(draw: Draw, *arguments: Any, **options: Any) -> Tensor:
        return draw(fill, draw.empty_result(function, arguments, options))

    return rule


def _like_rule(fill: Callable[[Tensor, torch.Generator], Tensor]) -> RandomRule:
    def rule(draw: Draw, input: Tensor, **options: Any) -> Tensor:
        made = {name: options[name] for name in ("dtype", "device") if options.get(name) is not None}
        return draw(fill, torch.empty(input.shape, **{"dtype": input.dtype, "device": input.device, **made}))

    return rule


for _function, _fill in ((torch.rand, _uniform), (torch.randn, _normal)):
    random_rule(_function)(_factory_rule(_function, _fill))
random_rule(torch.rand_like)(_like_rule(_uniform))
random_rule(torch.randn_like)(_like_rule(_normal))


@random_rule(torch.randint)
def _randint(draw: Draw, *arguments: Any, **options: Any) -> Tensor:
    before = next((place for place, x in enumerate(arguments) if isinstance(x, (tuple, list))), len(arguments))
    low, high = _read_bounds(arguments[:before], options)
    size = arguments[before] if before < len(arguments) else options["size"]
    like = draw.empty_result(torch.randint, (low, high, size), without_options(options, "low", "high", "size"))
    return draw(lambda x, generator: x.random_(low, high, generator=generator), like)


@random_rule(torch.randint_like)
def _randint_like(draw: Draw, input: Tensor, *bounds: Any, **options: Any) -> Tensor:
    low, high = _read_bounds(bounds, options)
    like = torch.empty(input.shape, dtype=options.get("dtype") or input.dtype, device=input.device)
    return draw(lambda x, generator: x.random_(low, high, generator=generator), like)


def _read_bounds(given: Sequence[Any], options: Mapping[str, Any]) -> tuple[int, int]:
    """Return the bounds of integers to draw: the last one given is the upper, unless that is given by name."""
    bounds = [*given, *([options["high"]] if "high" in options else [])]
    low, high = (options.get("low", 0), *bounds) if len(bounds) == 1 else bounds
    if is_batched(low) or is_batched(high):
        raise UntraceableError("random integers are drawn below a bound of each example's")
    return operator.index(low), operator.index(high)


@random_rule(torch.randperm)
def _randperm(draw: Draw, n: int, **options: Any) -> Tensor:
    keys = draw(_uniform, torch.empty(n, dtype=torch.float64, device=options.get("device") or torch.get_default_device()))
    return keys.argsort().to(options.get("dtype") or torch.int64)


@random_rule(torch.bernoulli, Tensor.bernoulli)
def _bernoulli(draw: Draw, input: Tensor, p: float | None = None, **_: Any) -> Tensor:
    uniform = draw(_uniform, torch.empty(input.shape, dtype=torch.float32, device=input.device))
    return (uniform < (input if p is None else p)).to(input.dtype)


@random_rule(torch.normal)
def _normals(draw: Draw, mean: Any = 0.0, std: Any = 1.0, size: Any = None, **options: Any) -> Tensor:
    """Draw normal numbers with given means and standard deviations, which have no gradients: as in torch, all are constants."""
    mean, std = (x.detach() if isinstance(x, Tensor) else x for x in (mean, std))
    shapes = [x.shape for x in (mean, std) if isinstance(x, Tensor)]
    shape = tuple(size) if size is not None else torch.broadcast_shapes(*shapes)
    tensor = next((x for x in (mean, std) if isinstance(x, Tensor)), torch.empty(0))
    like = torch.empty(shape, dtype=options.get("dtype") or tensor.dtype, device=options.get("device") or tensor.device)
    return mean + std * draw(_normal, like)  # type: ignore[no-any-return]


@random_rule(torch.multinomial, Tensor.multinomial)
def _multinomial(draw: Draw, input: Tensor, num_samples: int, replacement: bool = False, **_: Any) -> Tensor:
    """Draw indices in proportion to weights, by a race of exponential clocks."""
    times = (num_samples,) if replacement else ()
    like = torch.empty(*input.shape[:-1], *times, input.shape[-1], dtype=torch.float32, device=input.device)
    clocks = draw(lambda x, generator: x.exponential_(generator=generator), like)
    if replacement:
        return (input.float().unsqueeze(-2) / clocks).argmax(-1)
    return (input.float() / clocks).topk(num_samples, -1).indices


def _fill_rule(name: str) -> RandomRule:
    function = getattr(Tensor, name)

    def rule(draw: Draw, x: Tensor, *arguments: Any, **options: Any) -> Tensor:
        chance = arguments[0] if arguments else options.get("p")
        if isinstance(chance, Tensor):
            return x.copy_(_bernoulli(draw, chance.expand(x.shape).to(torch.float32)).to(x.dtype))
        given = without_options(options, "generator")
        return x.copy_(draw(lambda y, generator: function(y, *arguments, generator=generator, **given), x))

    return rule


for _name in (
    "bernoulli_", "uniform_", "normal_", "exponential_", "geometric_", "log_normal_", "cauchy_", "random_",
):  # fmt: skip
    random_rule(getattr(Tensor, _name))(_fill_rule(_name))


def apply_dropout(draw: Draw, x: Tensor, p: float, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor times a dropout mask of this shape, with entries 1/(1 − p) with probability 1 − p, else 0."""
    if p == 1:
        return x * 0.0
    # torch's own formula without vmap's batching rule: one pass over the physical tensor.
    mask = draw(
        lambda y, generator: y.bernoulli_(1 - p, generator=generator).div_(1 - p),
        torch.empty(shape, dtype=x.dtype, device=x.device),
    )
    return x * mask


@random_rule(F.dropout, torch.dropout)
def _dropout(draw: Draw, input: Tensor, p: float = 0.5, train: bool = True, inplace: bool = False, **options: Any) -> Tensor:
    if not options.get("training", train) or p == 0:
        return input
    found = apply_dropout(draw, input, p, tuple(input.shape))
    return input.copy_(found) if inplace else found


def _channel_dropout_rule(dimensions: int) -> RandomRule:
    def rule(draw: Draw, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return input
        kept = max(0, input.dim() - dimensions)
        found = apply_dropout(draw, input, p, (*input.shape[:kept], *(1,) * (input.dim() - kept)))
        return input.copy_(found) if inplace else found

    return rule


for _dropout_function, _dimensions in ((F.dropout1d, 1), (F.dropout2d, 2), (F.dropout3d, 3)):
    random_rule(_dropout_function)(_channel_dropout_rule(_dimensions))


_SATURATION = 1.7580993408473766  # of SELU, towards −∞


def _alpha_dropout_rule(by_channel: bool) -> RandomRule:
    def rule(draw: Draw, input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
        """Set dropped elements to SELU's saturation value, and preserve mean and variance (Klambauer et al. 2017)."""
        if not training or p == 0:
            return input
        shape = (*input.shape[:2], *(1,) * (input.dim() - 2)) if by_channel else tuple(input.shape)
        like = torch.empty(shape, dtype=input.dtype, device=input.device)
        kept = draw(lambda y, generator: y.bernoulli_(1 - p, generator=generator), like)
        scale = 0.0 if p == 1 else ((_SATURATION**2 * p + 1) * (1 - p)) ** -0.5
        shift = (kept - 1) * (_SATURATION * scale) + _SATURATION * scale * p
        found = input * (kept * scale) + shift
        return input.copy_(found) if inplace else found

    return rule


random_rule(F.alpha_dropout)(_alpha_dropout_rule(by_channel=False))
random_rule(F.feature_alpha_dropout)(_alpha_dropout_rule(by_channel=True))


@random_rule(F.rrelu)
def _rrelu(
    draw: Draw, input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Any:
    """Scale negative numbers by random slopes; NotImplemented outside training, as nothing is random then."""
    if not training:
        return NotImplemented
    slopes = draw(lambda y, generator: y.uniform_(lower, upper, generator=generator), input)
    found = input * torch.where(input <= 0, slopes, 1.0)
    return input.copy_(found) if inplace else found


@random_rule(F.gumbel_softmax)
def _gumbel_softmax(
    draw: Draw, logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """Return a relaxed choice in proportion to the exponentials of logits, or the choice with the gradient of the relaxed one."""
    gumbels = -draw(lambda y, generator: y.exponential_(generator=generator), logits).log()
    soft = ((logits + gumbels) / tau).softmax(dim)
    if not hard:
        return soft
    chosen = soft.argmax(dim, keepdim=True)
    return torch.zeros_like(soft).scatter(dim, chosen, 1.0) - soft.detach() + soft


def attention_with_dropout(
    draw: Draw,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    p: float,
    is_causal: bool,
    scale: float | None,
) -> Tensor:
    """Return attention with dropout of its weights, as torch defines it."""
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(future, -torch.inf)
    if attn_mask is not None:
        hidden = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -torch.inf) if hidden else scores + attn_mask
    # As in torch, a position that sees nothing, such as padding on the left, gets zeros; softmax alone would give NaN.
    blind = (scores == -torch.inf).all(-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(blind, 0.0), -1).masked_fill(blind, 0.0)
    return apply_dropout(draw, weights, p, tuple(weights.shape)) @ value


@random_rule(F.scaled_dot_product_attention)
def _attention(
    draw: Draw, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Apply attention with dropout; NotImplemented without dropout, as nothing is random then."""
    if not dropout_p:
        return NotImplemented
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = (x.repeat_interleave(times, -3) for x in (key, value))
    return attention_with_dropout(draw, query, key, value, attn_mask, dropout_p, is_causal, scale)
