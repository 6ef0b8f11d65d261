"""Time of a step with a random mask over the same step without: `python -m benchmarks.sparsification`.

CPU time of this process, with secure noise. The arms alternate; a figure is the median of the ratios to the step without a mask
of the same round. A mask serves many steps, so it is prepared before the clock starts.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable

import torch

from benchmarks.arms import BOUND, MULTIPLIER, RATE
from benchmarks.models import CASES, Case, losses
from privet.clipping import Flat
from privet.gradients import clipped_sum
from privet.noise import SecureSource, Token, release
from privet.sparsification.drawing import Selection

RATES = (0.0, 0.3, 0.6, 0.9)


def stepping(case: Case, rate: float, batch: tuple[torch.Tensor, torch.Tensor]) -> Callable[[], None]:
    """Return a private step."""
    model, source = case.build(), SecureSource()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    selection = Selection(seed=0, block=1, zeros=round(rate * case.size))
    masks = selection.masks({name: tuple(p.shape) for name, p in model.named_parameters()}) if rate else None

    def step() -> None:
        optimizer.zero_grad()
        clipped = clipped_sum(model, losses, batch, Flat(BOUND), method="ghost", masks=masks)
        released = release(clipped, Token(1, MULTIPLIER), source)
        for name, parameter in model.named_parameters():
            parameter.grad = released.tensors[name].div_(len(batch[1]))
        optimizer.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--model", action="append", default=[], help="only models whose name contains this")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{platform.machine()}, {os.cpu_count()} cores, 1 thread, torch {torch.__version__}, {options.rounds} rounds")
    for case in CASES:
        if options.model and not any(part in case.name for part in options.model):
            continue
        torch.manual_seed(0)
        batch = case.batch()
        steps = [stepping(case, rate, batch) for rate in RATES]
        for step in steps:  # prepares the masks before the clock starts
            step()
        times: list[list[float]] = [[] for _ in steps]
        for _ in range(options.rounds):
            for step, taken in zip(steps, times, strict=True):
                start = time.process_time()
                step()
                taken.append(time.process_time() - start)
        ratios = [statistics.median(x / y for x, y in zip(taken, times[0], strict=True)) for taken in times]
        print(
            f"{case.name}: {statistics.median(times[0]) * 1e3:.0f} ms;",
            "; ".join(f"r={rate}: {ratio:.2f}" for rate, ratio in zip(RATES, ratios, strict=True)),
            flush=True,
        )


if __name__ == "__main__":
    main()
