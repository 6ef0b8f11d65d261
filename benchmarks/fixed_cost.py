"""Fixed cost of a pass: milliseconds for a small network and few examples, beside a plain forward and backward pass.

OMP_NUM_THREADS=1 python -m benchmarks.fixed_cost --examples 16
"""

from __future__ import annotations

__all__ = ["main"]

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from privet.clipping import Flat
from privet.gradients import trainable
from privet.gradients.core.examples import split_batch
from privet.gradients.core.randomness import Draws, draw_torch_seed
from privet.gradients.engine import Clipper, Engine
from privet.gradients.methods import ghost
from privet.gradients.methods.tape import clip


def milliseconds(call: Callable[..., Any], rounds: int, prepare: Callable[[], tuple[Any, ...]] = tuple) -> float:
    """Return the median time of a call, whose arguments are prepared before each."""
    times = []
    for _ in range(rounds):
        given = prepare()
        started = time.perf_counter()
        call(*given)
        times.append(time.perf_counter() - started)
    return 1e3 * statistics.median(times[rounds // 8 :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=400)
    given = parser.parse_args()
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    batch = torch.randn(given.examples, 20), torch.randint(0, 2, (given.examples,))
    rule, examples, parameters = Flat(1.0), split_batch(batch), trainable(model)

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return F.cross_entropy(model(batch[0]), batch[1], reduction="none")

    engine, clipper = Engine(model, loss, parameters), Clipper.of(parameters, rule)

    def plain() -> None:
        torch.autograd.grad(loss(model, batch).mean(), list(parameters.values()))

    def record() -> Any:
        return ghost.record(engine.program, examples, Draws(given.examples, draw_torch_seed))

    times = {
        "plain forward and backward pass": milliseconds(plain, given.rounds),
        "pass that records gradients": milliseconds(record, given.rounds),
        "norms and clipped sum": milliseconds(lambda tape: clip(tape, rule, clipper.groups), given.rounds, lambda: (record(),)),
        "clipped sum, whole": milliseconds(lambda: engine.clipped_sum(examples, clipper), given.rounds),
    }
    for name, found in times.items():
        print(f"{name:32}{found:7.2f} ms")


if __name__ == "__main__":
    main()
