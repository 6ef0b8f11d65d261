"""`privet plan`: noise, signal and time of a training at several ε, without training."""

from __future__ import annotations

__all__ = ["plan"]

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch.utils.data import TensorDataset

from privet import cost, models, runs
from privet.cli import options, parts
from privet.cli.output import Json, answer
from privet.cli.topics import DATA, MODEL, PRIVACY, RUN, SAMPLING
from privet.clipping import Flat
from privet.data import DataSet, catalogue, load
from privet.errors import InvalidArgumentError
from privet.gradients import trainable
from privet.noise import Gaussian
from privet.plan import Plan
from privet.tables import Schema
from privet.tuning.defaults import choose_defaults, choose_model
from privet.tuning.feasibility import HOPELESS, WEAK, Feasibility, assess, find_simpler_model

_EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 8.0)
# Steps that are timed, after one to warm up; and the most examples in them, whose time is proportional beyond.
_TIMED, _MOST_TIMED = 3, 512
_UNNAMED = "mlp"  # its defaults serve a model of which only the size is known


@dataclass(frozen=True)
class _Row:
    """The prospects of a training at one ε.

    Args:
        model: name of the network; None if it is not known.
        found: its figures.
        seconds: predicted time of all steps on this machine; None if it was not measured.
    """

    model: str | None
    found: Feasibility
    seconds: float | None


def plan(
    data: Annotated[
        str | None, typer.Option(help="Data set by name, or path to a table or an .npz file.", rich_help_panel=DATA)
    ] = None,
    schema: Annotated[str | None, typer.Option(help="Public schema of a table, a TOML file.", rich_help_panel=DATA)] = None,
    target: Annotated[
        str | None, typer.Option(help="Column to predict; it must be that of the schema.", rich_help_panel=DATA)
    ] = None,
    classes: options.Classes = None,
    folder: Annotated[Path | None, typer.Option(help="Folder with the files of the data set.", rich_help_panel=DATA)] = None,
    examples: Annotated[
        int | None, typer.Option(help="Public number of examples, instead of --data.", rich_help_panel=DATA)
    ] = None,
    parameters: Annotated[
        int | None, typer.Option(help="Number of trainable parameters, instead of --data and --model.", rich_help_panel=DATA)
    ] = None,
    epsilon: Annotated[
        list[float] | None,
        typer.Option(
            help=f"Target ε; repeatable. Default: {', '.join(f'{value:g}' for value in _EPSILONS)}.", rich_help_panel=PRIVACY
        ),
    ] = None,
    delta: options.Delta = 1e-5,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise multiplier, instead of --epsilon.", rich_help_panel=PRIVACY)
    ] = None,
    adjacency: options.Adjacency = "add-remove",
    user_column: options.UserColumn = None,
    user_cap: options.UserCap = None,
    group_size: options.GroupSize = None,
    epochs: options.EpochsOption = None,
    steps: options.Steps = None,
    batch_size: Annotated[
        float | None, typer.Option(help="Expected batch size; default: by a rule.", rich_help_panel=SAMPLING)
    ] = None,
    sampling: options.Sampling = "poisson",
    model: Annotated[
        str | None, typer.Option(help=f"Network: {', '.join(models.NAMES)}; default: by a rule.", rich_help_panel=MODEL)
    ] = None,
    device: Annotated[str, typer.Option(help="Torch device on which a step is timed.", rich_help_panel=RUN)] = "cpu",
    json: Json = False,
) -> None:
    """Show the noise, the signal and the time of a training at several ε, without training.

    The signal is the largest distance from zero that the sum of all releases can have, in standard deviations of its noise. Below
    20, training learns next to nothing; at 80 it keeps about half of the possible accuracy, and nearly all from 300 on. Only
    public facts are used: the number of examples, their shape, and the settings. Of a file, only these facts are read.

    Example: privet plan --data digits --epsilon 1 --epsilon 3

    Without data: privet plan --examples 50000 --parameters 1000000 --batch-size 1024 --steps 2000
    """
    if noise_multiplier is not None and epsilon:
        raise InvalidArgumentError("--noise-multiplier", noise_multiplier, "left out with --epsilon", "Choose one of the two.")
    if (data is None) == (examples is None or parameters is None):
        raise InvalidArgumentError(
            "--data", data, "given, or else --examples and --parameters", "Try: privet plan --data digits."
        )
    if data is not None and (examples is not None or parameters is not None):
        option, value = ("--examples", examples) if examples is not None else ("--parameters", parameters)
        raise InvalidArgumentError(option, value, "left out with --data", "Both follow from the data and the model.")
    given = _Given(delta, adjacency, noise_multiplier, epochs, steps, batch_size, sampling)
    goals: Sequence[float | None] = epsilon or (_EPSILONS if noise_multiplier is None else (None,))
    if data is None:
        assert examples is not None
        assert parameters is not None
        name, rows = "", [_Row(None, assess(given.plan(examples, _UNNAMED, goal), parameters), None) for goal in goals]
    else:
        place = None if folder is None else str(folder)
        named = {"folder": place, "target": target, "classes": classes, "user_column": user_column}
        dataset = _stand_in(data, named) or runs.scale_targets(
            load(data, schema=None if schema is None else Schema.read(schema), **named)
        )

        def set_up(network: str) -> runs.Setup:
            return runs.Setup(
                data=data, model=network, learning_rate=1.0, schema=schema, user_column=user_column, user_cap=user_cap,
                group_size=group_size, device=device, folder=place, classes=classes,
            )  # fmt: skip

        seconds = cache(lambda network, size: _time_examples(set_up(network), dataset, size))
        name, rows = dataset.name, [_look_ahead(set_up, dataset, given, model, goal, seconds) for goal in goals]
    answer(
        json, {"data": name or None, "rows": [{"model": row.model, **asdict(row.found), "seconds": row.seconds} for row in rows]},
        _format(name, given, rows),
    )  # fmt: skip


@dataclass(frozen=True)
class _Given:
    """The options of the command line that a plan depends on."""

    delta: float
    adjacency: str
    noise_multiplier: float | None
    epochs: float | None
    steps: int | None
    batch_size: float | None
    sampling: str

    def plan(self, examples: int, network: str, epsilon: float | None, task: str = "classification", **more: Any) -> Plan:
        """Return the plan of a training at this ε, or with the noise that is given."""
        usual = choose_defaults(
            network, examples, task=task, epsilon=epsilon, delta=self.delta, steps=self.steps, epochs=self.epochs,
            batch_size=self.batch_size,
        )  # fmt: skip
        size = examples if self.sampling == "full-batch" and self.batch_size is None else usual.batch_size
        made = Plan(
            examples=examples, sampling=parts.scheme(self.sampling, size, examples), clipping=Flat(usual.bound), delta=self.delta,
            steps=parts.length(None if self.epochs is not None else usual.steps, self.epochs, needed=True),
            adjacency=self.adjacency, noise=Gaussian(self.noise_multiplier), **more,
        )  # fmt: skip
        return made if epsilon is None else made.calibrate(epsilon)


def _stand_in(name: str, named: dict[str, Any]) -> DataSet | None:
    """Return a data set with the public facts of one of the catalogue and nothing in it, which need not be read; or None."""
    entry = next((entry for entry in catalogue() if entry.name == name), None)
    if entry is None or entry.classes is None or any(value is not None for value in named.values()):
        return None
    inputs = torch.zeros(1, *entry.input_shape).expand(entry.train, *entry.input_shape)
    return DataSet(name, TensorDataset(inputs, torch.zeros(entry.train, dtype=torch.long)), None, entry.classes, "")


def _look_ahead(
    set_up: Callable[[str], runs.Setup],
    dataset: DataSet,
    given: _Given,
    model: str | None,
    epsilon: float | None,
    seconds: Callable[[str, int], float],
) -> _Row:
    """Return the prospects at one ε, with the network that is named, or by a rule."""
    task = "regression" if dataset.classes is None else "classification"
    facts = {"task": task, "schema": dataset.schema is not None, "delta": given.delta}
    examples, _ = set_up(model or _UNNAMED).sizes(dataset)
    network = model or choose_model(examples, dataset.input_shape, epsilon=epsilon, **facts)
    setup = set_up(network)
    planned = given.plan(examples, network, epsilon, task, unit=setup.privacy_unit)
    spent = planned.epsilon() if epsilon is None else epsilon
    parameters = sum(parameter.numel() for parameter in trainable(setup.build_model(dataset)).values())
    simpler = find_simpler_model(network, examples, dataset.input_shape, epsilon=spent, **facts)
    found = assess(planned, parameters, epsilon=spent, simpler=simpler)
    rows = planned.divisor * (setup.user_cap or setup.group_size or 1)
    timed = max(1, min(round(rows), _MOST_TIMED))
    return _Row(network, found, seconds(network, timed) * rows / timed * planned.total_steps)


def _time_examples(setup: runs.Setup, dataset: DataSet, size: int) -> float:
    """Return the seconds of one private step on synthetic examples of the public shape."""
    task = setup.task(dataset)
    inputs = torch.rand(size, *dataset.input_shape)
    targets = torch.zeros(size, dtype=torch.float32 if dataset.classes is None else torch.long)
    batch = inputs.to(setup.device), targets.to(setup.device)
    with cost.step_of("private", setup.build_model(dataset), task.loss, batch, Flat(1.0)) as step:
        step()
        return statistics.median(_seconds(step) for _ in range(_TIMED))


def _seconds(step: cost.TimedStep) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def _format(name: str, given: _Given, rows: Sequence[_Row]) -> str:
    """Return a table with one line per ε, what its columns mean, and the warnings."""
    found = rows[0].found
    who = f"{name}: {found.examples:,} examples" if name else f"{found.examples:,} examples"
    head = f"{who}, δ = {given.delta:g} ({given.adjacency}), {given.sampling} sampling"
    table = [("ε", "model", "parameters", "batch", "steps", "noise multiplier", "signal", "share of ε", "seconds")]
    table += [
        (
            f"{row.found.epsilon:.4g}", row.model or "—", f"{row.found.parameters:,}", f"{row.found.batch_size:,.6g}",
            f"{row.found.steps:,}", f"{row.found.noise_multiplier:.4g}", f"{row.found.signal:,.3g}",
            "—" if math.isnan(row.found.efficiency) else f"{row.found.efficiency:.0%}",
            "—" if row.seconds is None else f"{row.seconds:,.0f}" if row.seconds >= 10 else f"{row.seconds:.1f}",
        )
        for row in rows
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(word.rjust(width) for word, width in zip(line, widths, strict=True)) for line in table]
    legend = (
        "Signal: largest distance of the sum of all releases from zero, in standard deviations of its noise.",
        f"Below {HOPELESS:g} training learns next to nothing; {WEAK:g} keep about half of the possible accuracy, 300 nearly all.",
        "Share of ε: what these batches use of the signal that full batches have at this ε.",
    )
    return "\n".join((head, "", *lines, "", *legend, *_list_warnings(rows)))


def _list_warnings(rows: Sequence[_Row]) -> Iterator[str]:
    """Yield every warning once, with the ε that it is about if it is not about all."""
    told: dict[str, list[str]] = {}
    for row in rows:
        for text in row.found.warnings:
            told.setdefault(text, []).append(f"{row.found.epsilon:.4g}")
    for text, about in told.items():
        yield f"Warning: {text}." if len(about) == len(rows) else f"Warning (ε = {', '.join(about)}): {text}."
