"""Options shared by several commands."""

from __future__ import annotations

__all__ = [
    "Accountant",
    "Adjacency",
    "Adopt",
    "AnchorsOption",
    "Augment",
    "Bands",
    "BatchSize",
    "BoundSchedule",
    "BudgetFile",
    "BudgetPart",
    "Buffers",
    "ClassCountsEpsilon",
    "ClassPriors",
    "Classes",
    "Clipping",
    "CoupleLearningRate",
    "Cutoff",
    "Delta",
    "Dimensions",
    "EpochsOption",
    "EvaluationEpsilon",
    "FixedNoise",
    "Full",
    "GroupSize",
    "History",
    "HoldoutFraction",
    "InnerMomentum",
    "License",
    "Log",
    "Noise",
    "OptimizerOptions",
    "Out",
    "OuterMomentum",
    "PerExampleMomentum",
    "Projections",
    "PublicData",
    "Quantile",
    "Quiet",
    "Refresh",
    "ResidualBound",
    "Resume",
    "Sampling",
    "Scale",
    "Seed",
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
]

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from privet._utils.documents import DocumentError, from_json
from privet.accounting.events import ADJACENCIES
from privet.accounting.queries import ACCOUNTANTS
from privet.cli.parts import NOISES, SCHEMES, STYLES, rules_with
from privet.cli.topics import CLIPPING, DATA, MODEL, PRIVACY, RUN, SAMPLING, VARIANTS
from privet.clipping import NORM_RULES
from privet.errors import InvalidArgumentError
from privet.noise import SOURCES
from privet.units.augmentations import AUGMENTATIONS


def _words(table: Iterable[str]) -> str:
    return ", ".join(name.lower() for name in table)


def _of(option: str) -> str:
    """Return a phrase with the rules that have an option, and its defaults."""
    return "For " + ", ".join(
        f"{rule} (default: {'the bound' if default is None else default})" for rule, default in rules_with(option).items()
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
    typer.Option(
        help=f"Privacy accountant: {_words(ACCOUNTANTS)} (edgeworth and gdp may underestimate ε).", rich_help_panel=PRIVACY
    ),
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
PublicData = Annotated[
    str | None,
    typer.Option(
        "--public",
        help="Public data for gradient embedding perturbation: a name of the catalogue, an .npz file, or dead-leaves (made-up "
        "images). Their gradients span subspaces, and --bound is that of the part of a gradient in them.",
        rich_help_panel=CLIPPING,
    ),
]
Dimensions = Annotated[
    int | None, typer.Option(help="Dimensions of all subspaces together, for --public; default: 500.", rich_help_panel=CLIPPING)
]
AnchorsOption = Annotated[
    int | None,
    typer.Option(
        "--anchors", help="Public examples whose gradients a step uses, for --public; default: 500.", rich_help_panel=CLIPPING
    ),
]
ResidualBound = Annotated[
    float | None,
    typer.Option(
        help="Bound of the part outside the subspaces, for --public; 0 does not release it. Default: 0.4 times --bound.",
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

BudgetFile = Annotated[
    Path | None,
    typer.Option("--budget", help="Budget file of privet budget create, which pays for this run.", rich_help_panel=PRIVACY),
]
BudgetPart = Annotated[
    str | None, typer.Option(help="Part of the data that this run uses, if the budget has parts.", rich_help_panel=PRIVACY)
]
BoundSchedule = Annotated[
    str,
    typer.Option(
        help="Schedule of the clip bound: constant; linear:STEPS, to half the bound after so many steps, where it stays (or "
        "linear, over all steps); geometric:RATE, to half the bound; piecewise:1@0.95,200, factors with the ends of pieces.",
        rich_help_panel=CLIPPING,
    ),
]
FixedNoise = Annotated[
    bool,
    typer.Option(
        "--fixed-noise", help="Keep the noise standard deviation while the bound shrinks, so that later steps spend less ε.",
        rich_help_panel=CLIPPING,
    ),
]  # fmt: skip
Noise = Annotated[
    str,
    typer.Option(
        help=f"Correlation of the noise over the steps: {_words(NOISES)}. Banded noise samples in cycles of as many steps.",
        rich_help_panel=VARIANTS,
    ),
]
Bands = Annotated[int | None, typer.Option(help="Number of bands of --noise banded; default: 8.", rich_help_panel=VARIANTS)]
Buffers = Annotated[int | None, typer.Option(help="Number of buffers of --noise buffered; default: 3.", rich_help_panel=VARIANTS)]
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
HoldoutFraction = Annotated[
    float | None,
    typer.Option(
        "--holdout",
        help="Fraction of the private examples (or users) to hold out; the final result on them is released with noise. Requires "
        "--evaluation-epsilon.",
        rich_help_panel=DATA,
    ),
]
EvaluationEpsilon = Annotated[
    float | None,
    typer.Option(
        help="ε of the result on held-out data. Held-out data is not trained on, so the run's ε is the larger of both, no sum.",
        rich_help_panel=PRIVACY,
    ),
]
ClassPriors = Annotated[
    str | None,
    typer.Option(
        parser=_classes,
        metavar="P,Q,…",
        help="Public class priors in the order of the classes, such as 0.76,0.24: every class then counts alike in the loss.",
        rich_help_panel=DATA,
    ),
]
ClassCountsEpsilon = Annotated[
    float | None,
    typer.Option(
        help="ε for noisy class counts that take the place of --class-priors; part of --epsilon.", rich_help_panel=PRIVACY
    ),
]
UserColumn = Annotated[
    str | None,
    typer.Option(
        help="Array of user ids in an .npz file: the unit of privacy becomes the user; requires --user-cap.",
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
Seed = Annotated[
    int, typer.Option(help="Seed of the initial parameters only; noise and sampling have no seed.", rich_help_panel=MODEL)
]
Out = Annotated[Path | None, typer.Option(help="Directory of the run; default: a new one in runs/.", rich_help_panel=RUN)]
Resume = Annotated[Path | None, typer.Option(help="Resume the unfinished run in this directory.", rich_help_panel=RUN)]
Adopt = Annotated[
    bool,
    typer.Option(help="With --resume on another machine: assert that no other copy of the run continues.", rich_help_panel=RUN),
]
License = Annotated[str | None, typer.Option(help="Licence of the model for its card, such as apache-2.0.", rich_help_panel=RUN)]
Log = Annotated[
    list[str] | None,
    typer.Option(
        help="Send metrics to tensorboard, wandb or mlflow, or with a place: tensorboard=FOLDER, wandb=PROJECT, mlflow=URI. "
        "May be repeated.",
        rich_help_panel=RUN,
    ),
]
Full = Annotated[bool, typer.Option("--full", help="Print the full privacy statement at the end.")]
Quiet = Annotated[bool, typer.Option(help="Show no progress bar; print only the directory and ε.")]
