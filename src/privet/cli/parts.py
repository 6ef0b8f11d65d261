"""Parts of a plan, from the options of the command line."""

from __future__ import annotations

from typing import Any

from privet.cli import options
from privet.cli.options import NOISES, SCHEDULES, SCHEMES, STYLES, rules_with
from privet.cli.output import as_option
from privet.clipping import GEP, NORM_RULES, AdaptiveQuantile, NormRule, Projected, Rule
from privet.errors import InvalidArgumentError, choice, real
from privet.momentum import InnerOuter, Momentum, PerExample
from privet.noise import Banded, NoiseMechanism
from privet.plan import Holdout
from privet.sampling import CyclicPoisson, Poisson, Scheme
from privet.schedules import Schedule
from privet.sparsification import Random, Ranked, Sparsification

# Anchors and dimensions of gradient embedding perturbation, and the residual's bound over the embedding's (2 and 5 in the paper).
_ANCHORED, _RESIDUAL = 500, 0.4


def _or(value: Any, usual: Any) -> Any:
    return usual if value is None else value


def momentum(given: options.MechanismOptions) -> Momentum | None:
    """Return the momentum of gradients, or None if no option describes any."""
    if given.per_example_momentum is not None:
        return PerExample(given.per_example_momentum)
    if given.inner_momentum is given.outer_momentum is None:
        return None
    return InnerOuter(inner=_or(given.inner_momentum, 1.0), outer=_or(given.outer_momentum, 1.0), length=given.history or 0)


def holdout(held_out: int, epsilon: float | None, delta: float, adjacency: str) -> Holdout | None:
    """Return the query with an ε of its own on `held_out` entries, or None without any."""
    if (epsilon is None) != (held_out == 0):
        missing, given = ("--holdout", "--evaluation-epsilon") if held_out == 0 else ("--evaluation-epsilon", "--holdout")
        raise InvalidArgumentError(missing, None, f"given with {given}", "Such as --holdout 0.2 --evaluation-epsilon 0.1.")
    return None if epsilon is None else Holdout.calibrate(epsilon, delta=delta, adjacency=adjacency, examples=held_out)


def class_priors(text: str | None) -> tuple[float, ...] | None:
    """Return the class priors in a text such as "0.76,0.24"."""
    try:
        return None if text is None else tuple(map(float, text.split(",")))
    except ValueError:
        raise InvalidArgumentError("--class-priors", text, "numbers separated by commas, such as 0.76,0.24") from None


def clipping_rule(given: options.ClippingOptions, bound: float) -> Rule:
    """Return the clipping rule that the options describe, with this bound of the whole gradient."""
    kinds = {rule.lower(): kind for rule, kind in NORM_RULES.items()}
    kind = kinds[choice("--clipping", given.clipping, kinds)]
    own = {name: value for name in ("stability", "scale", "cutoff") if (value := getattr(given, name)) is not None}
    for option, value in own.items():
        if option not in kind.__dataclass_fields__:
            allowed, rules = f"left out with the rule {given.clipping!r}", ", ".join(rules_with(option))
            raise InvalidArgumentError(as_option(option), value, allowed, f"It is an option of {rules}.")
    rule: Rule = STYLES[choice("--style", given.style, STYLES)](kind(bound=bound, **own))
    if given.adaptive_quantile is not None:
        return AdaptiveQuantile(rule, quantile=given.adaptive_quantile)  # type: ignore[arg-type]
    return rule


def projected(rule: Rule, given: options.MechanismOptions) -> Rule:
    """Return the rule with norms estimated from projections, or for embeddings in subspaces of public gradients, if asked for."""
    if given.projections is not None:
        rule = Projected(rule, given.projections)
    if given.public is None:
        return rule
    if not isinstance(rule, NormRule):
        allowed = "left out with --style, --adaptive-quantile and --projections"
        raise InvalidArgumentError("--public", given.public, allowed, "A rule of one norm is needed.")
    factor = _RESIDUAL if given.residual_bound is None else given.residual_bound / rule.bound
    return GEP(
        embedding=rule,
        residual=rule.scale_bound(factor) if factor else None,
        public=given.public,
        dimensions=_or(given.dimensions, _ANCHORED),
        anchors=_or(given.anchors, _ANCHORED),
    )


def noise(given: options.MechanismOptions, multiplier: float | None, source: str, momentum: float) -> NoiseMechanism:
    """Return the noise that the options describe; correlated noise is optimised for the heavy-ball momentum of the optimizer."""
    kind = NOISES[choice("--noise", given.noise, NOISES)]
    deviation = "fixed" if given.fixed_noise else None
    all_options = {"bands": given.bands, "buffers": given.buffers, "momentum": momentum, "deviation": deviation}
    own = {name: value for name, value in all_options.items() if name in kind.__dataclass_fields__ and value is not None}
    return kind(multiplier=multiplier, source=source, non_private=multiplier == 0, **own)


def cyclic(sampling: Scheme, noise: NoiseMechanism) -> Scheme:
    """Return Poisson sampling in cycles of as many steps as the noise has bands, and any other scheme as it is."""
    if isinstance(noise, Banded) and isinstance(sampling, Poisson):
        return CyclicPoisson(sampling.batch_size, cycle=noise.bands)
    return sampling


def scheme(name: str, batch_size: float, examples: int) -> Scheme:
    """Return the sampling scheme with this name."""
    real("sampling.batch_size", batch_size)
    return SCHEMES[choice("--sampling", name, SCHEMES)](batch_size, examples)


def sparsification(given: options.SparsityOptions) -> Sparsification | None:
    """Return the sparsification that the options describe, or None without a rate."""
    if given.sparsify is None:
        return None
    return (Ranked if given.sparsify_ranked else Random)(given.sparsify, _or(given.refresh, 1))


def schedule(text: str) -> Schedule:
    """Return the schedule in a text such as "linear", "linear:2000", "geometric:0.001" or "piecewise:1@0.95,200"."""
    name, _, setting = text.partition(":")
    allowed, make = SCHEDULES[choice("--bound-schedule", name, SCHEDULES)]
    try:
        return make(setting) if setting else make()
    except InvalidArgumentError as error:
        raise InvalidArgumentError("--bound-schedule", text, f"such that {error.name} is {error.allowed}", error.fix) from None
    except (TypeError, ValueError):
        raise InvalidArgumentError("--bound-schedule", text, allowed) from None
