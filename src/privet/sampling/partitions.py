"""Epoch-based sampling schemes, in which every example takes part exactly once per epoch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import cycle
from typing import ClassVar

import numpy as np

from privet import accounting
from privet._utils.randomness import Words
from privet._utils.registry import register
from privet.accounting import Event
from privet.errors import InvalidArgumentError, count, real
from privet.noise import Participation
from privet.sampling.draws import Indices, below, permutation
from privet.sampling.scheme import ByEpoch, check_size


@dataclass(frozen=True)
class _Bins(ByEpoch):
    """Every example joins one step of an epoch, drawn uniformly and independently of the others."""

    accounted_as = accounting.BallsInBinsEvent

    batch_size: float

    def __post_init__(self) -> None:
        if real("sampling.batch_size", self.batch_size, "It is the expected number of examples in a step.") < 1:
            raise InvalidArgumentError("sampling.batch_size", self.batch_size, "at least 1", "Fewer leave most steps empty.")

    def expected_batch_size(self, examples: int) -> float:
        """Return N / ⌈N / batch_size⌉."""
        return examples / self.epoch_length(examples)

    def rate(self, examples: int) -> float:
        """Return 1 / ⌈N / batch_size⌉."""
        return 1 / self.epoch_length(examples)

    def epoch_length(self, examples: int) -> int:
        """Return ⌈N / batch_size⌉."""
        return _batches(examples, self.batch_size)

    def partition(self, examples: int, words: Words) -> list[Indices]:
        """Return the examples of each step, possibly none."""
        length = self.epoch_length(examples)
        chosen = below(length, examples, words)
        ends = np.bincount(chosen, minlength=length).cumsum()
        return np.split(np.argsort(chosen, kind="stable"), ends[:-1])


@register
@dataclass(frozen=True)
class BallsInBins(_Bins):
    """In each epoch, every example joins one step, drawn uniformly and independently of the others.

    Batch sizes vary nearly as under Poisson sampling, but every example takes part exactly once per epoch.

    Args:
        batch_size: largest expected number of examples in a step, ≥ 1: an epoch of N examples has ⌈N / batch_size⌉ steps with
            N / ⌈N / batch_size⌉ expected examples each.

    Guarantee:
        An example's step does not depend on the other examples, so every adjacency is supported. Epochs are independent.

    Source:
        Chua et al. 2025, "Balls-and-Bins Sampling for DP-SGD"; Feldman, Shenfeld 2025, "Privacy Amplification by Random
        Allocation".

    >>> BallsInBins(batch_size=512).epoch_length(examples=60_000)
    118
    """


@register
@dataclass(frozen=True)
class FixedOrder(_Bins):
    """The same steps for every example in all epochs, for noise that is correlated over all steps.

    Every example joins one step of the epoch, drawn uniformly and independently of the others once per run, as with
    `BallsInBins`.

    Args:
        batch_size: as for `BallsInBins`.

    Guarantee:
        An example takes part once per epoch, in steps that are exactly an epoch apart: the minimum separation that
        `noise.BufferedToeplitz` relies on. With independent noise, every epoch is one Gaussian release. The order need not be
        secret, and there is no amplification. An example's step does not depend on the others, so every adjacency is
        supported. A run that lost its order continues at the next epoch with a new one, which costs nothing.

    Source:
        Choquette-Choo et al. 2022, "Multi-Epoch Matrix Factorization Mechanisms for Private Machine Learning" (fixed order).

    >>> FixedOrder(batch_size=512).pattern(examples=60_000, steps=236)
    Participation(steps=236, times=2, separation=118, rate=1.0, epoch=118)
    """

    def draws(self, examples: int, words: Words) -> Iterator[Indices]:
        """Yield the steps of one partition again and again, from the beginning."""
        return cycle(self.partition(examples, words))

    def pattern(self, examples: int, steps: int) -> Participation:
        """Return how an example takes part: once per epoch, always in the same step."""
        return replace(super().pattern(examples, steps), separation=self.epoch_length(examples))

    def event(self, examples: int, noise_multiplier: float, count: int) -> Event:
        """Return the event of `count` epochs with the same noise multiplier."""
        return Event(1.0, noise_multiplier, count)


@register
@dataclass(frozen=True)
class Shuffle(ByEpoch):
    """In each epoch, the data are shuffled and split into batches, as in most non-private training.

    Args:
        batch_size: number of examples in a step, an integer ≥ 1; the last batch of an epoch may be smaller.

    Guarantee:
        Every order is equally likely in every epoch, independently. No useful amplification is proven: a lower bound on ε is
        several times the ε of Poisson sampling at the same rate, so shuffling must never be accounted for as Poisson sampling.

    Source:
        Chua et al. 2024, "How Private are DP-SGD Implementations?" and "Scalable DP-SGD: Shuffling vs. Poisson Subsampling".

    >>> Shuffle(batch_size=256).epoch_length(examples=60_000)
    235
    """

    batch_size: int

    accounted_as = accounting.ShuffledEvent
    refused: ClassVar[Mapping[str, str]] = {
        "add-remove": "Removing an example moves others to other batches, so the sums of many steps change.",
    }

    def __post_init__(self) -> None:
        count("sampling.batch_size", self.batch_size, fix="It is the exact number of examples in a step.")

    def expected_batch_size(self, examples: int) -> float:
        """Return the batch size."""
        return check_size(self.batch_size, examples)

    def epoch_length(self, examples: int) -> int:
        """Return ⌈N / batch_size⌉."""
        return _batches(examples, self.batch_size)

    def partition(self, examples: int, words: Words) -> list[Indices]:
        """Return the batches of one shuffled pass over the data."""
        order = permutation(examples, words)
        return [np.sort(batch) for batch in np.split(order, range(self.batch_size, examples, self.batch_size))]


def _batches(examples: int, size: float) -> int:
    return math.ceil(examples / check_size(size, examples))
