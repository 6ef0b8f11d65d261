"""`privet plan`: noise, signal and time of a training at several ε, without training."""

from __future__ import annotations

__all__ = ["plan"]

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch.utils.data import TensorDataset

from privet import cost, models, runs
from privet.cli import options, parts
from privet.cli.choice import Choice
from privet.cli.output import Json, answer
from privet.cli.topics import DATA, MODEL, PRIVACY, RUN, SAMPLING
from privet.clipping import Flat
from privet.data import DataSet, catalogue, load
from privet.errors import InvalidArgumentError, count
from privet.noise import Gaussian
from privet.plan import Plan
from privet.runs.forecast import foresee
from privet.tables import Schema
from privet.tuning.feasibility import HOPELESS, WEAK, Feasibility, assess, format_signal

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
    20, training learns next to nothing; at 80 it keeps about half of the possible accuracy, and nearly all from 300 on.

    Only public facts are used: the number of examples, their shape, and the settings. Of a file, only the numbers of rows and
    users are used.

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
        dataset = _stand_in("", count("examples", examples, minimum=2), (1,), 2)
        rows = [_Row(None, assess(given.plan(dataset, _UNNAMED, examples, goal), parameters), None) for goal in goals]
    else:
        place = None if folder is None else str(folder)
        named = {"folder": place, "target": target, "classes": classes, "user_column": user_column}
        dataset = _find_in_catalogue(data, named) or runs.scale_targets(
            load(data, schema=None if schema is None else Schema.read(schema), **named)
        )

        def set_up(network: str) -> runs.Setup:
            return runs.Setup(
                data=data, model=network, learning_rate=1.0, schema=schema, user_column=user_column, user_cap=user_cap,
                group_size=group_size, device=device, folder=place, classes=classes,
            )  # fmt: skip

        seconds = cache(lambda network, size: _time_step(set_up(network), dataset, size))
        rows = [_look_ahead(set_up, dataset, given, model, goal, seconds) for goal in goals]
    values = {
        "data": dataset.name or None,
        "rows": [{"model": row.model, **asdict(row.found), "seconds": row.seconds} for row in rows],
    }
    answer(json, values, _format(dataset.name, given, rows))


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

    def plan(self, dataset: DataSet, model: str | None, examples: int, epsilon: float | None, **more: Any) -> Plan:
        """Return the plan that `privet train` would make at this ε, or with the noise that is given."""
        chosen = Choice(dataset, model, epsilon, self.delta)
        size, length = chosen.lengths(
            examples, self.sampling, batch_size=self.batch_size, steps=self.steps, epochs=self.epochs,
            fixed_noise=self.noise_multiplier is not None,
        )  # fmt: skip
        made = Plan(
            examples=examples, sampling=parts.scheme(self.sampling, size, examples), steps=length, delta=self.delta,
            clipping=Flat(chosen.bound(None)), adjacency=self.adjacency, noise=Gaussian(self.noise_multiplier), **more,
        )  # fmt: skip
        return made if epsilon is None else made.calibrate(epsilon)


def _find_in_catalogue(name: str, options: Mapping[str, Any]) -> DataSet | None:
    """Return a stand-in for a data set of the catalogue, which need not be read; None if its facts are not all there."""
    entry = next((entry for entry in catalogue() if entry.name == name), None)
    if entry is None or entry.classes is None or any(value is not None for value in options.values()):
        return None
    return _stand_in(name, entry.train, entry.input_shape, entry.classes)


def _stand_in(name: str, examples: int, input_shape: tuple[int, ...], classes: int) -> DataSet:
    """Return a data set with these public facts and nothing but zeros in it."""
    inputs = torch.zeros(1, *input_shape).expand(examples, *input_shape)
    return DataSet(name, TensorDataset(inputs, torch.zeros(examples, dtype=torch.long)), None, classes, "")


def _look_ahead(
    set_up: Callable[[str], runs.Setup],
    dataset: DataSet,
    given: _Given,
    model: str | None,
    epsilon: float | None,
    seconds: Callable[[str, int], float],
) -> _Row:
    """Return the prospects at one ε, with the network that is named, or by a rule."""
    setup = set_up(Choice(dataset, model, epsilon, given.delta).model)
    examples, _ = setup.sizes(dataset)
    planned = given.plan(dataset, setup.model, examples, epsilon, unit=setup.privacy_unit)
    found = foresee(setup, planned, dataset, setup.build_model(dataset))
    rows = planned.divisor * (setup.user_cap or setup.group_size or 1)
    timed = max(1, min(round(rows), _MOST_TIMED))
    return _Row(setup.model, found, seconds(setup.model, timed) * rows / timed * planned.total_steps)


def _time_step(setup: runs.Setup, dataset: DataSet, size: int) -> float:
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
            f"{row.found.steps:,}", f"{row.found.noise_multiplier:.4g}", format_signal(row.found.signal),
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
