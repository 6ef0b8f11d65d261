"""Weights of a batch: Privet's own rules compute them together, any other rule one example at a time.

The weight of an example must not depend on other examples. Privet's rules are tensor formulas for which that holds. A rule from
elsewhere could look at the largest norm of the batch, so it is given one norm at a time, and what it returns is held to the
sensitivity that it declares.
"""

from __future__ import annotations

__all__ = ["check_rule", "read_scales", "split_groups", "weigh"]

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from privet._utils.registry import is_own
from privet._utils.torch_state import leaving_modes
from privet.clipping.base import Rule
from privet.errors import USER_ERRORS, InvalidArgumentError

Groups = Sequence[Sequence[str]]
Statistics = dict[str, Tensor]

# Rounding in float64 cannot lift a contribution that is scaled by this above the sensitivity.
_MARGIN = 1 - 2.0**-40
# Norms, in multiples of the sensitivity, with which a rule is checked before the first step.
_TRIED = (0.0, 1e-9, 1e-3, 0.1, 0.5, 0.999, 1.0, 1.001, 2.0, 10.0, 1e3, 1e9)
_TOLERANCE = 1e-6


def split_groups(rule: Rule, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the rule's groups of parameters.

    Raises:
        InvalidArgumentError: they are not a partition of the names, so that a parameter would not be clipped, or clipped twice.
    """
    with leaving_modes():
        groups = rule.groups(tuple(names))
    if sorted(name for group in groups for name in group) != sorted(names):
        raise InvalidArgumentError(
            "clipping.groups", groups, "a partition of the parameter names", "Every parameter belongs to exactly one group."
        )
    return groups


def read_scales(rule: Rule, names: Sequence[str]) -> tuple[dict[str, float], float]:
    """Return the rule's noise scales and its sensitivity as numbers: other objects could compute with what they divide."""
    with leaving_modes():
        return {name: float(scale) for name, scale in rule.noise_scales(names).items()}, float(rule.sensitivity)


def weigh(rule: Rule, norms: Tensor, groups: Groups) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Return the weights of a batch, and the statistics that the rule releases with the gradients.

    Args:
        rule: the clipping rule.
        norms: (G, B) float64 group norms; not finite where a gradient is not.
        groups: names of the parameters of each group, as `rule.groups` returns them.

    Returns:
        Weights (G, B), and statistic's name → sum over the examples.

    Guarantee:
        The weights and statistics of an example depend on its own norms only, and its contribution to all sums is at most
        `rule.sensitivity`, each part divided by its noise scale. For Privet's rules that is their formula (each is tested with
        neighbouring data sets); for others it is enforced here. An example on which such a rule raises contributes zero.

    Raises:
        InvalidArgumentError: a rule's statistics do not have names with a colon.
    """
    if is_own(rule):
        return rule.weights(norms), rule.statistics(norms)
    with leaving_modes():
        blank = _empty_statistics(rule, norms)
    weights, statistics = _weigh_each(rule, norms, blank)
    if not norms.shape[1]:
        return weights, blank
    allowed = _allowed_factors(rule, norms, groups, weights, statistics)
    sums = {name: torch.einsum("b...,b->...", values, allowed) for name, values in statistics.items()}
    return weights * allowed, sums


def _weigh_each(rule: Rule, norms: Tensor, blank: Statistics) -> tuple[Tensor, Statistics]:
    """Return weights (G, B) and statistics (B, …), asked for one example at a time; zeros for what cannot be used."""
    weights = torch.zeros_like(norms)
    statistics = {name: value.new_zeros(norms.shape[1], *value.shape) for name, value in blank.items()}
    for place in range(norms.shape[1]):
        own = norms[:, place : place + 1]
        try:
            # Copied at once, as a rule could change what it has returned.
            given, found = _ask(rule, own, blank)
            if given.shape == own.shape:
                weights[:, place : place + 1].copy_(given)
            for name, value in found.items():
                if value.shape == blank[name].shape:
                    statistics[name][place].copy_(value)
        except KeyboardInterrupt:  # of whom, the caller knows
            raise
        except USER_ERRORS:  # of any kind: an error would tell something about the norm
            weights[:, place] = 0.0
            for each in statistics.values():
                each[place] = 0.0
    usable = (weights.isfinite() & (weights >= 0)).all(0) & norms.isfinite()
    return torch.where(usable, weights, 0.0), {name: _zero_odd(values) for name, values in statistics.items()}


def _ask(rule: Rule, norms: Tensor, blank: Statistics) -> tuple[Tensor, Statistics]:
    """Return what a rule returns for one example, given copies of its norms, which the rule could keep."""
    with leaving_modes():
        weights = _to_plain(rule.weights(norms.clone()))
        more = rule.statistics(norms.clone()) if blank else {}
        return weights, {name: _to_plain(more[name]) for name in blank if name in more}


def _to_plain(returned: Any) -> Tensor:
    """Return what a rule returned as a tensor of no class of the user's, whose methods would be given those of others."""
    found = torch.as_tensor(returned)
    return found.detach() if type(found) is Tensor else torch.tensor(found.tolist(), dtype=torch.float64, device="cpu")


def _zero_odd(statistics: Tensor) -> Tensor:
    """Return statistics (B, …) with zeros for examples with a number that is not finite."""
    finite = statistics.flatten(1).isfinite().all(1)
    return torch.where(finite.view(-1, *[1] * (statistics.dim() - 1)), statistics, 0.0)


def _allowed_factors(rule: Rule, norms: Tensor, groups: Groups, weights: Tensor, statistics: Statistics) -> Tensor:
    """Return the factors (B,) ≤ 1 that hold the contributions to the rule's sensitivity."""
    scales, limit = read_scales(rule, tuple(name for group in groups for name in group))
    least = norms.new_tensor([min(scales.get(name, 1.0) for name in group) for group in groups])
    contributed = (torch.where(norms.isfinite(), norms, 0.0) * weights / least[:, None]).square().sum(0)
    for name, values in statistics.items():
        contributed += (values / scales.get(name, 1.0)).square().flatten(1).sum(1)
    contributed.sqrt_()
    # NaN, of a weight times a norm that overflows, is not ≤ anything: such an example contributes zero.
    return torch.where(contributed <= limit, 1.0, torch.nan_to_num(limit * _MARGIN / contributed, nan=0.0))


def _empty_statistics(rule: Rule, norms: Tensor) -> Statistics:
    """Return zeros shaped like the statistics of one example with synthetic norms.

    Raises:
        InvalidArgumentError: a name could be that of a parameter.
    """
    found = rule.statistics(torch.zeros_like(norms[:, :1]) if norms.shape[1] else norms.new_zeros(len(norms), 1))
    for name in found:
        if ":" not in name:
            raise InvalidArgumentError(
                "clipping.statistics", name, "a name with a colon", "Without one it could be the name of a parameter."
            )
    return {name: norms.new_zeros(_to_plain(value).shape) for name, value in found.items()}


def check_rule(rule: Rule, names: Sequence[str]) -> None:
    """Refuse a rule whose weights depend on other examples, or exceed its sensitivity, on synthetic norms.

    Args:
        rule: the clipping rule; Privet's own are not checked again.
        names: of the trainable parameters.

    Raises:
        InvalidArgumentError: naming what does not hold, and how to mend it.
    """
    groups = split_groups(rule, rule.released(names))
    if is_own(rule):
        return
    tried = torch.tensor(_TRIED, dtype=torch.float64, device="cpu") * rule.sensitivity
    norms = torch.stack([tried.roll(place) for place in range(len(groups))])
    empty = _empty_statistics(rule, norms)
    try:
        together, sums = rule.weights(norms.clone()), rule.statistics(norms.clone())
        alone = [(rule.weights(own.clone()), rule.statistics(own.clone())) for own in norms.split(1, dim=1)]
    except Exception as error:
        raise InvalidArgumentError(
            "clipping", rule, "a rule that returns weights for any norms", f"It raised {type(error).__name__}: {error}"
        ) from error
    parts = torch.cat([torch.as_tensor(weights) for weights, _ in alone], 1)
    statistics = {name: torch.stack([torch.as_tensor(found[name]).to(norms) for _, found in alone]) for name in empty}
    same = together.shape == norms.shape and torch.allclose(together.to(norms), parts.to(norms), rtol=_TOLERANCE, atol=0.0)
    if not same or not all(
        torch.allclose(torch.as_tensor(sums[name]).to(norms), value.sum(0), rtol=_TOLERANCE) for name, value in statistics.items()
    ):
        raise InvalidArgumentError(
            "clipping", rule, "a rule whose weight for an example depends on that example's norms only",
            "In a batch it returns other weights or statistics than for each example alone, as training asks it.",
        )  # fmt: skip
    allowed = _allowed_factors(rule, norms, groups, parts.to(norms), statistics)
    if bool((allowed < 1 - _TOLERANCE).any()):
        raise InvalidArgumentError(
            "clipping", rule, f"a rule whose contributions are at most its sensitivity {rule.sensitivity:g}",
            "weight · norm exceeds it for some norms; make the weights smaller or the sensitivity larger.",
        )  # fmt: skip
