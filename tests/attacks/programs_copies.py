"""Attacks by copies that spend the same steps, tokens or budgets twice, and by several loops over one training."""

from __future__ import annotations

import copy
import pickle
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import Task, Verdict, attack, training_of
from materials import Listed, classify, perceptron, points

import privet
from privet.errors import PrivetError
from privet.ledger import Ledger
from privet.noise import FastSource, SecureSource, Token

STEPS = 3
PLAN = {"noise": privet.noise.Gaussian(2.0), "sampling": privet.sampling.Poisson(batch_size=6)}


def training(**options: Any) -> privet.Training:
    """Return a training with noise."""
    return training_of(Task(perceptron, classify, steps=STEPS, plan=PLAN, options={"scheduler": None, **options}), points())


def counted(spend: Callable[[], int], allowed: int = STEPS) -> Verdict:
    """Return the verdict on a program that spends as often as it can and returns the count; a clear error passes."""
    try:
        spent = spend()
    except (PrivetError, TypeError) as error:
        return Verdict(len(str(error)) >= 30, f"refused: {str(error)[:120]}")
    return Verdict(spent <= allowed, f"{spent} of {allowed} spent")


def both_train(make_copy: Callable[[privet.Training], Any]) -> Verdict:
    """Return the verdict on a training and its copy that each take all steps."""

    def spend() -> int:
        one = training()
        other = make_copy(one)
        return sum(1 for _ in other) + sum(1 for _ in one)

    return counted(spend)


@attack("copies", fast=True)
def deep_copy_of_a_training():
    """Original and copy would each take all steps, but state the ε of one."""
    return both_train(copy.deepcopy)


@attack("copies")
def shallow_copy_of_a_training():
    """`copy.copy` shares the ledger, but perhaps not the counter."""
    return both_train(copy.copy)


@attack("copies")
def pickled_training():
    """A pickled training."""
    return both_train(lambda one: pickle.loads(pickle.dumps(one)))


@attack("copies")
def training_through_cloudpickle():
    """cloudpickle supports objects that pickle does not."""
    cloudpickle = pytest.importorskip("cloudpickle")
    return both_train(lambda one: cloudpickle.loads(cloudpickle.dumps(one)))


@attack("copies")
def copy_made_between_steps():
    """The copy is made in the middle of the loop."""

    def spend() -> int:
        one, taken = training(), 0
        others = []
        for step in one:
            taken += 1
            if step.number == 1:
                others.append(copy.deepcopy(one))
        return taken + sum(1 for other in others for _ in other)

    return counted(spend)


@attack("copies")
def copy_by_hand():
    """A new object receives the attributes of the old one."""

    def by_hand(one: privet.Training) -> privet.Training:
        other = object.__new__(privet.Training)
        vars(other).update(vars(one))
        return other

    return both_train(by_hand)


@attack("copies")
def copy_in_a_container():
    """The training is an item of a dict that is deep-copied."""
    return both_train(lambda one: copy.deepcopy({"runs": [one]})["runs"][0])


@attack("copies")
def copy_of_a_model_that_knows_its_training():
    """The model holds the training, and users copy models."""

    def make_copy(one: privet.Training) -> privet.Training:
        vars(one.model)["run"] = one
        return vars(copy.deepcopy(one.model))["run"]

    return both_train(make_copy)


def ledger_of_steps(path: Path | None = None) -> Ledger:
    """Return a new ledger."""
    return Ledger.create({}, [1.0] * STEPS, path)


def reservations(ledger: Ledger) -> int:
    """Return how many steps can still be reserved."""
    taken = 0
    while ledger.next_step is not None:
        ledger.reserve()
        taken += 1
    return taken


@attack("copies")
def deep_copy_of_a_ledger():
    """Two ledgers in memory that count apart."""

    def spend() -> int:
        ledger = ledger_of_steps()
        other = copy.deepcopy(ledger)
        return reservations(ledger) + reservations(other)

    return counted(spend)


@attack("copies")
def shallow_copy_of_a_ledger():
    """The copy shares the list of tokens but not the count."""

    def spend() -> int:
        ledger = ledger_of_steps()
        other = copy.copy(ledger)
        return reservations(ledger) + reservations(other)

    return counted(spend)


@attack("copies")
def pickled_ledger():
    """A pickled ledger."""

    def spend() -> int:
        ledger = ledger_of_steps()
        return reservations(pickle.loads(pickle.dumps(ledger))) + reservations(ledger)

    return counted(spend)


@attack("copies")
def copy_of_a_ledger_on_disk():
    """A copy of the object would write to the same file."""

    def spend() -> int:
        with tempfile.TemporaryDirectory() as folder:
            ledger = ledger_of_steps(Path(folder, "ledger"))
            return reservations(copy.deepcopy(ledger)) + reservations(ledger)

    return counted(spend)


def token_twice(make_copy: Callable[[Token], Token]) -> Verdict:
    """Return the verdict on a token and its copy that are both spent."""

    def spend() -> int:
        token = ledger_of_steps().reserve()
        other = make_copy(token)
        token.spend()
        other.spend()
        return 2

    return counted(spend, allowed=1)


@attack("copies", fast=True)
def copy_of_a_token():
    """One reservation, two releases."""
    return token_twice(copy.copy)


@attack("copies")
def deep_copy_of_a_token():
    """The same by a deep copy."""
    return token_twice(copy.deepcopy)


@attack("copies")
def pickled_token():
    """The same through pickle."""
    return token_twice(lambda token: pickle.loads(pickle.dumps(token)))


@attack("copies")
def token_spent_twice():
    """The same token twice."""
    return token_twice(lambda token: token)


def same_numbers(source: Any, make_copy: Callable[[Any], Any]) -> Verdict:
    """Return the verdict on a copied source of noise: it must not repeat the numbers of the original."""
    try:
        other = make_copy(source)
    except (PrivetError, TypeError) as error:
        return Verdict(len(str(error)) >= 30, f"refused: {str(error)[:120]}")
    repeats = bool(np.array_equal(source.words(8), other.words(8)))
    return Verdict(not repeats, "the copy repeats the noise" if repeats else "the copy has numbers of its own")


@attack("copies")
def deep_copy_of_a_noise_source():
    """Equal noise on two releases cancels in their difference."""
    return same_numbers(SecureSource(), copy.deepcopy)


@attack("copies")
def shallow_copy_of_a_noise_source():
    """A shallow copy shares the stream."""
    return same_numbers(SecureSource(), copy.copy)


@attack("copies")
def pickled_noise_source():
    """A source pickled for another process."""
    return same_numbers(FastSource(), lambda source: pickle.loads(pickle.dumps(source)))


@attack("copies", fast=True)
def two_loops_in_turns():
    """Two iterators over one training are advanced alternately: together they have the plan's steps."""

    def spend() -> int:
        one = training()
        loops, taken = [iter(one), iter(one)], 0
        while loops:
            for loop in list(loops):
                if next(loop, None) is None:
                    loops.remove(loop)
                else:
                    taken += 1
        return taken

    return counted(spend)


@attack("copies")
def loop_within_a_loop():
    """A loop over the training within a loop over it."""

    def spend() -> int:
        one, taken = training(), 0
        for _ in one:
            taken += 1
            taken += sum(1 for _ in one)
        return taken

    return counted(spend)


@attack("copies")
def run_within_a_loop():
    """`run()` within a loop, counted by the ledger."""

    def spend() -> int:
        one = training()
        for _ in one:
            one.run()
        return one.steps_spent

    return counted(spend)


@attack("copies")
def loop_begun_again_after_the_end():
    """A finished training is looped over again."""

    def spend() -> int:
        one = training()
        return sum(1 for _ in one) + sum(1 for _ in one)

    return counted(spend)


class Noting(Listed):
    """A list that counts how often each item is read."""

    def __init__(self, items: Any) -> None:
        super().__init__(items)
        self.read: Counter[int] = Counter()

    def __getitem__(self, index: int) -> Any:
        self.read[index] += 1
        return super().__getitem__(index)


@attack("copies")
def two_loops_over_one_epoch():
    """Each loop would partition the epoch by itself, and an example could be drawn by both."""
    data = Noting((x, int(y)) for x, y in points())
    plan = {**PLAN, "sampling": privet.sampling.Shuffle(batch_size=6), "adjacency": "zero-out"}

    def spend() -> int:
        one = training_of(Task(perceptron, classify, steps=STEPS, plan=plan, options={"scheduler": None}), data)
        data.read.clear()
        loops = [iter(one), iter(one)]
        while loops:
            loops = [loop for loop in loops if next(loop, None) is not None]
        return max(data.read.values(), default=0)

    return counted(spend, allowed=1)


@attack("copies")
def two_runs_on_one_budget():
    """A copied budget must not count apart from the original."""

    def spend() -> int:
        with tempfile.TemporaryDirectory() as folder:
            epsilon = training().plan.epsilon() * 1.2
            budget = privet.Budget.create(Path(folder, "budget"), epsilon=epsilon, delta=1e-5, examples=18)
            one = training(directory=privet.Storage(budget=budget))
            other = training(directory=privet.Storage(budget=copy.deepcopy(budget)))
            return sum(1 for _ in one) + sum(1 for _ in other)

    return counted(spend)


@attack("copies")
def averages_of_momentum_copied():
    """Averages of each example's gradients are private and must not be copied."""
    data = points()
    plan = {"momentum": privet.momentum.PerExample(decay=0.5)}

    def spend() -> int:
        one = training_of(Task(perceptron, classify, steps=STEPS, plan=plan, options={"scheduler": None}), data)
        pickle.dumps(one)
        return STEPS + 1

    return counted(spend)
