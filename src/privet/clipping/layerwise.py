"""Layerwise clipping: a separate norm and bound for every group of parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from privet._utils.registry import register
from privet.clipping.base import NormRule, Rule, round_weights
from privet.errors import InvalidArgumentError, choice, positive

Patterns = tuple[tuple[str, NormRule], ...]

# Ways to form groups: parameter name → name of its group.
SPLITS: dict[str, Callable[[str], str]] = {"parameter": lambda name: name, "module": lambda name: name.rpartition(".")[0]}
_BY_PATTERN = "pattern"
_NOISES = ("shared", "per group")


@register
@dataclass(frozen=True)
class Layerwise(Rule):
    """Clip every group of parameters by its own norm, with any rule of one norm.

    =======================================================  =======================================================
    `Layerwise(Flat(1.0))`                                   one group per module; each has the rule with bound C/√K
    `Layerwise(Flat(1.0), by="parameter")`                   one group per parameter
    `Layerwise((Flat(0.5), PSAC(0.2)), by="module")`         given rules, in the order of the groups
    `Layerwise({r"conv\\d.*": Flat(0.5), ".*": PSAC(0.2)})`  one group per pattern, with its rule
    =======================================================  =======================================================

    Args:
        rules: one rule shared by K groups, each with its bound divided by √K; or one rule per group, in the order of the groups'
            first parameters; or a mapping (or pairs) of regular expressions to rules. An expression must match a parameter's full
            name, the first match decides, and all parameters of one expression form a group.
        by: "module" (the default: weight and bias together) or "parameter"; left out for patterns.
        noise: "shared": the same standard deviation everywhere; "per group": proportional to the sensitivity Rᵣ of each group; or
            relative standard deviations > 0, one per group in order.

    Guarantee:
        An example's contribution to group r has a norm of at most Rᵣ, so its total contribution has a norm of at most √ΣRᵣ²: the
        sensitivity C, regardless of the noise. For one shared rule that is the rule's own sensitivity for any K. With relative
        deviations aᵣ, the noise of group r has uᵣ = t·aᵣ times the common standard deviation, where t is such that
        √Σ(Rᵣ/uᵣ)² = C. So the release is one Gaussian mechanism with the plan's multiplier σ. "per group" gives group r noise of
        σ·√K·Rᵣ, that is a multiplier σᵣ = σ·√K, and 1/√Σ(1/σᵣ²) = σ.

    Source:
        Abadi et al. 2016, §3.2; McMahan et al. 2018, "Learning Differentially Private Recurrent Language Models"; Bu et al. 2023,
        "On the Convergence and Calibration of Deep Learning with Differential Privacy", Eq. 4.4.

    >>> from privet.clipping import Flat
    >>> rule = Layerwise(Flat(bound=1.0))
    >>> rule.groups(["0.weight", "0.bias", "2.weight"])
    (('0.weight', '0.bias'), ('2.weight',))
    >>> rule.sensitivity
    1.0
    >>> Layerwise({"0.*": Flat(3.0), "2.*": Flat(4.0)}).sensitivity
    5.0
    """

    rules: NormRule | tuple[NormRule, ...] | Patterns | Mapping[str, NormRule]
    by: str | None = None
    noise: str | tuple[float, ...] = "shared"

    def __post_init__(self) -> None:
        given: Any = tuple(self.rules.items()) if isinstance(self.rules, Mapping) else self.rules
        if isinstance(given, list | tuple):
            given = tuple(tuple(item) if isinstance(item, list | tuple) else item for item in given)
            if not given:
                raise InvalidArgumentError("clipping.rules", given, "at least one rule")
        object.__setattr__(self, "rules", given)
        if any(isinstance(item, tuple) for item in self._items()):
            _check_patterns(given)
        for rule in self._plain_rules():
            if not isinstance(rule, NormRule):
                raise InvalidArgumentError(
                    "clipping.rules", rule, "made of rules of one norm, such as privet.clipping.Flat(1.0)",
                    "Layerwise, adaptive and batch rules have no meaning within a group; AdaptiveQuantile(Layerwise(...)) adapts "
                    "every group's bound.",
                )  # fmt: skip
        object.__setattr__(self, "by", _check_by(self.by, patterned=bool(self._patterns())))
        self._check_noise()

    def _check_noise(self) -> None:
        if isinstance(self.noise, list | tuple):
            object.__setattr__(self, "noise", tuple(self.noise))
            for deviation in self.noise:
                positive("clipping.noise", deviation, "It is a group's standard deviation relative to the other groups.")
            if isinstance(self.rules, tuple) and len(self.noise) != len(self.rules):
                raise InvalidArgumentError("clipping.noise", self.noise, f"one number for each of {len(self.rules)} groups")
        else:
            choice("clipping.noise", self.noise, _NOISES, "Or pass a relative standard deviation for every group.")

    def _items(self) -> tuple[NormRule | tuple[str, NormRule], ...]:
        return self.rules if isinstance(self.rules, tuple) else (self.rules,)  # type: ignore[return-value]

    def _plain_rules(self) -> tuple[NormRule, ...]:
        return tuple(item[1] if isinstance(item, tuple) else item for item in self._items())

    def _patterns(self) -> tuple[str, ...]:
        return tuple(item[0] for item in self._items() if isinstance(item, tuple))

    @property
    def sensitivity(self) -> float:
        """√ΣRᵣ²."""
        return math.hypot(*(rule.sensitivity for rule in self._plain_rules()))

    @property
    def remarks(self) -> tuple[str, ...]:
        """A remark on different noise levels of groups, if there are any."""
        if self.noise == "shared":
            return ()
        return (
            "Groups of parameters have different noise levels, which together protect the whole contribution as well as equal "
            "noise",
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Those of the rules."""
        return tuple(dict.fromkeys(clause for rule in self._plain_rules() for clause in rule.assumptions))

    def group_rules(self, count: int) -> tuple[NormRule, ...]:
        """Return the rules of `count` groups; a single rule is split among them."""
        rules = self._plain_rules()
        if isinstance(self.rules, tuple):
            if len(rules) != count:
                raise InvalidArgumentError("clipping.rules", self.rules, f"one rule for each of the {count} groups of this model")
            return rules
        return rules if count == 1 else (rules[0].scale_bound(1 / math.sqrt(count)),) * count

    def groups(self, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Partition parameter names into groups that are clipped separately; refuse rules and noise that do not fit them."""
        found = self._match(names) if self.by == _BY_PATTERN else split_names(names, SPLITS[str(self.by)])
        self.group_rules(len(found))
        self._deviations(len(found))
        return found

    def _match(self, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        patterns = self._patterns()
        matched: dict[str, list[str]] = {pattern: [] for pattern in patterns}
        for name in names:
            pattern = next((pattern for pattern in patterns if re.fullmatch(pattern, name)), None)
            if pattern is None:
                fix = "A last pattern '.*' matches all remaining parameters."
                raise InvalidArgumentError("clipping.rules", patterns, f"patterns of which one fully matches {name!r}", fix)
            matched[pattern].append(name)
        if idle := [pattern for pattern in patterns if not matched[pattern]]:
            fix = f"The parameters are {', '.join(names)}."
            raise InvalidArgumentError("clipping.rules", idle[0], "a pattern that is the first to match some parameter", fix)
        return tuple(tuple(members) for members in matched.values())

    def _deviations(self, count: int) -> tuple[float, ...]:
        """Return the groups' standard deviations relative to each other."""
        if self.noise == "shared":
            return (1.0,) * count
        if self.noise == "per group":
            return tuple(rule.sensitivity for rule in self.group_rules(count))
        if len(self.noise) != count:
            raise InvalidArgumentError("clipping.noise", self.noise, f"one number for each of the {count} groups of this model")
        return self.noise  # type: ignore[return-value]

    def noise_scales(self, names: Sequence[str]) -> Mapping[str, float]:
        """Return name → uᵣ of its group; empty if all are equal."""
        groups = self.groups(names)
        deviations = self._deviations(len(groups))
        if len(set(deviations)) == 1:
            return {}
        bounds = [rule.sensitivity for rule in self.group_rules(len(groups))]
        common = math.hypot(*(bound / a for bound, a in zip(bounds, deviations, strict=True))) / self.sensitivity
        return {name: common * a for group, a in zip(groups, deviations, strict=True) for name in group}

    def weight(self, norms: Tensor) -> Tensor:
        """Return the factors for a (G, B) tensor of group norms, same shape."""
        rules = self.group_rules(len(norms))
        if len(set(rules)) == 1:
            return rules[0].weight(norms)
        precise = norms.double()
        factors = torch.stack([rule.factor(row) for rule, row in zip(rules, precise, strict=True)])
        return round_weights(factors, precise, norms.dtype)

    def scale_bound(self, factor: float) -> Layerwise:
        """Return the rule with every group's bound multiplied by the factor."""
        return self._replace_rules([rule.scale_bound(factor) for rule in self._plain_rules()])

    def scale_bounds(self, factors: Sequence[float]) -> Layerwise:
        """Return the rule with the bound of each of `len(factors)` groups multiplied by its own factor."""
        scaled = [rule.scale_bound(factor) for rule, factor in zip(self.group_rules(len(factors)), factors, strict=True)]
        return self._replace_rules(scaled, shared=False)

    def _replace_rules(self, rules: Sequence[NormRule], *, shared: bool = True) -> Layerwise:
        if self.by == _BY_PATTERN:
            return replace(self, rules=tuple(zip(self._patterns(), rules, strict=True)))
        return replace(self, rules=rules[0] if shared and not isinstance(self.rules, tuple) else tuple(rules))


def _check_by(by: str | None, *, patterned: bool) -> str:
    if patterned:
        if by not in (None, _BY_PATTERN):
            raise InvalidArgumentError("clipping.by", by, "left out for patterns, each of which is a group")
        return _BY_PATTERN
    return "module" if by is None else choice("clipping.by", by, SPLITS, "Pass patterns as a mapping of pattern to rule.")


def _check_patterns(rules: Sequence[Any]) -> None:
    for item in rules:
        if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[0], str):
            raise InvalidArgumentError("clipping.rules", item, "a pair of a regular expression and a rule, like the other items")
        try:
            re.compile(item[0])
        except re.error as error:
            fix = f"It does not parse: {error}."
            raise InvalidArgumentError("clipping.rules", item[0], "a regular expression", fix) from None
    patterns = [item[0] for item in rules]
    if len(set(patterns)) < len(patterns):
        raise InvalidArgumentError("clipping.rules", patterns, "made of distinct patterns")


def split_names(names: Sequence[str], key: Callable[[str], str]) -> tuple[tuple[str, ...], ...]:
    """Partition names into groups of the same key, in the order of their first names."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(key(name), []).append(name)
    return tuple(map(tuple, found.values()))
