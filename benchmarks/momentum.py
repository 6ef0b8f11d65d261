"""Momentum before the weight: CPU time and memory of a step as a function of the number K₀ of past parameter sets.

CPU times depend little on other processes. A ratio is the median over rounds of the ratio to the plain step of the same round.
Peak memory is measured in a fresh process, above the memory before its steps. It includes the tapes of all passes, but not the
past sets, which take K₀ times the size of the parameters.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch

from benchmarks.arms import BOUND, RATE, plain
from benchmarks.models import CASES, Case, losses
from privet import cost
from privet.clipping import Flat, Projected
from privet.gradients import clipped_sum
from privet.momentum import InnerOuter
from privet.training.state import PastIterates

LENGTHS = (0, 1, 2, 4, 8)
CHOSEN = ("cnn 26K", "tanh-cnn", "mlp", "embedding", "encoder 4")


def private(case: Case, length: int) -> Callable[[], object]:
    """Return a private step without noise, with `length` past sets from the first step on."""
    model, batch = case.build(), case.batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    parameters, iterates = dict(model.named_parameters()), PastIterates(InnerOuter(0.9, 1.0, length))
    for _ in range(length):
        iterates.step({name: torch.zeros(0) for name in parameters}, parameters)

    def step() -> None:
        optimizer.zero_grad()
        clipped = clipped_sum(model, losses, batch, Flat(BOUND), method="ghost", past=iterates.past())
        for name, direction in iterates.step(clipped.tensors, parameters).items():
            parameters[name].grad = direction / len(batch[1])
        optimizer.step()

    return step


def projected(case: Case, projections: int) -> Callable[[], object]:
    """Return a step that clips by norms estimated from projections."""
    model, batch = case.build(), case.batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def step() -> None:
        optimizer.zero_grad()
        clipped = clipped_sum(model, losses, batch, Projected(Flat(BOUND), projections))
        for name, parameter in model.named_parameters():
            parameter.grad = clipped.tensors[name] / len(batch[1])
        optimizer.step()

    return step


ARMS: dict[str, Callable[[Case], Callable[[], object]]] = {
    "plain": plain,
    **{f"K0 = {length}": lambda case, length=length: private(case, length) for length in LENGTHS},  # type: ignore[misc]
    "projected, r = 30": lambda case: projected(case, 30),
}


def ratios(case: Case, rounds: int) -> tuple[float, dict[str, float]]:
    """Return the plain step's median CPU time in milliseconds, and every arm's median ratio to it."""
    torch.manual_seed(0)
    steps = {name: make(case) for name, make in ARMS.items()}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + 1):
        for name, step in steps.items():
            start = time.process_time()
            step()
            if number:  # the first round warms up
                times[name].append(time.process_time() - start)
    base = times["plain"]
    paired = {name: statistics.median(x / y for x, y in zip(found, base, strict=True)) for name, found in times.items()}
    return statistics.median(base) * 1e3, paired


def peak_elsewhere(case: int, arm: str) -> float:
    """Return the peak memory in MB of an arm, in a fresh process that returns freed memory at once."""
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
    command = [sys.executable, "-m", "benchmarks.momentum", "--peak-of", str(case), arm]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return float(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--model", action="append", default=[], help="only models whose name contains this")
    parser.add_argument("--peak-of", nargs=2, metavar=("CASE", "ARM"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.peak_of:
        torch.manual_seed(0)
        print(cost.peak_of(ARMS[options.peak_of[1]](CASES[int(options.peak_of[0])])))
        return
    print(f"{platform.machine()}, {os.cpu_count()} cores, 1 thread, torch {torch.__version__}\n")
    print("| model | plain, ms (MB) | " + " | ".join(list(ARMS)[1:]) + " |\n|" + "---|" * (len(ARMS) + 1))
    for number, case in enumerate(CASES):
        if any(part in case.name for part in options.model or CHOSEN):
            milliseconds, found = ratios(case, options.rounds)
            peaks = {name: peak_elsewhere(number, name) for name in ARMS}
            cells = [f"{found[name]:.2f} ({peaks[name]:.0f})" for name in list(ARMS)[1:]]
            print(f"| {case.name} | {milliseconds:.1f} ({peaks['plain']:.0f}) | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
