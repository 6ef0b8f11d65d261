"""Privet on an accelerator in one command of at most eight minutes: first whether it is right, then how fast it is.

    python -m benchmarks.device --out device.json      on a machine with CUDA; --small --device cpu tries every part elsewhere

Parts, in their order: "right" (clipped sums against a loop over the examples), "noise" (the law of a release), "training"
(three steps of a `Training`), "steps" (time, memory and waits against a plain step), "largest" (examples that fit into one
pass). The page docs/results/device.md explains the figures. The file is written after every entry. An entry that fails, or
takes too long, has its error, and the next one begins.

This needs Python 3.11, torch 2.8, Privet with numpy, scipy and cryptography, and a checkout to run in. To a machine without
a network, carry what it lacks as wheels, made for its version of Python; that of Privet has the compiled noise:

    pip wheel --no-deps --wheel-dir wheels .
    pip download --only-binary=:all: --no-deps --python-version 3.12 --platform manylinux_2_28_x86_64 \
        --platform manylinux2014_x86_64 --dest wheels cryptography cffi pycparser scipy
    pip install --no-index --no-deps --target site wheels/*.whl
    PYTHONPATH=site python -m benchmarks.device --out device.json
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import json
import math
import platform
import signal
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

import privet
from benchmarks.device_models import LARGE, SMALL, Batch, DeviceCase, losses
from privet.clipping import Flat
from privet.clipping.clipped_sum import ClippedSum
from privet.cost import alternating, paired_ratio, peak_of
from privet.gradients import clipped_sum, trainable
from privet.gradients.core.examples import split_batch
from privet.gradients.core.randomness import make_seed_source
from privet.gradients.engine import Clipper, Engine
from privet.noise import SecureSource, Token, arithmetic, release

PARTS, ARMS = ("right", "noise", "training", "steps", "largest"), ("plain", "clipped", "private")
# Precision → largest error of the sum, least and most of a norm over that in the loop, most of the effect of a removal over
# the sensitivity. Kernels for other numbers of examples round differently, which matters most where a ReLU is near zero.
TOLERANCES = {"ieee": (0.02, 0.99, 1.02, 1.01), "default": (0.2, 0.9, 1.1, 1.1), "bf16": (0.4, 0.8, 1.25, 1.3)}
Found = dict[str, Any]
Loss = Callable[[Any, Batch], Tensor]
_numbers = itertools.count(1)


class OutOfTime(KeyboardInterrupt):
    """An entry takes longer than it may: an interrupt, as Privet may take other errors for those of an example."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise OutOfTime("stopped")

    if seconds <= 0:
        raise OutOfTime("not begun")
    kept = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, kept)


def first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error) or '-').splitlines()[0][:200]}"


def free() -> None:
    """Give back the device's memory."""
    if torch.cuda.is_available():
        gc.collect()
        with contextlib.suppress(RuntimeError):  # what a failed kernel left behind
            torch.cuda.empty_cache()


@dataclass
class Report:
    """What was found, and the file that has it."""

    path: Path
    budget: float  # seconds after which no entry begins
    limit: float  # seconds for each entry
    found: Found = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def run(self, part: str, name: str, function: Callable[..., Found], *given: Any) -> None:
        """Keep what a function returns, or its error, and write the file."""
        started = time.monotonic()
        try:
            with time_limit(min(self.limit, self.budget - (started - self.began))):
                entry = function(*given)
        except (Exception, OutOfTime) as error:
            entry = {"error": first_line(error)}
        free()
        self.found["seconds"] = time.monotonic() - self.began
        self.found.setdefault(part, {})[name] = {**entry, "seconds": time.monotonic() - started}
        new = self.path.with_name(self.path.name + ".new")
        new.write_text(json.dumps(self.found, indent=1))
        new.replace(self.path)
        print(part, name, json.loads(json.dumps(entry), parse_float=lambda number: float(f"{float(number):.4g}")), flush=True)

    def failures(self) -> list[str]:
        """Return the entries that failed, and those that are not right."""
        entries = [(f"{part} {name}", entry) for part in PARTS for name, entry in self.found.get(part, {}).items()]
        return [name for name, entry in entries if "error" in entry or not entry.get("right", True)]


@contextlib.contextmanager
def precision(name: str, device: torch.device) -> Iterator[Loss]:
    """Yield the loss in "ieee", "tf32", "bf16" (autocast), or "default": what torch does when nothing is set."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    held: list[tuple[Any, str, Any]] = [(each, "allow_tf32", name == "tf32") for each in (matmul, cudnn)]
    if hasattr(matmul, "fp32_precision"):  # since torch 2.9, which refuses a mixture of both
        held = [(each, "fp32_precision", name) for each in (matmul, cudnn.conv)]  # type: ignore[attr-defined]
    held = held if device.type == "cuda" and name in ("ieee", "tf32") else []
    before = [getattr(each, flag) for each, flag, _ in held]

    def loss(model: Any, batch: Batch) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=name == "bf16"):
            return losses(model, batch)

    try:
        for each, flag, value in held:
            setattr(each, flag, value)
        yield loss
    finally:
        for (each, flag, _), kept in zip(held, before, strict=True):
            setattr(each, flag, kept)


def build(case: DeviceCase, device: torch.device, examples: int) -> tuple[Any, Batch]:
    torch.manual_seed(0)
    with device:
        return case.build(), case.batch(examples)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def length(tensors: Mapping[str, Tensor], minus: Mapping[str, Tensor] | None = None) -> float:
    """Return the L2 norm over all tensors, or that of their difference from others."""
    apart = [each.double() - (0 if minus is None else minus[name].double()) for name, each in tensors.items()]
    return math.sqrt(sum(float(each.square().sum()) for each in apart))


def right(case: DeviceCase, mode: str, device: torch.device) -> Found:
    """Compare clipped sums of a batch, of each example, and of the batch without each, with a loop and with the bound."""
    model, batch = build(case, device, case.examples)
    parameters, rows = trainable(model), range(case.examples)

    def select(chosen: Sequence[int]) -> Batch:
        return tuple(each[list(chosen)] for each in batch)

    with precision(mode, device) as loss:
        looped = []
        for row in rows:
            one = torch.autograd.grad(loss(model, select([row])).sum(), list(parameters.values()), materialize_grads=True)
            looped.append({name: each.double() for name, each in zip(parameters, one, strict=True)})
        bound = 0.7 * statistics.median(map(length, looped))
        whole, *parts = (
            clipped_sum(model, loss, select(chosen), Flat(bound), method="ghost")
            for chosen in (rows, *([row] for row in rows), *([other for other in rows if other != row] for row in rows))
        )
    norms, alone, rest = whole.norms.tolist(), parts[: case.examples], parts[case.examples :]
    weighed = [(min(1, bound / norm), one) for norm, one in zip(norms, looped, strict=True)]
    total = {name: sum(weight * one[name] for weight, one in weighed) for name in parameters}
    over_loop = [norm / length(one) for norm, one in zip(norms, looped, strict=True)]
    off, lowest, highest, removed = TOLERANCES[mode]
    off_by = length(whole.tensors, total) / length(total)
    longest = max(length(each.tensors) for each in alone) / bound
    removal = max(length(whole.tensors, each.tensors) for each in rest) / whole.sensitivity
    return {
        "sum off by": off_by, "lowest norm over loop": min(over_loop), "highest norm over loop": max(over_loop),
        "longest over bound": longest, "removal over sensitivity": removal, "right": off_by <= off and longest <= 1
        and lowest <= min(over_loop) <= max(over_loop) <= highest and removal <= removed,
    }  # fmt: skip


def noise(dtype: torch.dtype, device: torch.device, size: int) -> Found:
    """Compare two releases with the normal law: scores of standard normal size, and the Kolmogorov–Smirnov distance."""
    source, seconds, made = SecureSource(), [], []
    for _ in range(2):
        total = ClippedSum({"w": torch.full((size,), 3.0, dtype=dtype, device=device)}, 1.0, torch.ones(1))
        synchronize(device)
        started = time.perf_counter()
        released = release(total, Token(next(_numbers), 1.0), source)
        synchronize(device)
        seconds.append(time.perf_counter() - started)
        made.append(released.tensors["w"].double())
    x, y = ((each - 3.0) / released.standard_deviation for each in made)
    middles = (torch.arange(size, device=device, dtype=torch.float64) + 0.5) / size
    scores = {
        "mean": float(x.mean()) * math.sqrt(size),
        "variance": float(x.square().mean() - 1) * math.sqrt(size / 2),
        "fourth moment": float(x.pow(4).mean() - 3) * math.sqrt(size / 96),
        "neighbours": float((x[1:] * x[:-1]).mean()) * math.sqrt(size - 1),
        "two releases": float((x * y).mean()) * math.sqrt(size),
    }
    distance = float((torch.special.ndtr(x.sort().values) - middles).abs().max()) * math.sqrt(size)
    fine = distance < 2.5 and max(map(abs, scores.values())) < 6 and released.standard_deviation >= 1
    on_grid = bool((made[0] * 2.0**30 == (made[0] * 2.0**30).round()).all())
    found = {**scores, "distance": distance, "on grid": on_grid, "right": fine and on_grid}
    return {**found, "ns a number": min(seconds) / size * 1e9}


def train(mode: str, device: torch.device) -> Found:
    """Take three steps of a training, which tries the model on public input and moves examples to the device."""
    model, data = SMALL[0].build().to(device), TensorDataset(*SMALL[0].batch(256))
    plan = privet.Plan(
        examples=256, sampling=privet.sampling.Poisson(batch_size=64), steps=3, clipping=Flat(0.5), delta=1e-5,
        noise=privet.noise.Gaussian(multiplier=1.0),
    )  # fmt: skip
    with precision(mode, device) as loss:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        training = privet.Training(plan, model, loss, optimizer, data, physical_batch_size=48)
        training.run()
    finite = all(bool(each.isfinite().all()) for each in model.parameters())
    return {"method": training.method, "right": finite and training.method == "ghost"}


def arm(name: str, model: Any, loss: Loss, batch: Batch) -> Callable[[], None]:
    """Return a plain step, one with clipping, or one with clipping and noise; parameters hardly move."""
    parameters, source = trainable(model), SecureSource()
    optimizer = torch.optim.SGD(parameters.values(), lr=1e-9)
    examples, clipper = split_batch(batch), Clipper.of(parameters, Flat(1.0))
    engine = Engine(model, loss, parameters, "ghost", seeds=make_seed_source(source.words))

    def step() -> None:
        if name == "plain":
            loss(model, batch).mean().backward()
        else:
            clipped = engine.clipped_sum(examples, clipper).to_clipped_sum(examples.count)
            token = Token(next(_numbers), float(name == "private"))
            released = release(clipped, token, source, examples.count, reuse=True).tensors
            for each, parameter in parameters.items():
                parameter.grad = released[each]
        optimizer.step()
        optimizer.zero_grad()
        synchronize(engine.device)

    return step


def waits(step: Callable[[], None]) -> dict[str, int]:
    """Return how often the host waits for the device in a step, by line of code; torch warns of most waits."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return Counter(f"{Path(at.filename).name}:{at.lineno}" for at in caught if "called a synchronizing" in str(at.message))


def steps(case: DeviceCase, mode: str, device: torch.device, rounds: int) -> Found:
    """Measure steps of all arms: time, and on CUDA memory and waits."""
    model, batch = build(case, device, case.examples)
    found: Found = {"examples": case.examples, "parameters": sum(each.numel() for each in trainable(model).values())}
    with precision(mode, device) as loss:
        arms = {name: arm(name, model, loss, batch) for name in ARMS}
        times = alternating(arms, rounds)
        found["plain ms"] = 1e3 * statistics.median(times["plain"])
        found["over plain"] = {name: paired_ratio(times[name], times["plain"]) for name in ARMS[1:]}
        if device.type == "cuda":
            found["peak MB"] = {name: peak_of(step, 1, device) for name, step in arms.items()}
            found["waits"] = {name: waits(step) for name, step in arms.items()}
    return found


def largest(case: DeviceCase, mode: str, device: torch.device, name: str, doublings: int) -> Found:
    """Return the most examples with which a step ran, doubled until one fails, and what ended the search."""
    held, ended = 0, "the limit of doublings"
    try:
        with precision(mode, device) as loss:
            for examples in (case.examples << doubling for doubling in range(doublings + 1)):
                model, batch = build(case, device, examples)
                arm(name, model, loss, batch)()
                held = examples
                del model, batch
                free()
    except (Exception, OutOfTime) as error:
        ended = first_line(error)
    return {"examples": held, "ended by": ended, **({} if held else {"error": ended})}


def table(found: Found) -> list[str]:
    """Return the lines of a table of steps; one that failed has its error."""
    columns = ("B", "plain ms", "clipped", "private", "plain MB", "memory", "waits", "most, plain", "most, private")
    lines = ["".join([f"{'model, precision':32}", *(f"{column:>14}" for column in columns)])]
    for name, entry in found.get("steps", {}).items():
        most = [found.get("largest", {}).get(f"{name}, {each}", {}).get("examples", "") for each in ("plain", "private")]
        if "error" in entry:
            lines.append(f"{name:32}  {entry['error']}")
            continue
        ratios, peaks, waited = entry["over plain"], entry.get("peak MB"), entry.get("waits")
        cells = [entry["examples"], f"{entry['plain ms']:.1f}", f"{ratios['clipped']:.2f}", f"{ratios['private']:.2f}"]
        cells += [f"{peaks['plain']:.0f}", f"{peaks['private'] / peaks['plain']:.2f}"] if peaks else ["", ""]
        cells += [sum(waited["private"].values()) if waited else "", *most]
        lines.append("".join([f"{name:32}", *(f"{cell:>14}" for cell in cells)]))
    return lines


def measure(report: Report, device: torch.device, parts: Sequence[str], model: str, *, small: bool) -> None:
    """Run the parts in their order, on models whose names contain a text."""
    chosen, checked = ([case for case in cases if model in case.name] for cases in (SMALL if small else LARGE, SMALL))
    for case, mode in itertools.product(checked, TOLERANCES) if "right" in parts else ():
        report.run("right", f"{case.name}, {mode}", right, case, mode, device)
    for dtype in (torch.float32, torch.float64) if "noise" in parts else ():
        report.run("noise", str(dtype), noise, dtype, device, 1 << (17 if small else 24))
    for mode in ("default", "bf16") if "training" in parts else ():
        report.run("training", mode, train, mode, device)
    for mode in ("bf16", "default", "tf32") if device.type == "cuda" else ("bf16", "default"):
        for case in [case for case in chosen if mode in case.precisions]:
            if "steps" in parts:
                report.run("steps", f"{case.name}, {mode}", steps, case, mode, device, 3 if small else 7)
            for name in ("plain", "private") if "largest" in parts and mode == case.precisions[0] else ():
                report.run("largest", f"{case.name}, {mode}, {name}", largest, case, mode, device, name, 1 if small else 12)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("device.json"), help="file that is written after every entry")
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    parser.add_argument("--small", action="store_true", help="small models, with which every entry takes a moment")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part")
    parser.add_argument("--model", default="", help="only models whose name contains this")
    parser.add_argument("--budget", type=float, default=440.0, help="seconds after which what is left is not begun")
    parser.add_argument("--limit", type=float, default=40.0, help="seconds for each entry")
    given = parser.parse_args(arguments)
    report = Report(given.out, given.budget, given.limit)
    name = torch.cuda.get_device_name(given.device) if given.device.type == "cuda" else platform.machine()
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "python": platform.python_version()}
    report.found["machine"] = {"device": name, **versions, "noise": arithmetic().description, "small": given.small}
    measure(report, given.device, given.part or PARTS, given.model, small=given.small)
    print("\n".join(table(report.found)))
    print("failed or wrong:", "; ".join(report.failures()) or "nothing", f"({report.found['seconds']:.0f} s)")
    return bool(report.failures())


if __name__ == "__main__":
    sys.exit(main())
