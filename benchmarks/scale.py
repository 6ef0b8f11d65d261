"""Step time and memory of private training on 8 to 1,024 GPUs, modelled, and the balance of draws over ranks: docs/scale.md.

Nothing here runs on a GPU: `benchmarks.scale_model` computes times and memory from public constants, from assumptions, and from
what `benchmarks.latencies` measured. Balance is simulated with draws of Privet's own sampler, from a generator with a fixed seed.

    python -m benchmarks.scale
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import islice

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import scale_model as scale
from benchmarks.scale_model import Model
from privet.sampling import Indices, Poisson

EXAMPLES, PHYSICAL, STEPS, BATCHES = 1_000_000, 8, 200, (256, 1024, 4096)  # of the simulation
RATIOS = (1.15, 1.4)  # assumed, of a private sequence to a plain one, if all its products were as fast


@dataclass(frozen=True)
class Balance:
    """Largest over mean of the ranks' examples and of their passes, the mean over steps: data whole, or in shards."""

    whole: float
    whole_passes: float
    sharded: float
    sharded_passes: float


def whole_counts(draw: Indices, world: int) -> Indices:
    """Return how many examples of a draw each rank gets, as `World.take` divides it."""
    return np.diff(len(draw) * np.arange(world + 1) // world)


def shard_counts(draw: Indices, world: int, examples: int = EXAMPLES) -> Indices:
    """Return how many each rank gets if it has a shard of the data; shards are equal."""
    return np.diff(np.searchsorted(draw, examples * np.arange(world + 1) // world))


def simulate(batch: int, world: int, steps: int = STEPS, seed: int = 0) -> Balance:
    generator = np.random.default_rng(seed)
    draws = Poisson(batch).draws(EXAMPLES, lambda size: generator.integers(0, 2**64, size=size, dtype=np.uint64))
    rows = []
    for draw in islice(draws, steps):
        counts = whole_counts(draw, world), shard_counts(draw, world)
        both = [each for own in counts for each in (own, np.ceil(np.maximum(own, 1) / PHYSICAL))]  # an empty part takes a pass
        rows.append([each.max() / each.mean() for each in both])
    return Balance(*np.mean(rows, axis=0).tolist())


@dataclass(frozen=True)
class Sheet:
    """A table of the page."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        lines = [f"| {' | '.join(line)} |" for line in (self.columns, *self.rows)]
        return "\n".join([lines[0], "|---" * len(self.columns) + "|", *lines[1:]])


def short(value: float) -> str:
    """Return a number with two digits or more.

    >>> [short(each) for each in (1234.5, 51.4, 3.14159, 0.0123)]
    ['1,234', '51', '3.1', '0.012']
    """
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.995 else f"{value:.2g}"


def sequences() -> Sheet:
    def row(each: Model) -> tuple[str, ...]:
        plain, private = scale.plain_seconds(each), scale.private_seconds(each)
        alike = [short(1e3 * ratio * plain) for ratio in (1.0, *RATIOS)]
        return each.name, *alike, short(1e3 * private), f"{private / plain:.1f}"

    columns = ("model", "plain", *(f"private, if {ratio} of it" for ratio in RATIOS), "private, as it is", "ratio")
    return Sheet("A sequence on one GPU, ms", columns, tuple(map(row, scale.MODELS)))


def terms() -> Sheet:
    def row(each: Model, world: int) -> tuple[str, ...]:
        found = scale.step("data parallel", each, world)
        shared = found.compute, found.stragglers, found.noise, scale.device_noise(each, world), found.votes, found.checkpoint
        return each.name, f"{world:,}", *(short(1e3 * value) for value in shared)

    columns = ("model", "W", "compute", "stragglers", "noise", "noise on the GPU", "votes, ledger, draw", "checkpoint")
    return Sheet("Terms that all ways share, ms a step", columns, _all(row))


def network() -> Sheet:
    def row(each: Model, world: int) -> tuple[str, ...]:
        found = [scale.step(kind, each, world) for kind in scale.KINDS]
        return each.name, f"{world:,}", *(short(1e3 * value) for step in found for value in (step.traffic, step.latency))

    columns = ("model", "W", *(f"{kind}: {part}" for kind in scale.KINDS for part in ("bytes", "latency")))
    return Sheet("Network, ms a step", columns, _all(row))


def steps() -> Sheet:
    def row(each: Model, world: int) -> tuple[str, ...]:
        found = [scale.step(kind, each, world, ratio) for ratio in (None, RATIOS[0]) for kind in scale.KINDS]
        return each.name, f"{world:,}", *(short(step.total) for step in found)

    columns = ("model", "W", *scale.KINDS, *(f"{kind}, at {RATIOS[0]}" for kind in scale.KINDS))
    return Sheet("Step, s", columns, _all(row))


def memories() -> Sheet:
    def row(each: Model, world: int) -> tuple[str, ...]:
        found = [part(kind, each, world) for part in (scale.state, scale.memory) for kind in scale.KINDS]
        return each.name, f"{world:,}", str(scale.at_once(each, world)), *(short(value / 1e9) for value in found)

    columns = ("model", "W", "sequences at once", *scale.KINDS, *(f"{kind}, with a pass" for kind in scale.KINDS))
    return Sheet("Memory of a GPU, GB", columns, _all(row))


def balances() -> Sheet:
    def row(batch: int, world: int) -> tuple[str, ...]:
        return f"{batch:,}", f"{world:,}", *(f"{value:.2f}" for value in asdict(simulate(batch, world)).values())

    columns = ("L", "W", "whole: examples", "whole: passes", "sharded: examples", "sharded: passes")
    return Sheet(
        "Largest over mean of the ranks", columns, tuple(row(batch, world) for batch in BATCHES for world in scale.WORLDS)
    )


def _all(row: Callable[[Model, int], tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    return tuple(row(each, world) for each in scale.MODELS for world in scale.WORLDS)


MODELLED = (sequences, terms, network, steps, memories)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--markdown", action="store_true", help="as the tables stand in the page")
    parser.add_argument("--json", action="store_true", help="one JSON object at the end")
    given = parser.parse_args()
    sheets = [make() for make in (*MODELLED, balances)]
    for sheet in sheets:
        if given.markdown:
            print(f"{sheet.title}\n\n{sheet.markdown()}\n")
            continue
        table = Table(title=sheet.title)
        for column in sheet.columns:
            table.add_column(column, justify="left" if column == "model" else "right")
        for cells in sheet.rows:
            table.add_row(*cells)
        Console(width=160).print(table)
    if given.json:
        print(json.dumps({"cluster": asdict(scale.H100), "measured": asdict(scale.FOUND), "tables": list(map(asdict, sheets))}))


if __name__ == "__main__":
    main()
