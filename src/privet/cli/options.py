"""Options of the commands, as fields of dataclasses: type, default, help, topic, and what part of a plan they determine.

A command takes one frozen dataclass of options. Its signature for typer, the JSON Schema of `--config` files and the refusal of
options that contradict a plan all follow from the fields. Tables say which parts of a plan words stand for.
"""

from __future__ import annotations

import csv
import functools
import inspect
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast, get_type_hints

import typer

from privet._utils.documents import DocumentError, from_json
from privet.accounting.events import ADJACENCIES
from privet.accounting.queries import ACCOUNTANTS
from privet.cli.output import CLIPPING, DATA, JSON, MODEL, PRIVACY, RUN, SAMPLING, VARIANTS, as_option
from privet.clipping import NORM_RULES, Layerwise, NormRule
from privet.errors import InvalidArgumentError
from privet.noise import SOURCES, Banded, BufferedToeplitz, Gaussian, NoiseMechanism, Tree
from privet.sampling import BallsInBins, FixedOrder, FixedSize, FullBatch, Poisson, Scheme, Shuffle, TruncatedPoisson
from privet.schedules import Constant, Geometric, Linear, Piecewise, Schedule

_Options = TypeVar("_Options")
# Options with a second, short name.
_SHORT = {"epsilon": "--eps", "learning_rate": "--lr"}


def option(
    help: str, topic: str | None, default: Any = None, *names: str,
    part: str = "", needs: str = "", without: str = "", **more: Any,
) -> Any:  # fmt: skip
    """Return a field for an option.

    Args:
        help, names, more: as for `typer.Option`; the name is that of the field by default.
        topic: heading under which the help of the command lists it.
        default: value if it is left out.
        part: field of the plan that it determines, or "plan" for several; a file of `--config` may give that instead.
        needs: option, with a value or without, that has to be given too, such as "--noise banded".
        without: option that has to be left out.
    """
    described = typer.Option(*names, help=help, rich_help_panel=topic, **more)
    return field(default=default, metadata={"option": described, "part": part, "needs": needs, "without": without})


def command(kind: type[_Options]) -> Callable[[Callable[[typer.Context, _Options], None]], Callable[..., None]]:
    """Return a decorator for the function of a command, which takes its options as one object of this frozen dataclass."""
    hints, own = get_type_hints(kind), cast(Any, kind)
    for each in fields(own):
        if each.name in _SHORT:
            each.metadata["option"].param_decls = (as_option(each.name), _SHORT[each.name])
    parameters = [inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)] + [
        inspect.Parameter(
            each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default,
            annotation=Annotated[hints[each.name], each.metadata["option"]],
        )
        for each in fields(own)
    ]  # fmt: skip

    def decorate(run: Callable[[typer.Context, _Options], None]) -> Callable[..., None]:
        @functools.wraps(run)
        def call(context: typer.Context, **options: Any) -> None:
            given = kind(**options)
            _check_combination(given)
            run(context, given)

        del call.__wrapped__
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        call.options = kind  # type: ignore[attr-defined]
        return call

    return decorate


def _check_combination(given: Any) -> None:
    values = {as_option(each.name): getattr(given, each.name) for each in fields(given)}
    values = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in values.items()
        if value is not None and value is not False and value != []
    }
    for each in fields(given):
        name, needed, excluded = as_option(each.name), each.metadata.get("needs", ""), each.metadata.get("without")
        other, _, word = needed.partition(" ")
        if name in values and needed and (other not in values or (word and values[other] != word)):
            raise InvalidArgumentError(name, values[name], f"left out without {needed}", f"Give {needed} too.")
        if name in values and excluded in values:
            raise InvalidArgumentError(name, values[name], f"left out with {excluded}", "Choose one of the two.")


def require(given: Any, *names: str, fix: str = "") -> None:
    """Refuse options that are left out."""
    for name in names:
        if getattr(given, name) is None:
            raise InvalidArgumentError(as_option(name), None, "given", fix)


# Noise over the steps.
NOISES: dict[str, type[NoiseMechanism]] = {
    "independent": Gaussian, "banded": Banded, "buffered": BufferedToeplitz, "tree": Tree,
}  # fmt: skip
# Style → a rule that clips all parameters together, or each group by itself.
STYLES: dict[str, Callable[[NormRule], NormRule | Layerwise]] = {
    "flat": lambda rule: rule,
    "parameter": lambda rule: Layerwise(rule, by="parameter"),
    "module": lambda rule: Layerwise(rule, by="module"),
}


def _piecewise(setting: str) -> Schedule:
    *pieces, last = setting.split(",")
    values, ends = zip(*(map(float, piece.split("@")) for piece in pieces), strict=True)
    return Piecewise((*values, float(last)), ends)


# Name → what its setting may be, and a function from the setting after the colon, if any, to the schedule.
SCHEDULES: dict[str, tuple[str, Callable[..., Schedule]]] = {
    "constant": ("without a setting", Constant),
    "linear": (
        "linear, or with its target length in steps, such as linear:2000",
        lambda over=None: Linear(over=over and int(over)),
    ),
    "geometric": ("geometric, or with its rate, such as geometric:0.001", lambda *rate: Geometric(*map(float, rate))),
    "piecewise": (
        "with factors and ends, such as piecewise:1@0.95,200 for the factor 1 up to 95 % of the steps and then 200",
        _piecewise,
    ),
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


def _words(table: Iterable[str]) -> str:
    return ", ".join(name.lower() for name in table)


def _of(name: str) -> str:
    """Return a phrase with the rules that have an option, and its defaults."""
    return "For " + ", ".join(
        f"{rule} (default: {'the bound' if default is None else default})" for rule, default in rules_with(name).items()
    )


def join_values(given: str | int | Sequence[object]) -> str:
    """Return values as text, separated by commas; a configuration may give them as a list or a number."""
    if isinstance(given, str | int) or not isinstance(given, Sequence):
        return str(given)
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(given)
    return line.getvalue()


def read_arguments(given: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an optimizer in a JSON object."""
    try:
        found = from_json(given) if isinstance(given, str) else given
    except DocumentError:
        found = None
    if not isinstance(found, Mapping):
        raise InvalidArgumentError("--optimizer-options", given, "a JSON object, such as '{\"weight_decay\": 0.01}'")
    return dict(found)


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """The data."""

    data: str | None = option("Data set by name, or path to a table or an .npz file.", DATA)
    schema: str | None = option("TOML file that declares the columns of a table; see privet schema draft.", DATA)
    classes: str | None = option(
        "Classes of a file: K for the labels 0 to K−1, or the labels in order, separated by commas.",
        DATA, parser=join_values, metavar="K|A,B,…",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FolderOptions:
    """Data that are not fetched."""

    folder: str | None = option("Folder that has the files of the data set. Nothing is fetched then.", DATA, metavar="PATH")


@dataclass(frozen=True, kw_only=True)
class UserOptions:
    """Users as units of privacy."""

    user_column: str | None = option(
        "Array of user ids in an .npz file. It makes the user the unit of privacy. Requires --user-cap.", PRIVACY
    )
    user_cap: int | None = option("Largest number of examples of one user.", PRIVACY)


@dataclass(frozen=True, kw_only=True)
class PrivacyOptions:
    """The guarantee, the source of its noise, and the public data that measures what it leaves."""

    test: str | None = option(
        "File with public test data, in the format of --data. Without it, a file has no test accuracy.", DATA
    )
    epsilon: float | None = option("Target ε; never exceeded.", PRIVACY)
    delta: float = option("Target δ; below 1 / examples.", PRIVACY, 1e-5, part="plan")
    noise_multiplier: float | None = option(
        "Standard deviation of the noise over the sensitivity, instead of --epsilon.", PRIVACY, part="noise", without="--epsilon"
    )
    adjacency: str = option(
        f"Relation between neighbouring data sets: {_words(ADJACENCIES)}.", PRIVACY, "add-remove", part="plan"
    )
    noise_source: str = option(
        f"Random number generator: {_words(SOURCES)} (fixed gives no privacy).", PRIVACY, "secure", part="noise"
    )


@dataclass(frozen=True, kw_only=True)
class LengthOptions:
    """Sampling and length."""

    epochs: float | None = option("Passes over the data, instead of --steps.", SAMPLING, part="plan", without="--steps")
    steps: int | None = option("Number of steps.", SAMPLING, part="plan")
    batch_size: float | None = option(
        "Expected batch size. Default: chosen by examples, steps and model.", SAMPLING, part="sampling"
    )
    sampling: str = option(f"How batches are sampled: {_words(SCHEMES)}.", SAMPLING, "poisson", part="sampling")


@dataclass(frozen=True, kw_only=True)
class ClippingOptions:
    """The clipping rule."""

    clipping: str = option(f"Clipping rule: {_words(NORM_RULES)}.", CLIPPING, "flat", part="clipping")
    bound: float | None = option("Clip bound C. Default: 1, or 0.1 for convolutions.", CLIPPING, part="clipping")
    stability: float | None = option(f"Constant r in the weight's denominator. {_of('stability')}.", CLIPPING, part="clipping")
    scale: float | None = option(f"Factor s of the norm in the weight's denominator. {_of('scale')}.", CLIPPING, part="clipping")
    cutoff: float | None = option(f"Norm above which a gradient is dropped. {_of('cutoff')}.", CLIPPING, part="clipping")
    style: str = option(
        f"Groups that are clipped separately: {_words(STYLES)} (flat: one group).", CLIPPING, "flat", part="clipping"
    )
    adaptive_quantile: float | None = option(
        "Quantile of the gradient norms that the bound follows, by noisy estimates.", CLIPPING, part="clipping"
    )


@dataclass(frozen=True, kw_only=True)
class MechanismOptions:
    """Further parts of the mechanism: projections, subspaces of public gradients, schedules, correlated noise and momentum."""

    projections: int | None = option(
        "Number of random projections that estimate norms, better 30 or more. Default: norms are exact.",
        CLIPPING,
        part="clipping",
    )
    public: str | None = option(
        "Public data for gradient embedding perturbation: a data set by name, an .npz file, or dead-leaves (made-up images). "
        "Their gradients span subspaces. --bound clips the part of a gradient inside these subspaces.",
        CLIPPING, part="plan",
    )  # fmt: skip
    dimensions: int | None = option(
        "Number of dimensions of all subspaces, for --public; default: 500.", CLIPPING, part="plan", needs="--public"
    )
    anchors: int | None = option(
        "Number of public examples in a step, for --public; default: 500.", CLIPPING, part="plan", needs="--public"
    )
    residual_bound: float | None = option(
        "Bound of the part of a gradient outside the subspaces, for --public; 0 leaves it out. Default: 0.4 times --bound.",
        CLIPPING, part="plan", needs="--public",
    )  # fmt: skip

    bound_schedule: str = option(
        "Schedule of the clip bound: constant; linear, to half the bound at the end; linear:STEPS, to half after so many steps; "
        "geometric:RATE, to half; piecewise:1@0.95,200, the factor 1 for 95 % of the steps and then 200.",
        CLIPPING, "constant", part="bound_schedule",
    )  # fmt: skip
    fixed_noise: bool = option(
        "Keep the standard deviation of the noise while the bound shrinks. Later steps then spend less ε.",
        CLIPPING, False, "--fixed-noise", part="noise", needs="--noise independent",
    )  # fmt: skip
    noise: str = option(
        f"How the noise of steps is correlated: {_words(NOISES)}. With banded noise, --bands steps are a cycle of sampling.",
        VARIANTS, "independent", part="noise",
    )  # fmt: skip
    bands: int | None = option("Number of bands of banded noise; default: 8.", VARIANTS, part="noise", needs="--noise banded")
    buffers: int | None = option(
        "Number of buffers of buffered noise; default: 3.", VARIANTS, part="noise", needs="--noise buffered"
    )
    inner_momentum: float | None = option(
        "Weight γ₀ of an example's gradients at past parameters. Requires --history.",
        VARIANTS, part="momentum", needs="--history", without="--per-example-momentum",
    )  # fmt: skip
    outer_momentum: float | None = option(
        "γ₁ in M ← (1 − γ₁)·M + release, instead of --momentum.", VARIANTS, part="momentum", without="--per-example-momentum"
    )
    history: int | None = option(
        "Number K₀ of past parameters for --inner-momentum. Each adds a pass to every step.",
        VARIANTS, part="momentum", needs="--inner-momentum",
    )  # fmt: skip
    per_example_momentum: float | None = option(
        "γ in m ← γ·g + (1 − γ)·m, for each example. Needs full batches.", VARIANTS, part="momentum"
    )


@dataclass(frozen=True, kw_only=True)
class SparsityOptions:
    """Sparsification."""

    sparsify: float | None = option(
        "Fraction of coordinates to leave out at the end. It grows from 0; ε stays the same.", VARIANTS, part="sparsification"
    )
    refresh: int | None = option(
        "Number of masks in an epoch, for --sparsify; default: 1.", VARIANTS, part="sparsification", needs="--sparsify"
    )
    sparsify_ranked: bool = option(
        "Leave out the coordinates with the smallest releases instead of random ones.",
        VARIANTS, False, "--sparsify-ranked", part="sparsification", needs="--sparsify",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """How results are printed."""

    json: bool = field(default=False, metadata={"option": JSON})


@dataclass(frozen=True, kw_only=True)
class DirectoryOptions(OutputOptions):
    """The directory of a run, and what its statement and card say."""

    out: Path | None = option("New or empty directory of the run. Default, except for privet fit: one in runs/.", RUN)
    purpose: str | None = option("What the model is for, in your own words. Statement and card repeat it.", RUN)
    license: str | None = option("Licence of the model for its card, such as apache-2.0.", RUN)


@dataclass(frozen=True, kw_only=True)
class RunOptions(DirectoryOptions):
    """The run, and a budget that pays for it."""

    budget_file: Path | None = option("Budget that pays for this run, a file of privet budget create.", PRIVACY, None, "--budget")
    budget_part: str | None = option("Part of the budget's data that this run uses.", PRIVACY)
    seed: int = option("Seed of the initial parameters. Noise and sampling have no seed.", MODEL, 0)
    resume: Path | None = option("Resume the unfinished run in this directory.", RUN)
    adopt: bool = option("Assert that no other copy of the run continues, for --resume on another machine.", RUN, False)
    log: list[str] | None = option(
        "Where metrics go: tensorboard, wandb or mlflow, or one of them with a place: tensorboard=FOLDER, wandb=PROJECT, "
        "mlflow=URI. Repeatable.",
        RUN,
    )
    full: bool = option("Print the full privacy statement at the end.", None, False, "--full")
    quiet: bool = option("Print only the directory and ε, without a progress bar.", None, False)


@dataclass(frozen=True, kw_only=True)
class QuestionOptions(OutputOptions):
    """A question about ε, noise or steps, which needs no data."""

    examples: int | None = option("Public number of examples in the data set.", SAMPLING)
    batch_size: float | None = option("Expected batch size.", SAMPLING)
    sampling: str = option(f"How batches are sampled: {_words(SCHEMES)}.", SAMPLING, "poisson")
    delta: float | None = option("Target δ; below 1 / examples.", PRIVACY)
    adjacency: str | None = option(f"Relation between neighbouring data sets: {_words(ADJACENCIES)}.", PRIVACY)
    accountant: str = option(
        f"Privacy accountant: {_words(ACCOUNTANTS)} (edgeworth and gdp may underestimate ε).", PRIVACY, "pld"
    )
    unit: str = option(
        "Unit of privacy: example, user, or group:4 for groups of four. --examples and --batch-size count units.",
        PRIVACY, "example",
    )  # fmt: skip
