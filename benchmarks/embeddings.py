"""Sparse updates of embedding tables beside dense noise: time and memory of a step, and the error of two models.

    python -m benchmarks.embeddings time
    python -m benchmarks.embeddings zipf
    python -m benchmarks.embeddings ratings.csv

`time` trains a sum of 20 looked-up rows of 64 numbers, with 256 examples a step. Every arm runs in a process of its own, which
prints the median of its steps by wall time, and by how much the steps raise the peak of its memory.

`zipf` makes up texts of 20 words, whose frequencies follow Zipf's law, and a target that is a sum of hidden weights of the words.
A file is one of MovieLens (columns userId, movieId, rating): products of user and movie factors predict the rating. A tenth of
the examples is the test set. Every arm takes the learning rate with the smallest error on the test set, averaged over seeds. The
public list are the most frequent words of the law, or the movies with numbers up to 3,952, those of MovieLens 1M.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import privet
from privet.sparsification import FEST, AdaFEST

TABLE = "rows.weight"
ARMS = ("dense noise", "public rows", "counted rows")
SIZES = (10_000, 100_000, 1_000_000)
LISTED, THRESHOLD = 10_000, 20.0
EPSILON, DELTA, BATCH, STEPS, BOUND = 1.0, 1e-6, 2048, 100, 1.0
THRESHOLDS = (5.0, 10.0)
SEEDS = 2
LAST_PUBLIC = 3952


def squared_error(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """Return the squared errors of a batch, (B,)."""
    *inputs, target = batch
    return (model(*inputs) - target).square()


class Texts(nn.Module):
    """The sum of the looked-up rows of a text's words, over the square root of their number."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.rows = nn.Embedding(size, width)
        nn.init.zeros_(self.rows.weight)

    def forward(self, words: Tensor) -> Tensor:
        """Return a number for each text, (B,)."""
        return self.rows(words).sum((1, 2)) / words.shape[1] ** 0.5


class Factors(nn.Module):
    """The product of the factors of a user and a movie, plus a bias of each, which is the last column of its table."""

    def __init__(self, users: int, movies: int, width: int) -> None:
        super().__init__()
        self.users, self.rows = nn.Embedding(users, width + 1), nn.Embedding(movies, width + 1)
        for table in (self.users, self.rows):
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, user: Tensor, movie: Tensor) -> Tensor:
        """Return a rating for each pair, (B,)."""
        one, other = self.users(user), self.rows(movie)
        return (one[:, :-1] * other[:, :-1]).sum(1) + one[:, -1] + other[:, -1]


def measure(arm: str, size: int) -> None:
    """Print the time and memory of steps on a table of this size, in this process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    examples = 20_000
    words = (torch.rand(examples, 20) ** 4 * size).long()  # few words are frequent
    selection = {"dense noise": None, "public rows": FEST({TABLE: range(LISTED)}), "counted rows": AdaFEST(TABLE, THRESHOLD)}[arm]
    plan = privet.Plan(
        examples=examples, sampling=privet.sampling.Poisson(batch_size=256), steps=20, delta=DELTA,
        clipping=privet.clipping.Flat(BOUND), noise=privet.noise.Gaussian(1.0), embeddings=selection,
    )  # fmt: skip
    model = Texts(size, 64)
    optimizer, data = torch.optim.SGD(model.parameters(), lr=0.1), TensorDataset(words, torch.randn(examples))
    unprobed = privet.Reading(probe=False)  # the check before the first step is dense in all arms
    steps = iter(privet.Training(plan, model, squared_error, optimizer, data, reading=unprobed))
    before, seconds = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
    for _ in range(len(range(plan.total_steps))):
        started = time.perf_counter()
        next(steps)
        seconds.append(time.perf_counter() - started)
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"| {size:,} | {arm} | {1e3 * statistics.median(seconds[2:]):.0f} ms | {more:.0f} MB |", flush=True)


@dataclass(frozen=True)
class Task:
    """A model, training and test examples, and the public rows of its table."""

    model: Callable[[], nn.Module]
    train: TensorDataset
    test: tuple[Tensor, ...]
    public: range
    rates: tuple[float, ...]
    baseline: float  # root mean squared error of the best constant


def split(model: Callable[[], nn.Module], public: range, rates: tuple[float, ...], *columns: Tensor) -> Task:
    """Return the task of these examples, a random tenth of which is for tests."""
    order = torch.randperm(len(columns[0]), generator=torch.Generator().manual_seed(1))
    cut = len(order) // 10
    test = tuple(column[order[:cut]] for column in columns)
    constant = float((test[-1] - test[-1].mean()).square().mean().sqrt())
    return Task(model, TensorDataset(*(column[order[cut:]] for column in columns)), test, public, rates, constant)


def zipf() -> Task:
    """Return the task of made-up texts of 50,000 words."""
    size, examples, generator = 50_000, 100_000, np.random.default_rng(0)
    law = 1 / np.arange(1, size + 1)
    words = torch.from_numpy(generator.choice(size, (examples, 20), p=law / law.sum()))
    hidden = torch.from_numpy(generator.normal(size=size)).float()
    target = hidden[words].sum(1) / words.shape[1] ** 0.5
    return split(lambda: Texts(size, 1), range(2000), (2.0, 4.0, 8.0), words, target)


def ratings(path: str) -> Task:
    """Return the task of a file of MovieLens, whose public list is that of an older release."""
    columns = np.loadtxt(path, delimiter=",", skiprows=1, usecols=(0, 1, 2))
    (_, user), (known, movie) = (np.unique(columns[:, place], return_inverse=True) for place in (0, 1))
    rating = torch.from_numpy(columns[:, 2] - 3.0).float()  # 3 is the middle of the scale
    users, movies = int(user.max()) + 1, len(known)
    listed = range(int((known <= LAST_PUBLIC).sum()))
    model, rates = (lambda: Factors(users, movies, 8)), (16.0, 32.0, 64.0, 128.0)
    return split(model, listed, rates, torch.from_numpy(user), torch.from_numpy(movie), rating)


def error(task: Task, embeddings: object, rate: float, seed: int, private: bool = True) -> float:
    """Return the root mean squared error on the test set after a training."""
    torch.manual_seed(seed)
    model, examples = task.model(), len(task.train)
    plan = privet.Plan(
        examples=examples, sampling=privet.sampling.Poisson(batch_size=BATCH), steps=STEPS, delta=DELTA,
        clipping=privet.clipping.Flat(BOUND), embeddings=embeddings,
        noise=privet.noise.Gaussian() if private else privet.noise.Gaussian(0.0, non_private=True),
    )  # fmt: skip
    plan = plan.calibrate(epsilon=EPSILON) if private else plan
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / (STEPS + 1))
    training = privet.Training(plan, model, squared_error, optimizer, task.train, scheduler=decay, physical_batch_size=BATCH)
    training.run()
    with torch.no_grad():
        return float(squared_error(model, task.test).mean().sqrt())


def arms(task: Task) -> Iterator[tuple[str, object, bool]]:
    """Yield the name of each arm, its selection, and whether it is private."""
    yield "no noise", None, False
    yield "dense noise", None, True
    yield f"{len(task.public):,} public rows", FEST({TABLE: task.public}), True
    for threshold in THRESHOLDS:
        yield f"counted rows, threshold {threshold:g}", AdaFEST(TABLE, threshold), True


def compare(task: Task) -> None:
    """Print the error of every arm at its best learning rate."""
    print(f"| arm | error (the best constant: {task.baseline:.3f}) | learning rate |\n|---|---|---|")
    for name, selection, private in arms(task):
        found = {rate: [error(task, selection, rate, seed, private) for seed in range(SEEDS)] for rate in task.rates}
        means = {rate: statistics.mean(runs) for rate, runs in found.items()}
        best = min(means, key=lambda rate: means[rate] if means[rate] == means[rate] else float("inf"))
        spread = statistics.stdev(found[best])
        print(f"| {name} | {means[best]:.3f} ± {spread:.3f} | {best:g} |", flush=True)


def main() -> None:
    """Measure time, or compare errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", help="time, zipf, or the path of ratings.csv")
    parser.add_argument("--arm", choices=ARMS)
    parser.add_argument("--size", type=int)
    given = parser.parse_args()
    if given.arm is not None:
        measure(given.arm, given.size)
    elif given.what == "time":
        print("| rows | arm | median of the steps | more memory |\n|---|---|---|---|", flush=True)
        for size in SIZES:
            for arm in ARMS:
                command = [sys.executable, "-m", "benchmarks.embeddings", "time", "--arm", arm, "--size", str(size)]
                subprocess.run(command, check=True)
    else:
        torch.set_num_threads(1)
        compare(zipf() if given.what == "zipf" else ratings(given.what))


if __name__ == "__main__":
    main()
