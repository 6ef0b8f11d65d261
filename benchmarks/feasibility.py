"""The part of the possible accuracy that private training keeps, as a function of the predicted signal.

Full batches, gradients that are always clipped, plain SGD. Noise is set so that the signal B·√T/σ has the given values. For each
data set and model the best of several learning rates counts, chosen on the public test set. This favours the private runs, so
a signal at which they keep nothing is hopeless.
"""

from __future__ import annotations

__all__ = ["main"]

import argparse
import math
import statistics
from collections.abc import Sequence

import torch
from torch.utils.data import TensorDataset

import privet
from privet import data, models
from privet.evaluation import evaluate
from privet.runs.tasks import cross_entropy
from privet.tuning.feasibility import assess

SIGNALS = (5, 10, 20, 40, 80, 160, 320, 1000)
# Learning rate × bound: the length of a step without noise.
LENGTHS = (0.003, 0.02, 0.1, 0.5)
STEPS, BOUND, SEEDS, TESTED = 40, 1e-2, (0, 1), 1000


def make_plan(examples: int, signal: float) -> privet.Plan:
    """Return the plan with this signal; infinity for no noise."""
    noise = (
        privet.noise.Gaussian(0.0, non_private=True) if math.isinf(signal)
        else privet.noise.Gaussian(examples * math.sqrt(STEPS) / signal)
    )  # fmt: skip
    return privet.Plan(
        examples=examples, sampling=privet.sampling.FullBatch(), steps=STEPS, clipping=privet.clipping.Flat(BOUND),
        delta=0.1 / examples, noise=noise,
    )  # fmt: skip


def build(name: str, dataset: data.DataSet) -> torch.nn.Module:
    """Return a network such as "logistic", or "mlp:2048" for another width."""
    name, _, width = name.partition(":")
    assert dataset.classes is not None
    return models.build(name, dataset.input_shape, dataset.classes, **({"width": int(width)} if width else {}))


def best_accuracy(dataset: data.DataSet, train: TensorDataset, test: TensorDataset, name: str, signal: float) -> float:
    """Return the best mean accuracy over seeds among the learning rates."""

    def accuracy(length: float, seed: int) -> float:
        torch.manual_seed(seed)
        model = build(name, dataset)
        optimizer = torch.optim.SGD(model.parameters(), lr=length / BOUND)
        plan = make_plan(len(train), signal)
        privet.Training(plan, model, cross_entropy, optimizer, train, physical_batch_size=2048).run()
        return float(evaluate(model, test).accuracy)

    return max(statistics.fmean(accuracy(length, seed) for seed in SEEDS) for length in LENGTHS)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table of data set and model against the signal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--model", nargs="+", default=["logistic", "mlp"])
    parser.add_argument("--examples", type=int, default=6000, help="most training examples, the first of the data set")
    parser.add_argument("--folder", help="folder with the files of the data set")
    given = parser.parse_args(arguments)
    dataset = data.load(given.data, folder=given.folder)
    assert dataset.test is not None
    train = TensorDataset(*(tensor[: given.examples] for tensor in dataset.train.tensors))
    test = TensorDataset(*(tensor[:TESTED] for tensor in dataset.test.tensors))
    majority = float(test.tensors[1].bincount().max()) / len(test)
    print("| data | *N* | model | parameters | without noise |", *(f"{signal} |" for signal in SIGNALS))
    print("|---" * (5 + len(SIGNALS)) + "|")
    for name in given.model:
        parameters = sum(parameter.numel() for parameter in build(name, dataset).parameters())
        without = best_accuracy(dataset, train, test, name, math.inf)
        cells = [given.data, f"{len(train):,}", name, f"{parameters:,}", f"{without:.1%}"]
        for signal in SIGNALS:
            assert round(assess(make_plan(len(train), signal), parameters).signal) == signal
            kept = (best_accuracy(dataset, train, test, name, signal) - majority) / (without - majority)
            cells.append(f"{max(kept, 0.0):.0%}")
        print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
