"""Cost of a step in several processes, and its shares: processor time, beside plain training with torch's DDP and FSDP2.

Each rank is a process of its own, with one torch thread, in a gloo group on this machine. A rank takes some private steps, then
as many plain steps, and so on. The plain steps use the same draws. A figure is the median over these rounds of the processor time
of a step, and the mean over the ranks. Processor time is that of all threads of a process; waiting for another rank takes none.
A busy machine distorts it less than it distorts seconds, but other processes still slow down memory and caches.

- collectives: `World.scatter` and `World.join`, by which the ranks sum what each of them has, and exchange the release;
- noise: the rest of a release, which draws and adds the noise. No thread draws ahead here: it would run during plain steps;
- votes: `World.vote`, by which the ranks learn of a step and of each other's errors.

With `--shards`, layers are under FSDP2 (`fully_shard`), and so is the model of the plain steps; draws go through it in one pass.
Private sums are then by module or gathered, and "collectives" are those that add sums and share statistics: all of FSDP's own
gathering is in the rest. One process has the same model without shards.

"of its part" is the time of a rank times W, over the time of one process: 1 if W processes share all work. One process
uses `World()`, and is compared with the model without DDP. Draws are Poisson, so the last physical batch may be small.

    OMP_NUM_THREADS=1 python -m benchmarks.distributed --model cnn
    OMP_NUM_THREADS=1 python -m benchmarks.distributed --shards "by module" --shards gathered
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import privet
from benchmarks.models import Case, Encoder, images, losses
from privet import clipping, models, noise, sampling
from privet.distributed import World
from privet.distributed.sharded import ShardedModel
from privet.noise.shares import Share
from privet.noise.sources import SecureSource
from privet.sampling import Indices
from privet.training import loop
from privet_experiments.tasks.kinds import machine as describe_machine

_EXAMPLES, _EXPECTED = 4096, 256
_SHARES = ("collectives", "noise", "votes")
_RELEASED = "collectives of a release"
_PHYSICAL = {"64": 64, "whole": _EXAMPLES}
_WHOLE, _WAYS = "replicated", ("by module", "gathered")


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(100, 3100), nn.ReLU(), nn.Linear(3100, 3100), nn.ReLU(), nn.Linear(3100, 10))


CASES = (
    Case("cnn", lambda: models.build("cnn", (1, 28, 28), 10), images(_EXAMPLES), 10),
    Case("transformer", lambda: Encoder(2, 72, 4, 288), lambda: torch.randn(_EXAMPLES, 32, 72), 10),
    Case("mlp", mlp, lambda: torch.randn(_EXAMPLES, 100), 10),
)


class Timed(World):
    """A world that adds up the processor time of what the ranks tell each other, and keeps its rank's draws."""

    def __init__(self) -> None:
        super().__init__()
        self.spent = dict.fromkeys((*_SHARES, _RELEASED), 0.0)
        self.draws: deque[Tensor] = deque()

    def measure(self, share: str, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        started = time.process_time()
        try:
            return call(*arguments, **named)
        finally:
            self.spent[share] += time.process_time() - started

    def scatter(self, sums: Mapping[str, Tensor]) -> list[Share]:
        return self.measure(_RELEASED, super().scatter, sums)  # type: ignore[no-any-return]

    def join(self, sums: Mapping[str, Tensor], shares: Sequence[Share]) -> list[Tensor]:
        return self.measure(_RELEASED, super().join, sums, shares)  # type: ignore[no-any-return]

    def exchange(self, *arguments: Any, **named: Any) -> list[tuple[float, float]]:
        return self.measure("votes", super().exchange, *arguments, **named)  # type: ignore[no-any-return]

    def take(self, draw: Indices) -> tuple[int, Indices]:
        first, own = super().take(draw)
        self.draws.append(torch.from_numpy(own))
        return first, own


def shard(model: nn.Module) -> nn.Module:
    """Shard the layers of a model, and then the rest of it."""
    model.to(memory_format=torch.contiguous_format)  # torch shards no others
    layers = [layer for part in model.children() for layer in (part if isinstance(part, nn.ModuleList) else [part])]
    for layer in layers:
        if any(True for _ in layer.parameters()):
            fully_shard(layer)
    return fully_shard(model)


def plain_steps(world: Timed, case: Case, data: Sequence[Tensor], physical: int, way: str) -> Iterator[None]:
    """Take a plain step of the next draw whenever asked; a rank sums gradients over its physical batches, then all ranks do."""
    alone, sharded = world.size == 1, way != _WHOLE
    model = shard(case.build()) if sharded and not alone else case.build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    wrapped = model if alone or sharded else DistributedDataParallel(model)
    while True:
        optimizer.zero_grad()
        batches = world.draws.popleft().split(physical)
        for number, batch in enumerate(batches):
            last = number == len(batches) - 1
            with contextlib.nullcontext() if last or alone or sharded else wrapped.no_sync():  # type: ignore[operator]
                (losses(wrapped, [values[batch] for values in data]).sum() * (world.size / _EXPECTED)).backward()
        optimizer.step()
        yield


def measure(world: Timed, case: Case, physical: int, way: str, rounds: int, steps: int) -> list[dict[str, float]]:
    """Return for every round the processor time of a private step, of its shares and of a plain step, in milliseconds."""
    torch.manual_seed(0)
    data, model = case.batch(), shard(case.build()) if way != _WHOLE and world.size > 1 else case.build()
    world.gathered = way == "gathered"
    plan = privet.Plan(
        examples=_EXAMPLES, sampling=sampling.Poisson(batch_size=_EXPECTED), steps=(rounds + 1) * steps, delta=1e-6,
        clipping=clipping.Flat(1.0), noise=noise.Gaussian(1.0),
    )  # fmt: skip
    optimizer, given = torch.optim.Adam(model.parameters(), lr=1e-3), {"physical_batch_size": physical, "world": world}
    training = privet.Training(plan, model, losses, optimizer, TensorDataset(*data), **given)  # type: ignore[arg-type]
    private, plain, found = iter(training), plain_steps(world, case, data, physical, way), []
    for _ in range(rounds + 1):
        world.spent = dict.fromkeys((*_SHARES, _RELEASED), 0.0)
        times = []
        for taken in (private, plain):
            started = time.process_time()
            for _ in range(steps):
                next(taken)
            times.append(time.process_time() - started)
        within = world.spent.pop(_RELEASED)
        world.spent["noise"] -= within
        world.spent["collectives"] += within
        found.append(
            {name: 1e3 * spent / steps for name, spent in {"private": times[0], "plain": times[1], **world.spent}.items()}
        )
    return found[1:]  # the first round warms up


def timed_reduction(model: ShardedModel, sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
    assert isinstance(model.world, Timed)
    return model.world.measure("collectives", _reduce, model, sums)  # type: ignore[no-any-return]


_reduce = ShardedModel.reduce


def run_rank(rank: int, size: int, folder: str, case: int, physical: int, way: str, rounds: int, steps: int) -> None:
    """Measure in one process of a group, and write what it found into the folder."""
    torch.set_num_threads(1)
    if size > 1:
        distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=size)
    world, release = Timed.here(), loop.release
    assert isinstance(world, Timed)
    loop.release = lambda *given, **named: world.measure("noise", release, *given, **named)
    SecureSource.draw_ahead = lambda self, size: None  # type: ignore[method-assign]
    ShardedModel.reduce = timed_reduction  # type: ignore[method-assign]
    found = measure(world, CASES[case], physical, way, rounds, steps)
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    if size > 1:
        distributed.barrier()
        distributed.destroy_process_group()


def run_ranks(size: int, *arguments: Any) -> list[list[dict[str, float]]]:
    """Return what the ranks of a group measured, in processes of their own."""
    start = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        processes = [start.Process(target=run_rank, args=(rank, size, folder, *arguments)) for rank in range(size)]
        for each in processes:
            each.start()
        for each in processes:
            each.join()
        if any(each.exitcode for each in processes):
            raise SystemExit("a rank failed; its error is above")
        return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(size)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", action="append", choices=[case.name for case in CASES], help="only this model")
    parser.add_argument("--physical", action="append", choices=list(_PHYSICAL), help="only this size of physical batches")
    parser.add_argument("--shards", action="append", choices=_WAYS, help="shard models by FSDP2, and sum in this way")
    parser.add_argument("--repeats", type=int, default=3, help="how often groups of 1 and 2 processes follow each other")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4, help="steps of a round")
    parser.add_argument("--json", action="store_true", help="one JSON object at the end")
    given = parser.parse_args()
    machine = f"{describe_machine()}, 1 thread a process, torch {torch.__version__}"
    table = Table(title=f"Processor time of a step and rank in ms (share of the private step)\n{machine}")
    for column in ("model", "parameters", "way", "W", "private", "of its part", *_SHARES, "plain", "private / plain"):
        table.add_column(column, justify="left" if column == "model" else "right")
    results = []
    for number, case in enumerate(CASES):
        ways = [("whole", way) for way in given.shards or ()] or [(each, _WHOLE) for each in given.physical or _PHYSICAL]
        for physical, way in ways if given.model is None or case.name in given.model else ():
            measured: dict[int, list[list[dict[str, float]]]] = {1: [], 2: []}
            for _ in range(given.repeats):
                for size, ranks in measured.items():
                    ranks += run_ranks(size, number, _PHYSICAL[physical], way, given.rounds, given.steps)
            times = {}
            for size, ranks in measured.items():
                names = ranks[0][0]
                found = {name: statistics.mean(statistics.median(each[name] for each in own) for own in ranks) for name in names}
                times[size], part = found, found["private"] * size / times.get(1, found)["private"]
                shares = [f"{found[name]:.2f} ({found[name] / found['private']:.0%})" for name in _SHARES]
                cells = [f"{part:.2f}", *shares, f"{found['plain']:.1f}", f"{found['private'] / found['plain']:.2f}"]
                shown = physical if way == _WHOLE else way
                table.add_row(case.name, f"{case.size:.2g}", shown, str(size), f"{found['private']:.1f}", *cells)
                results.append({"model": case.name, "way": shown, "processes": size, "of_its_part": part, "ms": found})
    Console(width=150).print(table)
    if given.json:
        print(json.dumps({"machine": machine, "repeats": given.repeats, "rounds": given.rounds, "results": results}))


if __name__ == "__main__":
    main()
