"""Time of secure noise: alone, in the MLP's step, and correlated over the steps in the CNN's step.

    python -m benchmarks.noise

Each form of the arithmetic runs in its own process, where the arms alternate, three steps each. A ratio is the median of the
ratios to the steps without noise of the same round. "wall" depends on other work on the machine; "thread" is the processor time
of the stepping thread, "process" that of all threads.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import torch

from benchmarks.arms import MULTIPLIER, Step, privet
from benchmarks.models import CASES, Case
from privet.clipping.clipped_sum import ClippedSum
from privet.noise import Banded, Participation, SecureSource, Token, release
from privet.noise.compiled import arithmetic

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "thread": time.thread_time, "process": time.process_time}
CNN, MLP = (next(case for case in CASES if case.name.startswith(name)) for name in ("cnn", "mlp"))
BANDS = 8
SIZE = MLP.size
STEPS = 3


def clocked(run: Callable[[], object], times: int) -> tuple[float, ...]:
    """Return the mean seconds of one of several consecutive runs, by each clock."""
    before = [clock() for clock in CLOCKS.values()]
    for _ in range(times):
        run()
    return tuple((clock() - start) / times for clock, start in zip(CLOCKS.values(), before, strict=True))


def drawing() -> None:
    """Print nanoseconds per number of drawing alone, and of a whole release."""
    source, ahead = SecureSource(), SecureSource()
    total = ClippedSum({"w": torch.randn(SIZE)}, 0.7, torch.zeros(0))

    def draw() -> None:
        for _ in source.normals(SIZE):
            pass

    def rested() -> tuple[float, ...]:
        time.sleep(0.1)  # as long as a step, so noise is drawn ahead again
        return clocked(lambda: release(total, Token(1, 1.1), ahead), 1)

    ahead.draw_ahead(SIZE)
    arms: dict[str, Callable[[], tuple[float, ...]]] = {
        "drawing": lambda: clocked(draw, 1),
        "release, drawn when needed": lambda: clocked(lambda: release(total, Token(1, 1.1), source), 1),
        "release, drawn ahead": rested,
    }
    for name, arm in arms.items():
        arm()
        clocks = zip(*(arm() for _ in range(15)), strict=True)
        print(f"  {name:28}" + "".join(f"{statistics.median(clock) / SIZE * 1e9:10.2f}" for clock in clocks))


def drawn_ahead(case: Case) -> SecureSource:
    source = SecureSource()
    source.draw_ahead(case.size)
    return source


def of_mlp() -> dict[str, Step]:
    return {
        "no noise": privet(MLP, None),
        "noise drawn when needed": privet(MLP, SecureSource()),
        "noise drawn ahead": privet(MLP, drawn_ahead(MLP)),
    }


def of_cnn() -> dict[str, Step]:
    many = Participation(2000, times=250, separation=BANDS, rate=0.1)
    past = Banded(MULTIPLIER, bands=BANDS).fit(many, "").begin(many)
    arms = {
        "no noise": privet(CNN, None),
        "independent noise": privet(CNN, drawn_ahead(CNN)),
        f"{BANDS} bands": privet(CNN, drawn_ahead(CNN), past=past),
    }
    arms[f"{BANDS} bands"]()
    kept = sum(tensor.nbytes for tensors in vars(past).values() if isinstance(tensors, list) for tensor in tensors
               if isinstance(tensor, torch.Tensor))  # fmt: skip
    print(f"  noise of earlier steps takes {kept / (4 * CNN.size):.1f} gradients of memory")
    return arms


def steps(arms: dict[str, Step], rounds: int) -> None:
    """Print the steps in milliseconds and as ratios to the step without noise."""
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in arms}
    for _ in range(rounds + 1):
        for name, step in arms.items():
            step()  # not timed: caches and noise thread are still the previous arm's
            found[name].append(clocked(step, STEPS))
    for name, times in found.items():
        print(f"  {name:28}", end="")
        for clock in range(len(CLOCKS)):
            ratio = statistics.median(
                mine[clock] / base[clock] for mine, base in zip(times[1:], found["no noise"][1:], strict=True)
            )
            print(f"{statistics.median(time[clock] for time in times[1:]) * 1e3:7.1f} ({ratio:4.2f})", end="")
        print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.one:
        for switch in ("1", "0"):
            command = [sys.executable, "-m", "benchmarks.noise", "--one", "--rounds", str(options.rounds)]
            environment = os.environ | {"PRIVET_KERNELS": switch}
            subprocess.run([*command, "--threads", str(options.threads)], env=environment, check=True)
        return
    torch.set_num_threads(options.threads)
    with suppress(OSError):
        print(f"\n{arithmetic().description}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'ns per number':30}" + "".join(f"{name:>10}" for name in CLOCKS))
    drawing()
    for case, arms in ((MLP, of_mlp), (CNN, of_cnn)):
        print(f"{'ms per step of ' + case.name:30}" + "".join(f"{name:>14}" for name in CLOCKS))
        steps(arms(), options.rounds)


if __name__ == "__main__":
    main()
