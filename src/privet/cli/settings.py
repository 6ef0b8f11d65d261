"""Options shared by several commands, and the parts of a plan that they describe."""

from __future__ import annotations

__all__ = [
    "SCHEDULES",
    "SCHEMES",
    "STYLES",
    "Accountant",
    "Adjacency",
    "Augment",
    "BatchSize",
    "BoundSchedule",
    "Classes",
    "Clipping",
    "CoupleLearningRate",
    "Cutoff",
    "Delta",
    "EpochsOption",
    "FixedNoise",
    "GroupSize",
    "History",
    "InnerMomentum",
    "OptimizerOptions",
    "OuterMomentum",
    "PerExampleMomentum",
    "Projections",
    "Quantile",
    "Refresh",
    "Sampling",
    "Scale",
    "Source",
    "Sparsify",
    "SparsifyRanked",
    "Stability",
    "Steps",
    "Style",
    "Test",
    "Unit",
    "UserCap",
    "UserColumn",
    "Views",
    "clipping_rule",
    "length",
    "momentum",
    "question",
    "schedule",
    "scheme",
    "sparsification",
    "unit",
]

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from privet._utils.documents import DocumentError, from_json
from privet.accounting import ACCOUNTANTS, ADJACENCIES, group_unit
from privet.cli.topics import CLIPPING, DATA, MODEL, PRIVACY, SAMPLING, VARIANTS
from privet.clipping import NORM_RULES, AdaptiveQuantile, Layerwise, NormRule, Projected, Rule
from privet.errors import InvalidArgumentError, choice, real
from privet.momentum import InnerOuter, Momentum, PerExample
from privet.noise import SOURCES, Gaussian
from privet.plan import Epochs, PrivacyMechanism
from privet.sampling import BallsInBins, FixedSize, FullBatch, Poisson, Scheme, Shuffle, TruncatedPoisson
from privet.schedules import Constant, Geometric, Linear, Schedule
from privet.sparsification import Random, Ranked, Sparsification
from privet.units import AUGMENTATIONS

# Style on the command line → a rule that clips all parameters together, or each group by itself.
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


# Name → function from batch size and number of examples to the scheme. Truncation is six standard deviations above the mean.
SCHEMES: dict[str, Callable[[float, int], Scheme]] = {
    "poisson": lambda size, _: Poisson(size),
    "truncated-poisson": lambda size, _: TruncatedPoisson(size, cap=math.ceil(size + 6 * math.sqrt(size))),
    "fixed-size": lambda size, _: FixedSize(_whole(size)),
    "balls-in-bins": lambda size, _: BallsInBins(size),
    "full-batch": _full,
    "shuffle": lambda size, _: Shuffle(_whole(size)),
}


def _having(option: str) -> dict[str, Any]:
    """Return rule → default value of an option, for the rules that have this option."""
    return {
        name.lower(): kind.__dataclass_fields__[option].default
        for name, kind in NORM_RULES.items()
        if option in kind.__dataclass_fields__
    }


def _of(option: str) -> str:
    """Return a phrase with the rules that have an option, and its defaults."""
    return "For " + ", ".join(
        f"{rule} (default: {'the bound' if default is None else default})" for rule, default in _having(option).items()
    )


Delta = Annotated[float, typer.Option(help="Target δ; below 1 / examples.", rich_help_panel=PRIVACY)]
BatchSize = Annotated[float, typer.Option(help="Expected batch size.", rich_help_panel=SAMPLING)]
Steps = Annotated[int | None, typer.Option(help="Number of steps.", rich_help_panel=SAMPLING)]
EpochsOption = Annotated[
    float | None, typer.Option("--epochs", help="Passes over the data, instead of --steps.", rich_help_panel=SAMPLING)
]
Adjacency = Annotated[
    str, typer.Option(help=f"Relation between neighbouring data sets: {_words(ADJACENCIES)}.", rich_help_panel=PRIVACY)
]
Sampling = Annotated[str, typer.Option(help=f"Sampling scheme of the batches: {_words(SCHEMES)}.", rich_help_panel=SAMPLING)]
Accountant = Annotated[
    str,
    typer.Option(help=f"Privacy accountant: {_words(ACCOUNTANTS)} (gdp may underestimate ε).", rich_help_panel=PRIVACY),
]
Clipping = Annotated[str, typer.Option(help=f"Clipping rule: {_words(NORM_RULES)}.", rich_help_panel=CLIPPING)]
Stability = Annotated[
    float | None,
    typer.Option(help=f"Constant r in the weight's denominator. {_of('stability')}.", rich_help_panel=CLIPPING),
]
Scale = Annotated[
    float | None,
    typer.Option(help=f"Factor s of the norm in the weight's denominator. {_of('scale')}.", rich_help_panel=CLIPPING),
]
Cutoff = Annotated[
    float | None, typer.Option(help=f"Norm above which a gradient is dropped. {_of('cutoff')}.", rich_help_panel=CLIPPING)
]
Quantile = Annotated[
    float | None,
    typer.Option(
        "--adaptive-quantile",
        help="Adapt the bound, privately, to this quantile of the gradient norms.",
        rich_help_panel=CLIPPING,
    ),
]
Projections = Annotated[
    int | None,
    typer.Option(
        help="Estimate norms from this many random projections instead of computing them; use at least 30.",
        rich_help_panel=CLIPPING,
    ),
]
Style = Annotated[
    str,
    typer.Option(help=f"Groups that are clipped separately: {_words(STYLES)} (flat: one group).", rich_help_panel=CLIPPING),
]
Source = Annotated[
    str,
    typer.Option(
        "--noise-source", help=f"Random number generator: {_words(SOURCES)} (fixed gives no privacy).", rich_help_panel=PRIVACY
    ),
]

BoundSchedule = Annotated[
    str,
    typer.Option(
        help=f"Schedule of the clip bound: {_words(SCHEDULES)} (the last two end at half the bound).", rich_help_panel=CLIPPING
    ),
]
FixedNoise = Annotated[
    bool,
    typer.Option(
        "--fixed-noise", help="Keep the noise standard deviation while the bound shrinks, so that later steps spend less ε.",
        rich_help_panel=CLIPPING,
    ),
]  # fmt: skip
Sparsify = Annotated[
    float | None,
    typer.Option(
        help="Final fraction of coordinates to leave out; it grows from 0 and does not improve ε.", rich_help_panel=VARIANTS
    ),
]
Refresh = Annotated[
    int | None, typer.Option(help="Number of masks per epoch, for --sparsify; default: 1.", rich_help_panel=VARIANTS)
]
SparsifyRanked = Annotated[
    bool,
    typer.Option(
        "--sparsify-ranked",
        help="Leave out the coordinates with the smallest releases, not random ones.",
        rich_help_panel=VARIANTS,
    ),
]
InnerMomentum = Annotated[
    float | None,
    typer.Option(
        help="Weight γ₀ of an example's gradient at the previous parameters; requires --history.", rich_help_panel=VARIANTS
    ),
]
OuterMomentum = Annotated[
    float | None,
    typer.Option(help="γ₁ in M ← (1 − γ₁)·M + release, instead of --momentum.", rich_help_panel=VARIANTS),
]
History = Annotated[
    int | None,
    typer.Option(
        help="Number K₀ of past parameters for --inner-momentum; each adds a pass to every step.", rich_help_panel=VARIANTS
    ),
]
PerExampleMomentum = Annotated[
    float | None,
    typer.Option(help="γ in m ← γ·g + (1 − γ)·m, for each example; full batches only.", rich_help_panel=VARIANTS),
]


def _classes(given: str | int | Sequence[object]) -> str:
    """Return the classes as text; a configuration may give them as a list or a number."""
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
        help="Classes of a file: K for the labels 0 to K−1, or the labels in order, separated by commas. "
        "Never read from the rows.",
        rich_help_panel=DATA,
    ),
]
Test = Annotated[
    str | None,
    typer.Option(
        help="Public test data for a file, in the format of --data. Without test data, no accuracy is reported.",
        rich_help_panel=DATA,
    ),
]
UserColumn = Annotated[
    str | None,
    typer.Option(
        help="Column (CSV) or array (.npz) of user ids: the unit of privacy becomes the user; requires --user-cap.",
        rich_help_panel=PRIVACY,
    ),
]
UserCap = Annotated[int | None, typer.Option(help="Largest number of examples used per user.", rich_help_panel=PRIVACY)]
GroupSize = Annotated[
    int | None,
    typer.Option(
        help="Number of examples that form one unit of privacy; requires --adjacency replace-one.", rich_help_panel=PRIVACY
    ),
]
Views = Annotated[
    int | None,
    typer.Option(help="Number of augmented views per image, averaged before clipping; requires --augment.", rich_help_panel=DATA),
]
Augment = Annotated[
    str | None, typer.Option(help=f"Augmentations, separated by commas: {_words(AUGMENTATIONS)}.", rich_help_panel=DATA)
]
Unit = Annotated[
    str,
    typer.Option(
        help="Unit of privacy, in which --examples and --batch-size count: example, user, or group:4 for groups of four.",
        rich_help_panel=PRIVACY,
    ),
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
    typer.Option(
        parser=_options, metavar="JSON", help="Further optimizer arguments, such as '{\"weight_decay\": 0.01}'.",
        rich_help_panel=MODEL,
    ),
]  # fmt: skip
CoupleLearningRate = Annotated[
    bool,
    typer.Option(
        "--couple-learning-rate", help="Scale the learning rate to keep η·σ·C constant under schedules of bound and noise.",
        rich_help_panel=MODEL,
    ),
]  # fmt: skip


def unit(word: str) -> str:
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
                f"--{option}", value, f"left out with the rule {name!r}", f"It is an option of {', '.join(_having(option))}."
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
    """Return the sparsification that these options describe, or None without a rate, which the other options require."""
    if rate is not None:
        return (Ranked if ranked else Random)(rate, 1 if refresh is None else refresh)
    if refresh is not None or ranked:
        option, value = ("--refresh", refresh) if refresh is not None else ("--sparsify-ranked", ranked)
        raise InvalidArgumentError(
            option, value, "left out without --sparsify", "Give the final rate too, such as --sparsify 0.9."
        )
    return None


def schedule(name: str) -> Schedule:
    """Return the schedule with this name and its default settings."""
    return SCHEDULES[choice("--bound-schedule", name, SCHEDULES)]()


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
    unit: str,
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
