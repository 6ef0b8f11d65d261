"""`privet bench`: time and memory of a private training step against a non-private one, on this machine."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import nn

from privet import cost, models
from privet._utils.progress import progress_of_parts
from privet._utils.tensors import check_device
from privet.cli import parts
from privet.cli.definitions import load_definitions
from privet.cli.options import STYLES, ClippingOptions
from privet.cli.output import Json, Quiet, answer, table
from privet.clipping import NORM_RULES
from privet.cost.case import Case
from privet.errors import InvalidArgumentError, choice, count
from privet.runs.tasks import cross_entropy

_NEEDED = "defines model, loss_fn and dataset (or batch)"
_MODELS = ("logistic", "mlp", "cnn", "tanh-cnn")
_SHAPE, _CLASSES, _BATCH_SIZE = "1,28,28", 10, 256
_BOUND = 1.0  # the cost of a step does not depend on it


def bench(
    file: Annotated[
        Path | None, typer.Argument(metavar="MODEL.py", help=f"A Python file that {_NEEDED}; it is executed.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help=f"A network of Privet, instead of MODEL.py; repeatable. Default: {', '.join(_MODELS)}."
        ),
    ] = None,
    shape: Annotated[str, typer.Option(help="Input shape for --model; the inputs are random.")] = _SHAPE,
    device: Annotated[str, typer.Option(help="Device for --model: cpu, cuda, …; MODEL.py chooses its own.")] = "cpu",
    batch_size: Annotated[
        int | None, typer.Option(help=f"Batch size. Default: {_BATCH_SIZE}, or all examples of MODEL.py if there are fewer.")
    ] = None,
    clipping: Annotated[str, typer.Option(help=f"Clipping rule: {', '.join(map(str.lower, NORM_RULES))}.")] = "flat",
    style: Annotated[str, typer.Option(help=f"Groups that are clipped separately: {', '.join(STYLES)}.")] = "flat",
    rounds: Annotated[int, typer.Option(help="Number of steps of each kind; the kinds alternate.")] = 15,
    memory: Annotated[bool, typer.Option(help="Also measure peak memory, in one subprocess per kind of step.")] = True,
    peak_of: Annotated[str | None, typer.Option(hidden=True, help="Print the peak of this kind of step in this process.")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Measure time and peak memory of a private training step against a non-private one, on this machine.

    Three kinds of step are measured: plain (no privacy), clipped, and private (clipped, with noise). Each is a step of
    privet.Training on one batch, in one pass, and includes the optimizer. Times are medians over alternating rounds. MODEL.py may
    also define `collate` and `probe_batch`, as for training.

    Example: privet bench my_model.py --batch-size 64
    """
    count("--rounds", rounds)
    rule = parts.clipping_rule(ClippingOptions(clipping=clipping, style=style), _BOUND)
    found, peak = [], None
    with ExitStack() as stack:  # within which standard output is for people
        cases = list(_build_cases(stack, file, model, shape, batch_size, device))
        place = cases[0][0].device
        if peak_of is not None:
            peak = cases[0][0].measure_peak(choice("--peak-of", peak_of, cost.KINDS), rule)
            cases = []
        measurable = {"cuda": True, "cpu": sys.platform == "linux"}.get(place.type, False)
        kinds = cost.KINDS if memory and measurable else ()
        with progress_of_parts(len(cases) * (1 + len(kinds)), quiet=quiet or not cases) as begin:
            for case, arguments in cases:
                begin(f"{case.name}: time")
                times, peaks = case.time(rule, rounds), {}
                for kind in kinds:
                    begin(f"{case.name}: memory, {kind}")
                    chosen = ("--clipping", clipping, "--style", style, "--peak-of", kind)
                    peaks[kind] = cost.peak_elsewhere([sys.executable, "-m", "privet", "bench", *arguments, *chosen])
                found.append(case.summarize(times, peaks))
    machine = f"{platform.machine()}, torch {torch.__version__} on {place}, threads: {torch.get_num_threads()}"
    if peak is None:
        answer(json, {"machine": machine, "rounds": rounds, "results": found}, _format_table(machine, rounds, found))
    else:
        print(peak)


def _build_cases(
    stack: ExitStack, file: Path | None, names: Sequence[str] | None, shape: str, batch_size: int | None, device: str
) -> Iterator[tuple[Case, tuple[str, ...]]]:
    """Yield the model that the file defines, or else networks of Privet on synthetic batches.

    With each come the arguments of `privet bench` that select it alone.
    """
    size = count("--batch-size", _BATCH_SIZE if batch_size is None else batch_size)
    if file is None:
        check_device("--device", device)
        yield from (_synthetic_case(name, shape, size, device) for name in names or _MODELS)
        return
    if names:
        raise InvalidArgumentError("--model", ", ".join(names), "left out with a file", "The file defines its model.")
    given = stack.enter_context(load_definitions(file, _NEEDED))
    batch, total = given.examples(size)
    if batch_size is not None and batch_size > total:
        raise InvalidArgumentError("--batch-size", batch_size, f"at most the {total} examples of {file.name}")
    arguments = (str(file), "--batch-size", str(min(size, total)))
    model, loss_fn = given.require("model", nn.Module), given.require("loss_fn", Callable)
    yield Case(file.name, model, loss_fn, batch, given.find("probe_batch", object)), arguments


def _synthetic_case(name: str, shape: str, size: int, device: str) -> tuple[Case, tuple[str, ...]]:
    sides = shape.split(",")
    if not all(side.isdecimal() for side in sides):
        raise InvalidArgumentError("--shape", shape, f"whole numbers separated by commas, such as {_SHAPE}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = models.build(choice("--model", name, models.NAMES), tuple(map(int, sides)), _CLASSES)
        batch = torch.randn(size, *map(int, sides)), torch.randint(0, _CLASSES, (size,))
    arguments = ("--model", name, "--shape", shape, "--batch-size", str(size), "--device", device)
    return Case(name, network.to(device), cross_entropy, tuple(part.to(device) for part in batch)), arguments


def _format_table(machine: str, rounds: int, found: Sequence[Mapping[str, Any]]) -> str:
    plain, *others = cost.KINDS
    lines = [("", "parameters", "examples", "plain step", *others)]
    for row in found:
        words = {plain: f"{row['plain_ms']:.1f} ms", **{kind: f"{row['ratios'][kind]:.2f}" for kind in others}}
        peaks = {kind: f" ({peak:.0f} MB)" for kind, peak in row["peak_mb"].items()}
        cells = [word + peaks.get(kind, "") for kind, word in words.items()]
        lines.append((row["model"], f"{row['parameters']:,}", str(row["batch_size"]), *cells))
    brackets = "; peak memory in brackets" if any(row["peak_mb"] for row in found) else ""
    return "\n".join((
        f"Step time relative to a plain step, median of {rounds} rounds{brackets}.", f"{machine}.", "", *table(lines),
    ))  # fmt: skip
