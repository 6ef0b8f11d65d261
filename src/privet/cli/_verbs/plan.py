"""`privet plan`: noise, signal and time of a training at several ε, without training."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import torch
import typer
from torch.utils.data import TensorDataset

from privet import cost, models, runs
from privet.accounting.events import ADJACENCIES
from privet.cli import options, parts
from privet.cli.choice import Choice
from privet.cli.options import command, option
from privet.cli.output import DATA, MODEL, PRIVACY, RUN, answer, table
from privet.cli.running import make_setup
from privet.clipping import Flat
from privet.data import DataSet, catalogue
from privet.errors import InvalidArgumentError, count
from privet.noise import Gaussian
from privet.plan import Plan
from privet.runs.config import load_data
from privet.runs.run import foresee
from privet.tuning.feasibility import HOPELESS, WEAK, assess, format_signal

_EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 8.0)
# Steps that are timed, after one to warm up; and the most examples in them, whose time is proportional beyond.
_TIMED, _MOST_TIMED = 3, 512
_UNNAMED = "mlp"  # its defaults serve a model of which only the size is known

# The prospects of a training at one ε: those of `Feasibility`, the model, and the seconds of all steps if they were measured.
_Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class PlanOptions(options.OutputOptions, options.LengthOptions, options.UserOptions, options.FolderOptions, options.DataOptions):
    """The options of `privet plan`."""

    target: str | None = option("Column to predict; it must be that of the schema.", DATA)
    examples: int | None = option("Public number of examples, instead of --data.", DATA, without="--data")
    parameters: int | None = option("Number of trainable parameters, instead of --data and --model.", DATA, without="--data")
    epsilon: list[float] | None = option(
        f"Target ε; repeatable. Default: {', '.join(f'{value:g}' for value in _EPSILONS)}.", PRIVACY
    )
    delta: float = option("Target δ; below 1 / examples.", PRIVACY, 1e-5)
    noise_multiplier: float | None = option("Noise multiplier, instead of --epsilon.", PRIVACY, without="--epsilon")
    adjacency: str = option(f"Relation between neighbouring data sets: {', '.join(ADJACENCIES)}.", PRIVACY, "add-remove")
    group_size: int | None = option("Number of examples that form one unit of privacy.", PRIVACY)
    model: str | None = option(f"Network: {', '.join(models.NAMES)}; default: by a rule.", MODEL)
    device: str = option("Torch device on which a step is timed.", RUN, "cpu")


@command(PlanOptions)
def plan(_: typer.Context, given: PlanOptions) -> None:
    """Show the noise, the signal and the time of a training at several ε, without training.

    The signal says how far from zero the sum of all releases can be, in standard deviations of its noise. Below 20, training
    learns next to nothing. At 80 it keeps about half of the possible accuracy, and nearly all from 300 on.

    The command uses only public facts: the number of examples, their shape, and the settings. It counts rows and users of a file.

    Example: privet plan --data digits --epsilon 1 --epsilon 3

    Without data: privet plan --examples 50000 --parameters 1000000 --batch-size 1024 --steps 2000
    """
    if given.data is None and None in (given.examples, given.parameters):
        fix = "Try: privet plan --data digits."
        raise InvalidArgumentError("--data", None, "given, or else --examples and --parameters", fix)
    goals: Sequence[float | None] = given.epsilon or (_EPSILONS if given.noise_multiplier is None else (None,))
    if given.examples is not None and given.parameters is not None:
        number = count("examples", given.examples, minimum=2)
        dataset = _stand_in("", number, (1,), 2)
        found = [assess(_plan(given, dataset, _UNNAMED, number, goal), given.parameters) for goal in goals]
        rows = [{"model": None, **asdict(one), "seconds": None} for one in found]
    else:
        dataset = _find_in_catalogue(given) or load_data(given)
        seconds = cache(lambda network, size: _time_step(_set_up(given, network), dataset, size))
        rows = [_look_ahead(given, dataset, goal, seconds) for goal in goals]
    answer(given.json, {"data": dataset.name or None, "rows": rows}, _format(dataset.name, given, rows))


def _set_up(given: PlanOptions, network: str) -> runs.Setup:
    return make_setup(given, runs.Setup, model=network, learning_rate=1.0)


def _plan(given: PlanOptions, dataset: DataSet, model: str | None, examples: int, epsilon: float | None, **more: Any) -> Plan:
    chosen = Choice(dataset, model, epsilon, given.delta)
    size, length = chosen.lengths(examples, given, fixed_noise=given.noise_multiplier is not None)
    made = Plan(
        examples=examples, sampling=parts.scheme(given.sampling, size, examples), steps=length, delta=given.delta,
        clipping=Flat(chosen.usual.bound), adjacency=given.adjacency, noise=Gaussian(given.noise_multiplier), **more,
    )  # fmt: skip
    return made if epsilon is None else made.calibrate(epsilon)


def _find_in_catalogue(given: PlanOptions) -> DataSet | None:
    """Return a stand-in for a data set of the catalogue, which need not be read; None if its facts are not all there."""
    entry = next((entry for entry in catalogue() if entry.name == given.data), None)
    options = (given.folder, given.target, given.classes, given.user_column)
    if entry is None or entry.classes is None or any(value is not None for value in options):
        return None
    return _stand_in(entry.name, entry.train, entry.input_shape, entry.classes)


def _stand_in(name: str, examples: int, input_shape: tuple[int, ...], classes: int) -> DataSet:
    inputs = torch.zeros(1, *input_shape).expand(examples, *input_shape)
    return DataSet(name, TensorDataset(inputs, torch.zeros(examples, dtype=torch.long)), None, classes, "")


def _look_ahead(given: PlanOptions, dataset: DataSet, epsilon: float | None, seconds: Callable[[str, int], float]) -> _Row:
    setup = _set_up(given, Choice(dataset, given.model, epsilon, given.delta).model)
    examples, _ = setup.sizes(dataset)
    planned = _plan(given, dataset, setup.model, examples, epsilon, unit=setup.privacy_unit)
    found = foresee(setup, planned, dataset, setup.build_model(dataset))
    rows = planned.divisor * (setup.user_cap or setup.group_size or 1)
    timed = max(1, min(round(rows), _MOST_TIMED))
    whole = seconds(setup.model, timed) * rows / timed * planned.total_steps
    return {"model": setup.model, **asdict(found), "seconds": whole}


def _time_step(setup: runs.Setup, dataset: DataSet, size: int) -> float:
    task = setup.task(dataset)
    inputs = torch.rand(size, *dataset.input_shape)
    targets = torch.zeros(size, dtype=torch.float32 if dataset.classes is None else torch.long)
    batch = inputs.to(setup.device), targets.to(setup.device)
    with cost.step_of("private", setup.build_model(dataset), task.loss, batch, Flat(1.0)) as step:
        return statistics.median(cost.alternating({"private": step}, _TIMED)["private"])


def _format(name: str, given: PlanOptions, rows: Sequence[_Row]) -> str:
    who = f"{name}: {rows[0]['examples']:,} examples" if name else f"{rows[0]['examples']:,} examples"
    head = f"{who}, δ = {given.delta:g} ({given.adjacency}), {given.sampling} sampling"
    lines = [("ε", "model", "parameters", "batch", "steps", "noise multiplier", "signal", "share of ε", "seconds")]
    told: dict[str, list[str]] = {}  # warning → the ε that it is about
    for row in rows:
        epsilon, seconds, share = f"{row['epsilon']:.4g}", row["seconds"], row["efficiency"]
        lines.append((
            epsilon, row["model"] or "—", f"{row['parameters']:,}", f"{row['batch_size']:,.6g}", f"{row['steps']:,}",
            f"{row['noise_multiplier']:.4g}", format_signal(row["signal"]), "—" if math.isnan(share) else f"{share:.0%}",
            "—" if seconds is None else f"{seconds:,.0f}" if seconds >= 10 else f"{seconds:.1f}",
        ))  # fmt: skip
        for text in row["warnings"]:
            told.setdefault(text, []).append(epsilon)
    legend = (
        "Signal: how far from zero the sum of all releases can be, in standard deviations of its noise.",
        f"Below {HOPELESS:g} training learns next to nothing. {WEAK:g} keep about half of the possible accuracy, 300 nearly all.",
        "Share of ε: the fraction that these batches keep of the signal of full batches at this ε.",
    )
    warnings = (
        f"Warning: {text}." if len(about) == len(rows) else f"Warning (ε = {', '.join(about)}): {text}."
        for text, about in told.items()
    )  # fmt: skip
    return "\n".join((head, "", *table(lines), "", *legend, *warnings))
