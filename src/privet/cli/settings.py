"""Options that several verbs share, and the plan they describe."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from privet._utils.documents import DocumentError, from_json
from privet.accounting import ACCOUNTANTS, ADJACENCIES, group_unit
from privet.clipping import NORM_RULES, AdaptiveQuantile, Layerwise, NormRule, Projected, Rule
from privet.errors import InvalidArgumentError, choice, real
from privet.momentum import InnerOuter, Momentum, PerExample
from privet.noise import SOURCES, Gaussian
from privet.plan import Epochs, Mechanism
from privet.sampling import BallsInBins, FixedSize, FullBatch, Poisson, Scheme, Shuffle, TruncatedPoisson
from privet.schedules import Constant, Geometric, Linear, Schedule
from privet.sparsification import Random, Ranked, Sparsification
from privet.units import AUGMENTATIONS

# What forms a group that is clipped by itself, as the command line calls it.
STYLES: dict[str, Callable[[NormRule], NormRule | Layerwise]] = {
    "flat": lambda rule: rule,
    "parameter": lambda rule: Layerwise(rule, by="parameter"),
    "module": lambda rule: Layerwise(rule, by="module"),
}

SCHEDULES: dict[str, type[Schedule]] = {"constant": Constant, "linear": Linear, "geometric": Geometric}


def _words(table: object) -> str:
    return ", ".join(str(name).lower() for name in table)  # type: ignore[attr-defined]


def _full(size: float, examples: int) -> Scheme:
    if size != examples:
        raise InvalidArgumentError("--batch-size", size, f"the number of examples, {examples}, for a full batch")
    return FullBatch()


def _whole(size: float) -> Any:
    return int(size) if size == int(size) else size


# Name → the scheme of this batch size, for so many examples. A truncated batch ends six standard deviations above its mean.
SCHEMES: dict[str, Callable[[float, int], Scheme]] = {
    "poisson": lambda size, _: Poisson(size),
    "truncated-poisson": lambda size, _: TruncatedPoisson(size, cap=math.ceil(size + 6 * math.sqrt(size))),
    "fixed-size": lambda size, _: FixedSize(_whole(size)),
    "balls-in-bins": lambda size, _: BallsInBins(size),
    "full-batch": _full,
    "shuffle": lambda size, _: Shuffle(_whole(size)),
}


def _having(option: str) -> dict[str, Any]:
    """Return rule → its default of an option, for the rules that have it."""
    return {
        name.lower(): kind.__dataclass_fields__[option].default
        for name, kind in NORM_RULES.items()
        if option in kind.__dataclass_fields__
    }


def _of(option: str) -> str:
    """Return which rules have an option, and their defaults."""
    return "Of " + ", ".join(
        f"{rule} (default: {'the bound' if default is None else default})" for rule, default in _having(option).items()
    )


Delta = Annotated[float, typer.Option(help="δ: below 1 / examples.")]
BatchSize = Annotated[float, typer.Option(help="Expected number of examples in a step.")]
Steps = Annotated[int | None, typer.Option(help="Number of steps.")]
EpochsOption = Annotated[float | None, typer.Option("--epochs", help="Number of passes over the data, instead of --steps.")]
Adjacency = Annotated[str, typer.Option(help=f"How neighbouring data sets differ: {_words(ADJACENCIES)}.")]
Sampling = Annotated[str, typer.Option(help=f"Who takes part in a step: {_words(SCHEMES)}.")]
Accountant = Annotated[str, typer.Option(help=f"Who computes ε: {_words(ACCOUNTANTS)} (gdp can be too small).")]
Clipping = Annotated[str, typer.Option(help=f"Clipping rule: {_words(NORM_RULES)}.")]
Stability = Annotated[float | None, typer.Option(help=f"Says where gradients count as small. {_of('stability')}.")]
Scale = Annotated[float | None, typer.Option(help=f"Factor of the norm in the weight. {_of('scale')}.")]
Cutoff = Annotated[float | None, typer.Option(help=f"Longest gradient that is kept. {_of('cutoff')}.")]
Quantile = Annotated[
    float | None,
    typer.Option("--adaptive-quantile", help="Part of the examples that is to stay within the bound, which then moves."),
]
Projections = Annotated[
    int | None, typer.Option(help="Random directions that norms are estimated from, instead of measuring them; 30 or more.")
]
Style = Annotated[str, typer.Option(help=f"What is clipped by itself: {_words(STYLES)} (flat: all parameters together).")]
Source = Annotated[
    str, typer.Option("--noise-source", help=f"Where randomness comes from: {_words(SOURCES)} (fixed: no privacy).")
]

BoundSchedule = Annotated[str, typer.Option(help=f"How the clip bound changes: {_words(SCHEDULES)} (to half of it).")]
FixedNoise = Annotated[
    bool, typer.Option("--fixed-noise", help="Keep the noise's deviation as the bound shrinks, so that later steps cost less.")
]
Sparsify = Annotated[
    float | None, typer.Option(help="Part of the coordinates that is left out at the end, growing from 0; no privacy is gained.")
]
Refresh = Annotated[int | None, typer.Option(help="Masks in an epoch, for --sparsify; default: 1.")]
SparsifyRanked = Annotated[
    bool, typer.Option("--sparsify-ranked", help="Leave out what was smallest instead of what chance says.")
]
InnerMomentum = Annotated[
    float | None, typer.Option(help="Weight γ₀ of an example's gradient at the last step's parameters; with --history.")
]
OuterMomentum = Annotated[float | None, typer.Option(help="γ₁ of (1 − γ₁)·M + release, instead of --momentum.")]
History = Annotated[int | None, typer.Option(help="Past parameter sets K₀ of the inner momentum; each costs a pass.")]
PerExampleMomentum = Annotated[
    float | None, typer.Option(help="γ of γ·g + (1 − γ)·m for every example by itself; for full batches.")
]


def _classes(given: str | int | Sequence[object]) -> str:
    """Return one text for what a configuration may have as a list or a number."""
    if isinstance(given, str | int) or not isinstance(given, Sequence):
        return str(given)
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(given)
    return line.getvalue()


Classes = Annotated[
    str | None,
    typer.Option(
        parser=_classes,
        metavar="K|A,B,…",
        help="Of a file: K if its labels are 0 to K−1, or the labels in order, with commas. Never read from the rows.",
    ),
]
Test = Annotated[
    str | None, typer.Option(help="File of public test data, like that of --data. Without it a file has no test accuracy.")
]
UserColumn = Annotated[
    str | None, typer.Option(help="Column (CSV) or array (.npz) with whose each example is: privacy for users; with --user-cap.")
]
UserCap = Annotated[int | None, typer.Option(help="Most examples of a user that are used.")]
GroupSize = Annotated[int | None, typer.Option(help="Examples that are clipped as one; for --adjacency replace-one.")]
Views = Annotated[int | None, typer.Option(help="Random views of an image that are averaged before the clip; with --augment.")]
Augment = Annotated[str | None, typer.Option(help=f"What makes a view, with commas between: {_words(AUGMENTATIONS)}.")]
Unit = Annotated[
    str, typer.Option(help="Whose privacy --examples and --batch-size count: example, user, or group:4 for 4 at once.")
]


def _options(given: str | Mapping[str, Any]) -> dict[str, Any]:
    try:
        found = from_json(given) if isinstance(given, str) else given
    except DocumentError:
        found = None
    if not isinstance(found, Mapping):
        raise InvalidArgumentError("--optimizer-options", given, "a JSON object, such as '{\"weight_decay\": 0.01}'")
    return dict(found)


OptimizerOptions = Annotated[
    dict[str, Any] | None,
    typer.Option(parser=_options, metavar="JSON", help="Further arguments of the optimizer: '{\"weight_decay\": 0.01}'."),
]
CoupleLearningRate = Annotated[
    bool,
    typer.Option("--couple-learning-rate", help="Let the learning rate make up for schedules of bound and noise: η·σ·C stays."),
]


def unit(word: str) -> str:
    """Return a plan's name of the unit that a word such as "user" or "group:4" stands for."""
    kind, _, size = word.partition(":")
    if kind == "group" and size.isdecimal() and int(size) > 0:
        return group_unit(int(size))
    return "one " + choice("--unit", word, ("example", "user"), "Groups of four are group:4.")


def momentum(inner: float | None, outer: float | None, history: int | None, per_example: float | None) -> Momentum | None:
    """Return the momentum that these options describe, None if none of them is given."""
    if per_example is not None:
        others = {"--inner-momentum": inner, "--outer-momentum": outer, "--history": history}
        for option, value in others.items():
            if value is not None:
                raise InvalidArgumentError(option, value, "left out with --per-example-momentum", "Choose one of the two.")
        return PerExample(per_example)
    if (inner is None) != (history is None):
        missing = "--inner-momentum" if inner is None else "--history"
        raise InvalidArgumentError(missing, None, "given with the other", "Inner momentum is --inner-momentum 0.9 --history 2.")
    if inner is None and outer is None:
        return None
    return InnerOuter(inner=1.0 if inner is None else inner, outer=1.0 if outer is None else outer, length=history or 0)


def clipping_rule(
    name: str, bound: float, style: str, adaptive_quantile: float | None, projections: int | None, **options: float | None
) -> Rule:
    """Return a rule of one norm, in a style, with a bound that is fixed or follows a quantile, by norms measured or estimated.

    Args:
        name: of the rule, in lower case.
        bound: clip bound of the whole gradient.
        style: "flat", or who forms a group: "parameter" or "module".
        adaptive_quantile: that the bound follows, if any.
        projections: number that norms are estimated from, if they are.
        options: the rule's other fields; None for the rule's own default. One that the rule does not have is refused.
    """
    kinds = {rule.lower(): kind for rule, kind in NORM_RULES.items()}
    kind = kinds[choice("--clipping", name, kinds)]
    given = {option: value for option, value in options.items() if value is not None}
    for option, value in given.items():
        if option not in kind.__dataclass_fields__:
            raise InvalidArgumentError(
                f"--{option}", value, f"left out: the rule {name!r} has none", f"It belongs to {', '.join(_having(option))}."
            )
    rule: Rule = STYLES[choice("--style", style, STYLES)](kind(bound=bound, **given))
    if adaptive_quantile is not None:
        rule = AdaptiveQuantile(rule, quantile=adaptive_quantile)  # type: ignore[arg-type]
    return rule if projections is None else Projected(rule, projections)


def scheme(name: str, batch_size: float, examples: int) -> Scheme:
    """Return the sampling scheme with this name."""
    real("sampling.batch_size", batch_size)
    return SCHEMES[choice("--sampling", name, SCHEMES)](batch_size, examples)


def sparsification(rate: float | None, refresh: int | None, ranked: bool) -> Sparsification | None:
    """Return the sparsification that these options describe; None without a rate, which the others need."""
    if rate is not None:
        return (Ranked if ranked else Random)(rate, 1 if refresh is None else refresh)
    if refresh is not None or ranked:
        option, value = ("--refresh", refresh) if refresh is not None else ("--sparsify-ranked", ranked)
        raise InvalidArgumentError(option, value, "left out without --sparsify", "Say how much to leave out: --sparsify 0.9.")
    return None


def schedule(name: str) -> Schedule:
    """Return the schedule with this name and its usual settings."""
    return SCHEDULES[choice("--bound-schedule", name, SCHEDULES)]()


def length(steps: int | None, epochs: float | None, *, needed: bool) -> int | Epochs | None:
    """Return the training length from two options of which one is to be given."""
    if steps is not None and epochs is not None:
        raise InvalidArgumentError("--epochs", epochs, "left out when --steps is given", "Choose one of the two.")
    if needed and steps is None and epochs is None:
        raise InvalidArgumentError("--steps", None, "given", "Say how long the training is, by --steps or --epochs.")
    return Epochs(epochs) if epochs is not None else steps


def question(
    examples: int,
    batch_size: float,
    steps: int | Epochs | None,
    delta: float,
    adjacency: str,
    sampling: str,
    noise: Gaussian,
    unit: str,
) -> Mechanism:
    """Return the mechanism that a question about ε, noise or steps is about; nothing that is clipped matters to it."""
    return Mechanism(
        examples=examples,
        sampling=scheme(sampling, batch_size, examples),
        steps=steps,
        delta=delta,
        adjacency=adjacency,
        noise=noise,
        unit=unit,
    )
