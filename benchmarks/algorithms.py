"""Every algorithm on Fashion-MNIST at one (ε, δ): `python -m benchmarks.algorithms --out results.jsonl`, then `--table`.

All arms train the 26 K network from the same five seeds of the initial parameters, with the same number of steps and expected
batch size. Each gets its own learning rate: it is doubled, or else halved, from where it starts for as long as that helps, on a
seed of its own. The choice looks at the test accuracy, so the figures compare algorithms and are not what a private search would
find. Runs that are in the file already are not repeated.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import privet
from privet import clipping, momentum, noise, optim, schedules, sparsification
from privet.data import DataSet
from privet.progress import shown

EPSILON, DELTA = 3.0, 1e-5
SEEDS, TUNING_SEED = (1, 2, 3, 4, 5), 100
BOUND, STABILITY, SCALE = 0.25, 1e-3, 0.55  # of the paper's experiments on this data set

Optimizer = Callable[..., torch.optim.Optimizer]
SGD = partial(torch.optim.SGD, momentum=0.9)


@dataclass(frozen=True)
class Arm:
    """One algorithm: what it changes in the plan, and the optimizer with the learning rate to start from."""

    name: str
    changes: Callable[[], dict[str, Any]]
    optimizer: Optimizer = SGD
    rate: float = 1.6
    averaged: bool = False
    deviation: bool = field(default=False, kw_only=True)  # whether the optimizer is told the noise's


def _rule(rule: clipping.Rule, **others: Any) -> Callable[[], dict[str, Any]]:
    return lambda: {"clipping": rule, **others}


FLAT = clipping.Flat(BOUND)
PSASC = clipping.PSASC(BOUND, SCALE, STABILITY)
ARMS = (
    Arm("flat", _rule(FLAT)),
    Arm("normalised", _rule(clipping.Normalize(BOUND))),
    Arm("Auto-S", _rule(clipping.Automatic(BOUND, STABILITY))),
    Arm("PSAC", _rule(clipping.PSAC(BOUND, STABILITY))),
    Arm("PSASC", _rule(PSASC)),
    Arm("PSASC, inner momentum", _rule(PSASC, momentum=momentum.InnerOuter(inner=0.1, outer=0.9, length=1))),
    Arm("global", _rule(clipping.Global(BOUND, 10 * BOUND))),
    Arm("layerwise, by parameter", _rule(clipping.Layerwise(FLAT, by="parameter"))),
    Arm("adaptive quantile", _rule(clipping.AdaptiveQuantile(FLAT, quantile=0.5))),
    Arm("bound shrinks linearly, noise with it", _rule(FLAT, bound_schedule=schedules.Linear())),
    Arm("bound shrinks linearly, noise fixed", _rule(
        FLAT, bound_schedule=schedules.Linear(), noise=noise.Gaussian(deviation="fixed"))),
    Arm("bound shrinks geometrically, noise fixed", _rule(
        FLAT, bound_schedule=schedules.Geometric(), noise=noise.Gaussian(deviation="fixed"))),
    Arm("random sparsification, 0.5", _rule(FLAT, sparsification=sparsification.Random(0.5))),
    Arm("random sparsification, 0.9", _rule(FLAT, sparsification=sparsification.Random(0.9))),
    Arm("ranked sparsification, 0.5", _rule(FLAT, sparsification=sparsification.Ranked(0.5))),
    Arm("plain SGD", _rule(FLAT), torch.optim.SGD, 16.0),
    Arm("momentum 0.6", _rule(FLAT), partial(torch.optim.SGD, momentum=0.6), 6.4),
    Arm("Nesterov", _rule(FLAT), partial(torch.optim.SGD, momentum=0.9, nesterov=True)),
    Arm("Adam", _rule(FLAT), torch.optim.Adam, 2e-3),
    Arm("Adam, bias removed", _rule(FLAT), optim.AdamBC, 2e-3, deviation=True),
    Arm("flat, average of the parameters", _rule(FLAT), averaged=True),
)  # fmt: skip


def losses(model: nn.Module, batch: Any) -> torch.Tensor:
    inputs, labels = batch
    return F.cross_entropy(model(inputs), labels, reduction="none")


def accuracy(arm: Arm, rate: float, seed: int, data: DataSet, batch_size: int, epochs: float) -> float:
    """Return the test accuracy of one run."""
    examples = len(data.train)
    plan = privet.Plan(
        examples=examples, sampling=privet.sampling.Poisson(batch_size), steps=privet.epochs(epochs), delta=DELTA, **arm.changes()
    ).calibrate(EPSILON)
    torch.manual_seed(seed)
    model = privet.models.build("cnn", data.input_shape, data.classes)
    options = {"noise_deviation": plan.gradient_deviations()} if arm.deviation else {}
    optimizer = arm.optimizer(model.parameters(), lr=rate, **options)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99)) if arm.averaged else None
    with privet.Training(plan, model, losses, optimizer, data.train, physical_batch_size=batch_size, average=average) as training:
        for _ in shown(training):
            pass
    assert data.test is not None
    return privet.evaluation.evaluate(model if average is None else average.module, data.test).accuracy


def highest(score: Callable[[float], float], start: float) -> float:
    """Return the rate at which doubling, or else halving, stops to raise the score."""
    for factor in (2.0, 0.5):
        best = start
        while score(best * factor) > score(best):
            best *= factor
        if best != start:
            return best
    return start


def subset(data: DataSet, examples: int | None) -> DataSet:
    """Return the first examples of the training set, and the whole test set."""
    if examples is None:
        return data
    train = torch.utils.data.TensorDataset(*(tensor[:examples] for tensor in data.train.tensors))
    return DataSet(data.name, train, data.test, data.classes, data.provenance)


def table(path: Path) -> str:
    """Return the results as a Markdown table: mean and standard deviation over the seeds."""
    found: dict[str, list[float]] = {}
    rates: dict[str, float] = {}
    for line in map(json.loads, path.read_text().splitlines()):
        if line["seed"] != TUNING_SEED:
            found.setdefault(line["arm"], []).append(line["accuracy"])
            rates[line["arm"]] = line["rate"]
    rows = [
        f"| {name} | {statistics.mean(values):.2%} | {statistics.stdev(values) if len(values) > 1 else float('nan'):.2%} "
        f"| {len(values)} | {rates[name]:g} |"
        for name, values in found.items()
    ]
    return "\n".join(
        ["| algorithm | test accuracy | standard deviation | runs | learning rate |", "|---|---|---|---|---|", *rows]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one a run")
    parser.add_argument("--table", action="store_true", help="only print the table of what is there")
    parser.add_argument("--examples", type=int, help="size of the subset; default: all")
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--epochs", type=float, default=5)
    parser.add_argument("--arm", action="append", default=[], help="only the arm of this name")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.table:
        print(table(options.out))
        return
    data = subset(privet.data.load("fashion-mnist"), options.examples)
    lines = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done = {(line["arm"], line["rate"], line["seed"]): line["accuracy"] for line in lines}

    def result(arm: Arm, rate: float, seed: int) -> float:
        key = (arm.name, rate, seed)
        if key not in done:
            started = time.monotonic()
            done[key] = accuracy(arm, rate, seed, data, options.batch_size, options.epochs)
            line = {"arm": arm.name, "rate": rate, "seed": seed, "accuracy": done[key], "seconds": time.monotonic() - started}
            with options.out.open("a") as file:
                file.write(json.dumps(line) + "\n")
        return done[key]

    for arm in ARMS:
        if not options.arm or arm.name in options.arm:
            best = highest(lambda rate, arm=arm: result(arm, rate, TUNING_SEED), arm.rate)
            for seed in SEEDS:
                result(arm, best, seed)


if __name__ == "__main__":
    main()
