"""Weights of a batch, by a rule that may not be Privet's.

Privet's rules are formulas that are tested with neighbouring data sets. A rule from elsewhere could look at the largest norm of
the batch, so `torch.vmap` shows it one example, in one call for all. What it returns is scaled down where an example would exceed
the declared sensitivity. Synthetic norms show most mistakes before the first step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from privet._utils.registry import is_own
from privet.clipping.base import Rule
from privet.errors import InvalidArgumentError

Groups = Sequence[Sequence[str]]

# Rounding in float64 cannot lift a contribution that is scaled by this above the sensitivity.
_MARGIN = 1 - 2.0**-40
# Norms, in multiples of the sensitivity, with which a rule is checked before the first step.
_TRIED = (0.0, 1e-9, 1e-3, 0.1, 0.5, 0.999, 1.0, 1.001, 2.0, 10.0, 1e3, 1e9)
_TOLERANCE = 1e-6


def split_groups(rule: Rule, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the rule's groups, which must be a partition of the names, so that each parameter is clipped once."""
    groups = rule.groups(tuple(names))
    if sorted(name for group in groups for name in group) != sorted(names):
        fix = "Every parameter belongs to exactly one group."
        raise InvalidArgumentError("clipping.groups", groups, "a partition of the parameter names", fix)
    return groups


def read_scales(rule: Rule, names: Sequence[str]) -> tuple[dict[str, float], float]:
    """Return the rule's noise scales and its sensitivity as numbers."""
    return {name: float(scale) for name, scale in rule.noise_scales(names).items()}, float(rule.sensitivity)


def weigh(rule: Rule, norms: Tensor, groups: Groups) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Return the weights of a batch, (G, B), and the statistics released with the gradients: name → sum over the examples.

    `norms` are (G, B) group norms in float64, not finite where a gradient is not; `groups` as `rule.groups` returns them.

    Guarantee:
        An example's contribution to all sums, each part divided by its noise scale, is at most `rule.sensitivity`. For Privet's
        rules that is their formula; for others it is enforced here. That the weight of an example depends on its own norms only
        is the rule's contract, which `check_rule` tests. An example on which a rule raises contributes zero.
    """
    if is_own(rule):
        return rule.weights(norms), rule.statistics(norms)
    weights, statistics = _ask(rule, norms)
    weights = torch.where((weights.isfinite() & (weights >= 0)).all(0) & norms.isfinite(), weights, 0.0)
    factors = _clamp(rule, norms, groups, weights, statistics)
    return weights * factors, {name: torch.einsum("b...,b->...", values, factors) for name, values in statistics.items()}


def _ask(rule: Rule, norms: Tensor, *, strict: bool = False) -> tuple[Tensor, dict[str, Tensor]]:
    """Return weights (G, B) and finite statistics (B, …), from one call in which the rule sees one example.

    Where it raises, each example is asked for alone, and gives zeros where it raises then: the exception would tell something
    about its norms. With `strict`, for public norms, the exception propagates.
    """
    found = rule.statistics(norms.new_zeros(len(norms), 1))
    blank = {name: value.new_zeros(norms.shape[1], *value.shape) for name, value in found.items()}
    if odd := [name for name in blank if ":" not in name]:
        fix = "Without one it could be the name of a parameter."
        raise InvalidArgumentError("clipping.statistics", odd[0], "a name with a colon", fix)
    if not norms.shape[1]:
        return norms, blank

    def ask(own: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return rule.weights(own[:, None]).view(own.shape), dict(rule.statistics(own[:, None])) if blank else {}

    alone = norms.shape[1] == 1  # no need of vmap, which cannot run every rule
    try:
        each = (lambda own: pytree.tree_map(lambda part: part[None], ask(own[:, 0]))) if alone else torch.vmap(ask, in_dims=1)
        weights, statistics = each(norms.clone())
        return weights.T.to(norms), {name: torch.nan_to_num(statistics[name].to(norms), 0.0, 0.0, 0.0) for name in blank}
    except Exception:
        if strict:
            raise
    if alone:
        return torch.zeros_like(norms), blank
    parts = [_ask(rule, own) for own in norms.split(1, dim=1)]
    return torch.cat([part[0] for part in parts], 1), {name: torch.cat([part[1][name] for part in parts]) for name in blank}


def _clamp(rule: Rule, norms: Tensor, groups: Groups, weights: Tensor, statistics: Mapping[str, Tensor]) -> Tensor:
    """Return the factors (B,) ≤ 1 that hold the contributions to the rule's sensitivity."""
    scales, limit = read_scales(rule, tuple(name for group in groups for name in group))
    least = norms.new_tensor([min(scales.get(name, 1.0) for name in group) for group in groups])
    contributed = (torch.where(norms.isfinite(), norms, 0.0) * weights / least[:, None]).square().sum(0)
    for name, values in statistics.items():
        contributed += (values / scales.get(name, 1.0)).square().flatten(1).sum(1)
    contributed.sqrt_()
    # NaN, of a weight times a norm that overflows, is not ≤ anything: such an example contributes zero.
    return torch.where(contributed <= limit, 1.0, torch.nan_to_num(limit * _MARGIN / contributed, nan=0.0))


def check_rule(rule: Rule, names: Sequence[str]) -> None:
    """Refuse a rule whose weights depend on other examples, or exceed its sensitivity, on synthetic norms.

    `names` lists the trainable parameters. Privet's own rules are not checked again.
    """
    groups = split_groups(rule, rule.released(names))
    if is_own(rule):
        return
    tried = torch.tensor(_TRIED, dtype=torch.float64, device="cpu") * rule.sensitivity
    norms = torch.stack([tried.roll(place) for place in range(len(groups))])
    try:
        weights, statistics = _ask(rule, norms, strict=True)
        together = rule.weights(norms.clone())
    except InvalidArgumentError:
        raise
    except Exception as error:
        why = str(error).partition("We don't support")[0].rstrip(" .")
        allowed = "a rule that computes weights for any norms by operations of tensors, which torch.vmap vectorises"
        raise InvalidArgumentError("clipping", rule, allowed, cause=f"{type(error).__name__}: {why}") from error
    if bool((lost := weights.isnan()).any()):
        allowed = "a rule whose weights are numbers for all norms from 0"
        raise InvalidArgumentError("clipping", rule, allowed, cause=f"the weight of norm {norms[lost].min():g} is NaN")
    if together.shape != norms.shape or not torch.allclose(together.to(norms), weights, rtol=_TOLERANCE, atol=0.0):
        allowed = "a rule whose weight for an example depends on that example's norms only"
        raise InvalidArgumentError("clipping", rule, allowed, cause="it returns other weights in a batch than for one example")
    if bool((_clamp(rule, norms, groups, weights, statistics) < 1 - _TOLERANCE).any()):
        allowed = f"a rule whose contributions are at most its sensitivity {rule.sensitivity:g}"
        fix = "weight · norm exceeds it for some norms; make the weights smaller or the sensitivity larger."
        raise InvalidArgumentError("clipping", rule, allowed, fix)
