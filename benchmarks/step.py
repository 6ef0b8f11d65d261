"""Step time and peak memory against a plain step of the same model: `make bench`.

Times are medians over rounds in one process, where the arms alternate. A ratio is the median of the ratios to the plain step of
the same round. Peak memory is measured in a fresh process per arm, above the memory before its steps. A step includes the
optimizer, but no data loading. Opacus draws noise from torch's generator, which is not cryptographic.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.arms import ARMS, NORM_ARMS, Step
from benchmarks.models import CASES
from privet import cost
from privet._utils.malloc import keep_freed_memory
from privet.errors import PrivetError
from privet_experiments.tasks.kinds import machine as describe_machine

_PATIENCE = 20  # seconds for an arm
_ALL = ARMS | NORM_ARMS


def steps_of(case: int, arms: Sequence[str]) -> dict[str, Step]:
    """Return the arms that can run on this case, warmed up."""
    found = {}
    for name in arms:
        try:
            torch.manual_seed(0)
            step = _ALL[name](CASES[case])
            step()
            found[name] = step
        except Exception as error:
            print(f"{CASES[case].name}: {name} does not run here ({type(error).__name__}: {error})", file=sys.stderr)
    return found


def ratios(case: int, arms: Sequence[str], rounds: int) -> tuple[float, dict[str, float]]:
    """Return the plain step's median time in milliseconds and every arm's median ratio to it.

    After the third round, an arm that has taken `_PATIENCE` seconds stops.
    """
    steps = steps_of(case, arms)
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds):
        for name, step in steps.items():
            if number >= 3 and sum(times[name]) > _PATIENCE and name != "plain":
                continue
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
    base = times["plain"]
    paired = {name: cost.paired_ratio(times[name], base[: len(times[name])]) for name in steps}
    return statistics.median(base) * 1e3, paired


def peak(case: int, arm: str) -> float:
    """Return the peak memory of an arm's step, in MB."""
    torch.manual_seed(0)
    return cost.peak_of(_ALL[arm](CASES[case]))


def peak_elsewhere(case: int, arm: str) -> float | None:
    """Return `peak` from a fresh process; None if the arm fails."""
    try:
        return cost.peak_elsewhere([sys.executable, "-m", "benchmarks.step", "--peak-of", str(case), arm])
    except PrivetError:
        return None


def _chosen(name: str, wanted: Sequence[str]) -> bool:
    return not wanted or any(part in name for part in wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--model", action="append", default=[], help="only models whose name contains this")
    parser.add_argument("--arm", action="append", default=[], help="only arms whose name contains this, and the plain step")
    parser.add_argument("--norms", action="store_true", help="measuring norms, exactly and from projections, instead of steps")
    parser.add_argument("--keep-freed", action="store_true", help="keep what a step frees, as the commands of privet do")
    parser.add_argument("--json", action="store_true", help="one JSON object at the end")
    parser.add_argument("--peak-of", nargs=2, metavar=("CASE", "ARM"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.keep_freed and not keep_freed_memory():
        parser.error("freed memory cannot be kept here")
    if options.peak_of:
        print(peak(int(options.peak_of[0]), options.peak_of[1]))
        return
    console = Console(width=150)
    machine = f"{describe_machine()}, {options.threads} thread(s), torch {torch.__version__}"
    table = Table(title=f"A step over a plain step: time ratio (peak memory in MB)\n{machine}")
    table.add_column("model")
    table.add_column("plain ms (MB)", justify="right")
    offered = ["plain", *NORM_ARMS] if options.norms else list(ARMS)
    arms = [arm for arm in offered if arm == "plain" or _chosen(arm, options.arm)]
    for arm in arms[1:]:
        table.add_column(arm, justify="right")
    results = []
    for case, described in enumerate(CASES):
        if not _chosen(described.name, options.model):
            continue
        milliseconds, found = ratios(case, arms, options.rounds)
        peaks = {arm: peak_elsewhere(case, arm) for arm in found}
        cells = [f"{found[arm]:.2f} ({peaks[arm]:.0f})" if arm in found and peaks[arm] is not None else "–" for arm in arms[1:]]
        table.add_row(described.name, f"{milliseconds:.1f} ({peaks['plain'] or float('nan'):.0f})", *cells)
        results.append({"model": described.name, "plain_ms": milliseconds, "ratios": found, "peak_mb": peaks})
    console.print(table)
    if options.json:
        print(json.dumps({"machine": machine, "rounds": options.rounds, "results": results}))


if __name__ == "__main__":
    main()
