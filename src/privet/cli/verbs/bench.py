"""`privet bench`: what a private step costs beside a plain one, on this machine."""

from __future__ import annotations

import platform
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import nn

from privet import cost, models
from privet.cli import settings
from privet.cli.definitions import defined_in
from privet.cli.output import Json, answer
from privet.cli.verbs.audit import Quiet, parts
from privet.clipping import Rule
from privet.errors import InvalidArgumentError, choice, count
from privet.gradients import trainable
from privet.gradients.core.examples import count_examples, select_examples
from privet.gradients.core.losses import LossFunction
from privet.runs.config import check_device, cross_entropy

_NEEDED = "defines model, loss_fn and dataset (or batch)"
_MODELS = ("logistic", "mlp", "cnn", "tanh-cnn")
_SHAPE, _CLASSES, _BATCH_SIZE = "1,28,28", 10, 256
_FEW = 2
_BOUND = 1.0  # which one it is does not change what a step takes


@dataclass(frozen=True)
class _Case:
    """What a step is taken of, and the words that ask for it alone."""

    name: str
    model: nn.Module
    loss_fn: LossFunction
    batch: Any
    words: tuple[str, ...]

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device


def bench(
    file: Annotated[Path | None, typer.Argument(metavar="[MODEL.py]", help=f"A Python file that {_NEEDED}; it is run.")] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help=f"One of Privet's networks instead; may be given several times. Default: {', '.join(_MODELS)}."),
    ] = None,
    shape: Annotated[str, typer.Option(help="Of an input of --model, which gets made-up numbers.")] = _SHAPE,
    device: Annotated[str, typer.Option(help="Of --model: cpu, cuda, …; a file puts its model where it belongs.")] = "cpu",
    batch_size: Annotated[
        int | None, typer.Option(help=f"Examples in a step. Default: {_BATCH_SIZE}, or as many as the file has.")
    ] = None,
    clipping: settings.Clipping = "flat",
    style: settings.Style = "flat",
    rounds: Annotated[int, typer.Option(help="How often each kind of step is taken, in turns.")] = 15,
    memory: Annotated[bool, typer.Option(help="Measure peak memory too, each kind of step in a process of its own.")] = True,
    peak_of: Annotated[str | None, typer.Option(hidden=True, help="Print the peak of this kind of step in this process.")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Measure what a private step costs beside a plain one: time and peak memory, on this machine, of your own model or ours.

    A step is that of privet.Training on one batch, all of it at once, and ends with the optimizer: plain, clipped, and clipped
    with noise. Times are medians over rounds in which the three take turns.

    Example: privet bench my_model.py --batch-size 64
    """
    count("--rounds", rounds)
    rule = settings.clipping_rule(clipping, _BOUND, style, None, None)
    found = []
    with ExitStack() as stack:
        cases = list(_cases(stack, file, model, shape, batch_size, device))
        if peak_of is not None:
            peak = _peak(cases[0], choice("--peak-of", peak_of, cost.ARMS), rule)
        else:
            arms = cost.ARMS if memory and _has_peaks(cases[0].device) else ()
            with parts(len(cases) * (1 + len(arms)), quiet=quiet) as begin:
                for case in cases:
                    begin(f"{case.name}: time")
                    times = _times(case, rule, rounds)
                    peaks = {}
                    for arm in arms:
                        begin(f"{case.name}: memory, {arm}")
                        peaks[arm] = _peak_elsewhere(case, arm, clipping, style)
                    found.append(_result(case, times, peaks))
    if peak_of is not None:
        print(peak)
        return
    machine = f"{platform.machine()}, torch {torch.__version__} on {cases[0].device}, threads: {torch.get_num_threads()}"
    answer(json, {"machine": machine, "rounds": rounds, "results": found}, _prose(machine, rounds, found))


def _cases(
    stack: ExitStack, file: Path | None, names: Sequence[str] | None, shape: str, batch_size: int | None, device: str
) -> Iterator[_Case]:
    """Yield what is asked for: what the file defines, or else networks of Privet's with made-up data."""
    size = count("--batch-size", _BATCH_SIZE if batch_size is None else batch_size)
    if file is None:
        check_device("--device", device)
        yield from (_made_up(name, shape, size, device) for name in names or _MODELS)
        return
    if names:
        raise InvalidArgumentError("--model", ", ".join(names), "left out with a file", "The file defines its model.")
    given = stack.enter_context(defined_in(file, _NEEDED))
    batch, there = given.examples(size)
    if batch_size is not None and batch_size > there:
        raise InvalidArgumentError("--batch-size", batch_size, f"at most the {there} examples of {file.name}")
    words = (str(file), "--batch-size", str(min(size, there)))
    yield _Case(file.name, given.need("model", nn.Module), given.need("loss_fn", Callable), batch, words)


def _made_up(name: str, shape: str, size: int, device: str) -> _Case:
    sides = shape.split(",")
    if not all(side.isdecimal() for side in sides):
        raise InvalidArgumentError("--shape", shape, f"whole numbers with commas between them, such as {_SHAPE}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = models.build(choice("--model", name, models.NAMES), tuple(map(int, sides)), _CLASSES)
        batch = torch.randn(size, *map(int, sides)), torch.randint(0, _CLASSES, (size,))
    words = ("--model", name, "--shape", shape, "--batch-size", str(size), "--device", device)
    return _Case(name, network.to(device), cross_entropy, tuple(part.to(device) for part in batch), words)


def _step(stack: ExitStack, case: _Case, arm: str, rule: Rule) -> cost.TimedStep:
    return stack.enter_context(cost.step_of(arm, case.model, case.loss_fn, case.batch, rule))


def _times(case: _Case, rule: Rule, rounds: int) -> dict[str, list[float]]:
    with ExitStack() as stack:
        return cost.alternating({arm: _step(stack, case, arm, rule) for arm in cost.ARMS}, rounds)


def _has_peaks(device: torch.device) -> bool:
    return device.type == "cuda" or (device.type == "cpu" and sys.platform == "linux")


def _peak(case: _Case, arm: str, rule: Rule) -> float:
    with ExitStack() as stack:
        few = replace(case, batch=select_examples(case.batch, slice(_FEW)))
        _step(stack, few, "plain", rule)()  # what torch sets up when it is first used is no arm's
        return cost.peak_of(_step(stack, case, arm, rule), device=case.device)


def _peak_elsewhere(case: _Case, arm: str, clipping: str, style: str) -> float:
    options = ("--clipping", clipping, "--style", style, "--peak-of", arm)
    return cost.peak_elsewhere([sys.executable, "-m", "privet", "bench", *case.words, *options])


def _result(case: _Case, times: Mapping[str, Sequence[float]], peaks: Mapping[str, float]) -> dict[str, Any]:
    plain, *others = cost.ARMS
    return {
        "model": case.name,
        "parameters": sum(parameter.numel() for parameter in trainable(case.model).values()),
        "batch_size": count_examples(case.batch),
        "plain_ms": 1e3 * statistics.median(times[plain]),
        "ratios": {arm: cost.paired_ratio(times[arm], times[plain]) for arm in others},
        "peak_mb": dict(peaks),
    }


def _prose(machine: str, rounds: int, found: Sequence[Mapping[str, Any]]) -> str:
    """Return a table with a line for every model."""

    def cell(words: str, row: Mapping[str, Any], arm: str) -> str:
        return f"{words} ({row['peak_mb'][arm]:.0f} MB)" if row["peak_mb"] else words

    plain, *others = cost.ARMS
    table = [("", "parameters", "examples", "plain step", *others)]
    for row in found:
        ratios = (cell(f"{row['ratios'][arm]:.2f}", row, arm) for arm in others)
        table.append((
            row["model"], f"{row['parameters']:,}", str(row["batch_size"]),
            cell(f"{row['plain_ms']:.1f} ms", row, plain), *ratios,
        ))  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(word.rjust(width) for word, width in zip(line, widths, strict=True)) for line in table]
    brackets = "; in brackets the peak memory" if any(row["peak_mb"] for row in found) else ""
    return "\n".join((
        f"Time of a private step over a plain one, medians of {rounds} rounds{brackets}.", f"{machine}.", "", *lines,
    ))  # fmt: skip
