"""What a step waits for beside compute: a vote of the ranks, a record of the ledger, a draw, and secure noise.

Votes are those of W processes of this machine, over TCP on the loopback device. A vote is an all-gather, which gloo runs as a
ring of W − 1 hops, and some work before and after. If there are more processes than cores, it includes their turns on the cores.
Other work on the machine adds to all figures, so the first decile stands beside the median. A record of the ledger is on the
disk of `--folder` when it is acknowledged.

    OMP_NUM_THREADS=1 python -m benchmarks.latencies
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import distributed

from privet.distributed.collectives import gather
from privet.distributed.world import STEP, World
from privet.ledger import Ledger
from privet.noise import Keystream, SecureSource
from privet.sampling import Poisson
from privet_experiments.tasks.kinds import machine as describe_machine

_NUMBERS = 4_000_000
_DRAWS = {"4,096 of 1 million": (4096, 10**6), "4,096 of 100 million": (4096, 10**8)}


@dataclass(frozen=True)
class Found:
    """A figure: the lowest tenth of its repetitions lies below `low`."""

    name: str
    unit: str
    low: float
    median: float


def timed(call: Callable[[], object], times: int) -> tuple[float, float]:
    """Return the first decile and the median of the time of a call, in seconds."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return statistics.quantiles(taken, n=10)[0], statistics.median(taken)


def vote(rank: int, size: int, folder: str, times: int) -> None:
    """Vote in one process of a group; rank 0 writes what it found."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=size)
    before, world, row = _sockets(), World.here(), torch.zeros(4, dtype=torch.float64)
    found = {
        f"all-gather of {size} processes": timed(lambda: gather(row, size, world._votes), times),
        f"vote of {size} processes": timed(lambda: world.vote(STEP), times),
    }
    if world.first:
        Path(folder, "found.json").write_text(json.dumps([found, (_sockets() - before) // 2]))  # of the world's two groups
    distributed.barrier()
    distributed.destroy_process_group()


def _sockets() -> int:
    return sum(os.readlink(each).startswith("socket:") for each in Path("/proc/self/fd").iterdir() if each.is_symlink())


def votes(size: int, times: int) -> Iterator[Found]:
    """Yield the times of a vote of so many processes and of its all-gather, and the sockets of such a group in each process."""
    start = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        processes = [start.Process(target=vote, args=(rank, size, folder, times)) for rank in range(size)]
        for each in processes:
            each.start()
        for each in processes:
            each.join()
        found, sockets = json.loads(Path(folder, "found.json").read_text())
    for name, (low, median) in found.items():
        yield Found(name, "µs", 1e6 * low, 1e6 * median)
    yield Found(f"sockets of a group of {size}, in each process", "", sockets, sockets)


def records(folder: Path, times: int) -> tuple[float, float]:
    """Return the time to reserve one step durably, in a ledger that reserves one at a time."""
    with tempfile.TemporaryDirectory(dir=folder) as made:
        ledger = Ledger.create({}, [1.0] * times, Path(made, "ledger.jsonl"), block=1)
        try:
            return timed(ledger.reserve, times)
        finally:
            ledger.close()


def measure(sizes: list[int], folder: Path, times: int) -> Iterator[Found]:
    """Yield the figures, one after another."""
    for size in sizes:
        yield from votes(size, times)
    of_one: dict[str, tuple[float, float]] = {"durable record of the ledger": records(folder, times)}
    for name, (batch, examples) in _DRAWS.items():
        draws = Poisson(batch).draws(examples, Keystream().words)
        of_one[f"draw of {name}"] = timed(lambda draws=draws: next(draws), times)  # type: ignore[misc]
    for name, (low, median) in of_one.items():
        yield Found(name, "µs", 1e6 * low, 1e6 * median)
    source = SecureSource()
    low, median = timed(lambda: [len(piece) for piece in source.normals(_NUMBERS)], 20)
    yield Found("number of secure noise", "ns", 1e9 * low / _NUMBERS, 1e9 * median / _NUMBERS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, nargs="*", default=[2, 4, 8], help="sizes of the groups that vote")
    parser.add_argument("--folder", type=Path, default=Path(), help="where the ledger is written")
    parser.add_argument("--times", type=int, default=300)
    parser.add_argument("--json", action="store_true", help="one JSON object at the end")
    given = parser.parse_args()
    torch.set_num_threads(1)
    machine = f"{describe_machine()}, 1 thread a process, torch {torch.__version__}"
    found, table = list(measure(given.processes, given.folder, given.times)), Table(title=machine)
    for column in ("", "lowest tenth", "median", "unit"):
        table.add_column(column, justify="right" if column in ("lowest tenth", "median") else "left")
    for each in found:
        table.add_row(each.name, *(f"{value:,.{0 if value >= 100 else 1}f}" for value in (each.low, each.median)), each.unit)
    Console(width=120).print(table)
    if given.json:
        print(json.dumps({"machine": machine, "times": given.times, "results": [asdict(each) for each in found]}))


if __name__ == "__main__":
    main()
