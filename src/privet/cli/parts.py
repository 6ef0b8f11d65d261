"""Parts of a plan, built from the words of the command line."""

from __future__ import annotations

__all__ = [
    "NOISES",
    "SCHEDULES",
    "SCHEMES",
    "STYLES",
    "class_counts",
    "class_priors",
    "clipping_rule",
    "cyclic",
    "embedded",
    "holdout",
    "length",
    "momentum",
    "noise",
    "question",
    "rules_with",
    "schedule",
    "scheme",
    "sparsification",
    "unit",
]

import math
from collections.abc import Callable
from typing import Any

from privet.accounting.privacy_unit import Unit, group_unit
from privet.clipping import GEP, NORM_RULES, AdaptiveQuantile, Layerwise, NormRule, Projected, Rule
from privet.errors import InvalidArgumentError, choice, real
from privet.momentum import InnerOuter, Momentum, PerExample
from privet.noise import Banded, BufferedToeplitz, Gaussian, NoiseMechanism, Tree
from privet.plan import ClassCounts, Holdout, PrivacyMechanism
from privet.plan.mechanism import Epochs
from privet.sampling import (
    BallsInBins,
    CyclicPoisson,
    FixedOrder,
    FixedSize,
    FullBatch,
    Poisson,
    Scheme,
    Shuffle,
    TruncatedPoisson,
)
from privet.schedules import Constant, Geometric, Linear, Piecewise, Schedule
from privet.sparsification import Random, Ranked, Sparsification

# Style on the command line → a rule that clips all parameters together, or each group by itself.
STYLES: dict[str, Callable[[NormRule], NormRule | Layerwise]] = {
    "flat": lambda rule: rule,
    "parameter": lambda rule: Layerwise(rule, by="parameter"),
    "module": lambda rule: Layerwise(rule, by="module"),
}

# Anchors and dimensions of gradient embedding perturbation, and the residual's bound over the embedding's (2 and 5 in the paper).
_ANCHORED, _RESIDUAL = 500, 0.4

# Noise over the steps → the option that only it has, if any.
NOISES: dict[str, str | None] = {"independent": "fixed_noise", "banded": "bands", "buffered": "buffers", "tree": None}


def _constant(setting: str) -> Schedule:
    if setting:
        raise ValueError
    return Constant()


def _piecewise(setting: str) -> Schedule:
    *pieces, last = setting.split(",")
    values, ends = zip(*(map(float, piece.split("@")) for piece in pieces), strict=True)
    return Piecewise((*values, float(last)), ends)


# Name → function from the setting after the colon, "" without one.
SCHEDULES: dict[str, Callable[[str], Schedule]] = {
    "constant": _constant,
    "linear": lambda setting: Linear(over=int(setting)) if setting else Linear(),
    "geometric": lambda setting: Geometric(float(setting)) if setting else Geometric(),
    "piecewise": _piecewise,
}
_FORMS = {
    "constant": "without a setting",
    "linear": "linear, or with its target length in steps, such as linear:2000",
    "geometric": "geometric, or with its rate, such as geometric:0.001",
    "piecewise": "with factors and ends, such as piecewise:1@0.95,200 for the factor 1 up to 95 % of the steps and then 200",
}


def _full(size: float, examples: int) -> Scheme:
    if size != examples:
        raise InvalidArgumentError("--batch-size", size, f"the number of examples, {examples}, for a full batch")
    return FullBatch()


def _whole(size: float) -> Any:
    return int(size) if size == int(size) else size


# Name → function from batch size and number of examples to the scheme. Truncation is six standard deviations above the mean.
SCHEMES: dict[str, Callable[[float, int], Scheme]] = {
    "poisson": lambda size, _: Poisson(size),
    "truncated-poisson": lambda size, _: TruncatedPoisson(size, cap=math.ceil(size + 6 * math.sqrt(size))),
    "fixed-size": lambda size, _: FixedSize(_whole(size)),
    "balls-in-bins": lambda size, _: BallsInBins(size),
    "fixed-order": lambda size, _: FixedOrder(size),
    "full-batch": _full,
    "shuffle": lambda size, _: Shuffle(_whole(size)),
}


def rules_with(option: str) -> dict[str, Any]:
    """Return rule → default value of an option, for the rules that have this option."""
    return {
        name.lower(): kind.__dataclass_fields__[option].default
        for name, kind in NORM_RULES.items()
        if option in kind.__dataclass_fields__
    }


def unit(word: str) -> str | Unit:
    """Return the plan's name for a unit of privacy such as "user" or "group:4"."""
    kind, _, size = word.partition(":")
    if kind == "group" and size.isdecimal() and int(size) > 0:
        return group_unit(int(size))
    return "one " + choice("--unit", word, ("example", "user"), "For groups of four: group:4.")


def momentum(inner: float | None, outer: float | None, history: int | None, per_example: float | None) -> Momentum | None:
    """Return the momentum that these options describe, or None if none of them is given."""
    if per_example is not None:
        others = {"--inner-momentum": inner, "--outer-momentum": outer, "--history": history}
        for option, value in others.items():
            if value is not None:
                raise InvalidArgumentError(option, value, "left out with --per-example-momentum", "Choose one of the two.")
        return PerExample(per_example)
    if (inner is None) != (history is None):
        missing = "--inner-momentum" if inner is None else "--history"
        raise InvalidArgumentError(missing, None, "given with the other", "Give both, such as --inner-momentum 0.9 --history 2.")
    if inner is None and outer is None:
        return None
    return InnerOuter(inner=1.0 if inner is None else inner, outer=1.0 if outer is None else outer, length=history or 0)


def holdout(held_out: int, epsilon: float | None, delta: float, adjacency: str) -> Holdout | None:
    """Return the query on held-out entries, or None if nothing is held out.

    Args:
        held_out: public number of held-out entries.
        epsilon: ε of the query alone.
        delta, adjacency: of the plan.

    Raises:
        InvalidArgumentError: only one of --holdout and --evaluation-epsilon is given.
    """
    if (epsilon is None) != (held_out == 0):
        missing, given = ("--holdout", "--evaluation-epsilon") if held_out == 0 else ("--evaluation-epsilon", "--holdout")
        raise InvalidArgumentError(missing, None, f"given with {given}", "Such as --holdout 0.2 --evaluation-epsilon 0.1.")
    return None if epsilon is None else Holdout.calibrate(epsilon, delta=delta, adjacency=adjacency, examples=held_out)


def class_counts(epsilon: float | None, delta: float, adjacency: str) -> ClassCounts | None:
    """Return the query for the number of training entries of each class; None without an ε for it."""
    return None if epsilon is None else ClassCounts.calibrate(epsilon, delta=delta, adjacency=adjacency)


def class_priors(text: str | None) -> tuple[float, ...] | None:
    """Return the class priors in a text such as "0.76,0.24".

    Raises:
        InvalidArgumentError: they are not numbers.
    """
    try:
        return None if text is None else tuple(map(float, text.split(",")))
    except ValueError:
        raise InvalidArgumentError("--class-priors", text, "numbers separated by commas, such as 0.76,0.24") from None


def clipping_rule(
    name: str, bound: float, style: str, adaptive_quantile: float | None, projections: int | None, **options: float | None
) -> Rule:
    """Return the clipping rule that these options describe.

    Args:
        name: name of the rule, in lower case.
        bound: clip bound of the whole gradient.
        style: "flat" for one group, or "parameter" or "module" for a group per parameter or module.
        adaptive_quantile: quantile that the bound follows; None for a fixed bound.
        projections: number of random projections that norms are estimated from; None for exact norms.
        options: other fields of the rule; None for the rule's default.

    Raises:
        InvalidArgumentError: the rule does not have one of the options.
    """
    kinds = {rule.lower(): kind for rule, kind in NORM_RULES.items()}
    kind = kinds[choice("--clipping", name, kinds)]
    given = {option: value for option, value in options.items() if value is not None}
    for option, value in given.items():
        if option not in kind.__dataclass_fields__:
            raise InvalidArgumentError(
                f"--{option}", value, f"left out with the rule {name!r}", f"It is an option of {', '.join(rules_with(option))}."
            )
    rule: Rule = STYLES[choice("--style", style, STYLES)](kind(bound=bound, **given))
    if adaptive_quantile is not None:
        rule = AdaptiveQuantile(rule, quantile=adaptive_quantile)  # type: ignore[arg-type]
    return rule if projections is None else Projected(rule, projections)


def embedded(rule: Rule, public: str | None, dimensions: int | None, anchors: int | None, residual_bound: float | None) -> Rule:
    """Return the rule for embeddings in subspaces of public gradients, or the rule itself without public data.

    Args:
        rule: rule of the command line, for the embedding and, with another bound, for the residual.
        public: name of the public data.
        dimensions, anchors: of `GEP`; None for the defaults.
        residual_bound: bound of the residual; 0 for none, None for the usual fraction of the embedding's.

    Raises:
        InvalidArgumentError: an option is given without --public, or the rule does not have a single norm.
    """
    options = {"--dimensions": dimensions, "--anchors": anchors, "--residual-bound": residual_bound}
    if public is None:
        for option, value in options.items():
            if value is not None:
                raise InvalidArgumentError(option, value, "left out without --public", "Such as --public mnist.")
        return rule
    if not isinstance(rule, NormRule):
        raise InvalidArgumentError(
            "--public", public, "left out with --style, --adaptive-quantile and --projections", "A rule of one norm is needed."
        )
    factor = _RESIDUAL if residual_bound is None else residual_bound / rule.bound
    return GEP(
        embedding=rule,
        residual=rule.scale_bound(factor) if factor else None,
        dimensions=_ANCHORED if dimensions is None else dimensions,
        anchors=_ANCHORED if anchors is None else anchors,
        public=public,
    )


def noise(
    name: str,
    multiplier: float | None,
    *,
    source: str,
    momentum: float,
    fixed_noise: bool = False,
    bands: int | None = None,
    buffers: int | None = None,
) -> NoiseMechanism:
    """Return the noise that these options describe.

    Args:
        name: one of `NOISES`.
        multiplier: noise multiplier; None leaves it to calibration.
        source: tier of the source of randomness.
        momentum: heavy-ball momentum of the optimizer, for which correlated noise is optimised.
        fixed_noise: whether the deviation stays the same under a shrinking bound.
        bands, buffers: of banded and of buffered noise; None for 8 and 3.

    Raises:
        InvalidArgumentError: an option does not belong to this noise.
    """
    own = NOISES[choice("--noise", name, NOISES)]
    for option, value in {"fixed_noise": fixed_noise or None, "bands": bands, "buffers": buffers}.items():
        if value is not None and option != own:
            needed = next(kind for kind, belongs in NOISES.items() if belongs == option)
            raise InvalidArgumentError(f"--{option.replace('_', '-')}", value, f"left out without --noise {needed}")
    without = multiplier == 0
    if name == "banded":
        return Banded(multiplier, 8 if bands is None else bands, source=source, non_private=without, momentum=momentum)
    if name == "buffered":
        number = 3 if buffers is None else buffers
        return BufferedToeplitz(number, multiplier=multiplier, source=source, non_private=without, momentum=momentum)
    if name == "tree":
        return Tree(multiplier, source=source, non_private=without)
    return Gaussian(multiplier, source, without, deviation="fixed" if fixed_noise else "follows the bound")


def cyclic(sampling: Scheme, noise: NoiseMechanism) -> Scheme:
    """Return Poisson sampling in cycles of as many steps as the noise has bands, and any other scheme as it is."""
    if isinstance(noise, Banded) and isinstance(sampling, Poisson):
        return CyclicPoisson(sampling.batch_size, cycle=noise.bands)
    return sampling


def scheme(name: str, batch_size: float, examples: int) -> Scheme:
    """Return the sampling scheme with this name."""
    real("sampling.batch_size", batch_size)
    return SCHEMES[choice("--sampling", name, SCHEMES)](batch_size, examples)


def sparsification(rate: float | None, refresh: int | None, ranked: bool) -> Sparsification | None:
    """Return the sparsification that these options describe, or None without a rate, which the other options require."""
    if rate is not None:
        return (Ranked if ranked else Random)(rate, 1 if refresh is None else refresh)
    if refresh is not None or ranked:
        option, value = ("--refresh", refresh) if refresh is not None else ("--sparsify-ranked", ranked)
        raise InvalidArgumentError(
            option, value, "left out without --sparsify", "Give the final rate too, such as --sparsify 0.9."
        )
    return None


def schedule(text: str) -> Schedule:
    """Return the schedule in a text such as "linear", "linear:2000", "geometric:0.001" or "piecewise:1@0.95,200".

    Args:
        text: a name and, after a colon, its setting: the number of steps after which "linear" is at one half, where it stays;
            the fraction that "geometric" subtracts per step; or the factors of "piecewise", each with the end of its piece as a
            fraction of all steps, and the last one without.

    Raises:
        InvalidArgumentError: there is no such schedule, or the setting cannot be read.
    """
    name, _, setting = text.partition(":")
    make = SCHEDULES[choice("--bound-schedule", name, SCHEDULES)]
    try:
        return make(setting)
    except InvalidArgumentError as error:
        raise InvalidArgumentError("--bound-schedule", text, f"such that {error.name} is {error.allowed}", error.fix) from None
    except ValueError:
        raise InvalidArgumentError("--bound-schedule", text, f"{_FORMS[name]}") from None


def length(steps: int | None, epochs: float | None, *, needed: bool) -> int | Epochs | None:
    """Return the training length from --steps or --epochs.

    Raises:
        InvalidArgumentError: both are given, or neither although one is needed.
    """
    if steps is not None and epochs is not None:
        raise InvalidArgumentError("--epochs", epochs, "left out when --steps is given", "Choose one of the two.")
    if needed and steps is None and epochs is None:
        raise InvalidArgumentError("--steps", None, "given", "Set the length of the training with --steps or --epochs.")
    return Epochs(epochs) if epochs is not None else steps


def question(
    examples: int,
    batch_size: float,
    steps: int | Epochs | None,
    delta: float,
    adjacency: str,
    sampling: str,
    noise: Gaussian,
    unit: str | Unit,
) -> PrivacyMechanism:
    """Return the mechanism for a question about ε, noise or steps, which does not depend on clipping."""
    return PrivacyMechanism(
        examples=examples,
        sampling=scheme(sampling, batch_size, examples),
        steps=steps,
        delta=delta,
        adjacency=adjacency,
        noise=noise,
        unit=unit,
    )
