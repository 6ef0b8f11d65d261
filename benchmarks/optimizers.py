"""Optimizers under noise: accuracy of multinomial regression with full batches, at several learning rates.

Rates are multiples of the default of `privet.tuning.choose_learning_rate`. σ is √T/µ(ε, δ) with δ = 1/(10 N). A fifth of the
rows is for testing. Noise comes from torch's generator. Output lines are rows of the table in docs/results/optimizers.md.

    python -m benchmarks.optimizers digits red.csv:benchmarks/schemas/wine-red-classes.toml --epsilon 1 3 --steps 100 400
"""

from __future__ import annotations

__all__ = ["main"]

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from privet import Plan, clipping, data, optim, runs, sampling
from privet.tuning.defaults import choose_learning_rate

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": partial(torch.optim.SGD, momentum=0.9),
    "nag": optim.NAG,
    "adam": torch.optim.Adam,
    "adam-uncorrected": optim.UncorrectedAdam,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
}
MULTIPLES = (0.1, 0.3, 1.0, 3.0)


def train(rows: Tensor, labels: Tensor, classes: int, make: Callable[[list[Any]], Any], plan: Plan, seed: int) -> Tensor:
    """Return the weights after DP-GD with the bound 1; rows (N, D) have an intercept."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.nn.Parameter(torch.zeros(classes, rows.shape[1]))
    optimizer, norms, places = make([weights]), rows.norm(dim=1), torch.arange(len(rows))
    for sigma in plan.multipliers():
        with torch.no_grad():
            slopes = (rows @ weights.T).softmax(1)
            slopes[places, labels] -= 1
            shares = 1 / (slopes.norm(dim=1) * norms).clamp_min(1.0)
            noise = float(sigma) * torch.randn(weights.shape, generator=generator)
            weights.grad = ((slopes * shares[:, None]).T @ rows + noise) / len(rows)
        optimizer.step()
    return weights.detach()


def main() -> None:
    """Print a line per data set, ε, number of steps and optimizer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", nargs="+", help="names of the catalogue, or TABLE.csv:SCHEMA.toml")
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0])
    parser.add_argument("--steps", nargs="+", type=int, default=[100])
    parser.add_argument("--runs", type=int, default=2)
    arguments = parser.parse_args()
    for source in arguments.sources:
        table, _, schema = source.partition(":")
        dataset = runs.scale_targets(data.load(table, schema=schema or None))
        inputs, labels = dataset.train.tensors
        rows = torch.cat((inputs.flatten(1), torch.ones(len(inputs), 1)), dim=1)
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
        test, kept = order[: len(rows) // 5], order[len(rows) // 5 :]
        for epsilon in arguments.epsilon:
            for steps in arguments.steps:
                plan = Plan(
                    examples=len(kept), sampling=sampling.FullBatch(), steps=steps, clipping=clipping.Flat(1.0),
                    delta=0.1 / len(kept),
                ).calibrate(epsilon)  # fmt: skip
                for name, kind in OPTIMIZERS.items():
                    usual, cells = choose_learning_rate(plan, "logistic", optimizer=name), []
                    for rate in (*(multiple * usual for multiple in MULTIPLES), 0.002):
                        found = [
                            train(rows[kept], labels[kept], dataset.classes or 0, partial(kind, lr=rate), plan, seed)
                            for seed in range(arguments.runs)
                        ]
                        right = [((rows[test] @ weights.T).argmax(1) == labels[test]).float().mean().item() for weights in found]
                        cells.append(f"{100 * statistics.mean(right):.1f}")
                    shown = (dataset.name, f"{epsilon:g}", f"{steps}", name, f"{usual:.2g}", *cells)
                    print("| " + " | ".join(shown) + " |", flush=True)


if __name__ == "__main__":
    main()
