"""Memory of a step in several processes: peaks in bytes a parameter, over a process without the model.

Each rank is a process in a gloo group of this machine, and trains a network of 51 million parameters by Adam. The figures are
rank 0's resident memory on the CPU, with an allocator that returns freed memory at once. They include the stock of noise, and
buffers of gloo. "Plain FSDP2" are steps without privacy, with the layers under `fully_shard` as in the ways beside it.

    OMP_NUM_THREADS=1 python -m benchmarks.world_memory
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import privet
from privet import clipping, noise, sampling
from privet.distributed import World

_WIDTH, _EXPECTED, _EXAMPLES = 4096, 32, 2000
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")  # see proc(5)
_ONE = 2 * _EXPECTED
# Examples of a pass, and whether layers are under FSDP2, of which the world may gather all.
_WAYS = {
    "one pass": (_ONE, False, False), "several passes": (4, False, False), "plain FSDP2": (0, True, False),
    "by module": (_ONE, True, False), "gathered": (_ONE, True, True),
}  # fmt: skip


@dataclass
class Peaks:
    """The resident bytes before, and the highest ones during calls, by the name of what they do."""

    before: int = 0
    found: dict[str, int] = field(default_factory=dict)

    def take(self, step: Callable[[], Any]) -> None:
        """Take a step."""
        step()

    def watch(self, owner: Any, method: str, name: str) -> None:
        """Note the peak of each call of an object's method from now on."""
        call: Callable[..., Any] = getattr(owner, method)

        def watched(*given: Any, **named: Any) -> Any:
            _RESET.write_bytes(b"5")
            try:
                return call(*given, **named)
            finally:
                self.found[name] = read("VmHWM") - self.before

        setattr(owner, method, watched)


def read(name: str) -> int:
    """Return a figure of this process in bytes."""
    return 1024 * next(int(line.split()[1]) for line in _STATUS.read_text().splitlines() if line.startswith(name))


def network() -> nn.Module:
    hidden = [layer for _ in range(3) for layer in (nn.Linear(_WIDTH, _WIDTH), nn.ReLU())]
    return nn.Sequential(nn.Linear(64, _WIDTH), nn.ReLU(), *hidden, nn.Linear(_WIDTH, 10))


def losses(model: nn.Module, batch: Any) -> torch.Tensor:
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


def run_rank(rank: int, size: int, folder: str, physical: int, sharded: bool, gathered: bool) -> None:
    """Take some steps in one process of a group; rank 0 writes its peaks in bytes a parameter."""
    torch.set_num_threads(1)
    importlib.import_module("torch._dynamo")  # as optimizers do
    distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=size)
    world, peaks = World.here(gathered=gathered), Peaks()
    torch.manual_seed(0)
    inputs, labels = torch.randn(_EXAMPLES, 64), torch.randint(10, (_EXAMPLES,))
    plan = privet.Plan(
        examples=_EXAMPLES, sampling=sampling.Poisson(batch_size=_EXPECTED), steps=4, clipping=clipping.Flat(1.0),
        noise=noise.Gaussian(1.0), delta=1e-5,
    )  # fmt: skip
    peaks.before = read("VmRSS")
    model = network()
    for layer in (*model, model) if sharded else ():
        if any(True for _ in layer.parameters()):
            fully_shard(layer)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=False)
    if physical:
        options = {"physical_batch_size": physical, "world": world}
        training = privet.Training(plan, model, losses, optimizer, TensorDataset(inputs, labels), **options)  # type: ignore[arg-type]
        step = iter(training).__next__
    else:
        part = slice(rank * _EXPECTED // size, (rank + 1) * _EXPECTED // size)

        def step() -> None:
            losses(model, (inputs[part], labels[part])).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    step()  # makes Adam's state
    rest, taken = read("VmRSS") - peaks.before, Peaks(peaks.before)
    taken.watch(taken, "take", "step")
    if not sharded:
        peaks.watch(training, "_sum", "sum")
        peaks.watch(world, "scatter", "reduce-scatter")
        peaks.watch(world, "join", "all-gather")
        peaks.watch(optimizer, "step", "Adam")
    for _ in range(3):
        taken.take(step)
    if not sharded:  # the parts have begun to count anew within it
        taken.found["step"] = max(peaks.found.values())
    parameters = sum(each.numel() for each in model.parameters())
    if world.first:
        found = {name: value / parameters for name, value in {"between steps": rest, **taken.found, **peaks.found}.items()}
        Path(folder, "found.json").write_text(json.dumps(found))
    distributed.barrier()
    distributed.destroy_process_group()


def measure(size: int, *way: Any) -> dict[str, float]:
    """Return the peaks in a group of so many processes, in bytes a parameter."""
    start = multiprocessing.get_context("spawn")
    os.environ |= {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}  # a freed block goes back at once
    with tempfile.TemporaryDirectory() as folder:
        processes = [start.Process(target=run_rank, args=(rank, size, folder, *way)) for rank in range(size)]
        for each in processes:
            each.start()
        for each in processes:
            each.join()
        return dict(json.loads(Path(folder, "found.json").read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one JSON object at the end")
    given = parser.parse_args()
    found = {name: measure(given.processes, *way) for name, way in _WAYS.items()}
    table = Table("", *found, title=f"Peaks in bytes a parameter, {given.processes} processes, torch {torch.__version__}")
    for part in found["one pass"]:
        table.add_row(part, *(f"{peaks[part]:.1f}" if part in peaks else "" for peaks in found.values()))
    Console(width=120).print(table)
    if given.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
