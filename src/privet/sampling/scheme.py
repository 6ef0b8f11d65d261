"""What every sampling scheme answers: who takes part in a step, and which accountant covers it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np

from privet._utils.randomness import Words
from privet._utils.registry import Part
from privet.accounting import ADJACENCIES, BallsInBins, Release, Shuffled, epochs
from privet.errors import InvalidArgumentError
from privet.sampling.draws import Indices
from privet.schedules import Factors


class Scheme(Part, ABC):
    """Who takes part in a step. A scheme is a frozen value; what a run draws from it is an iterator with the run's secrets.

    Attributes:
        refused: adjacency → why no accountant covers the scheme for such neighbours.
    """

    refused: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def expected_batch_size(self, examples: int) -> float:
        """Return the public number that sums are divided by: how many examples a step has in expectation, or at most.

        Raises:
            InvalidArgumentError: the scheme does not suit a data set of this size.
        """

    @abstractmethod
    def draws(self, examples: int, words: Words) -> Iterator[Indices]:
        """Yield the sorted indices of one step's examples after another, without end.

        The first array is that of a step at which a run may begin or go on, as `resumes_at` says.

        Args:
            examples: number of examples in the data set.
            words: source of independent uniform 64-bit words.
        """

    def rate(self, examples: int) -> float:
        """Return the chance q that an example takes part in a step, for a data set of this size.

        Raises:
            InvalidArgumentError: the scheme does not suit a data set of this size.
        """
        return self.expected_batch_size(examples) / examples

    def steps_per_epoch(self, examples: int) -> float:
        """Return how many steps see every example once, in expectation or exactly."""
        return self.steps_in(1, examples)

    def steps_in(self, epochs: float, examples: int) -> float:
        """Return how many steps so many epochs have."""
        return epochs * examples / self.expected_batch_size(examples)

    def participation(self, examples: int, steps: int) -> int:
        """Return the largest number of the first `steps` steps that one example can take part in."""
        return steps

    def resumes_at(self, step: int, examples: int) -> int:
        """Return the first step, `step` or a later one, at which a run may go on with new randomness.

        Args:
            step: number of the next step, from 1.
            examples: number of examples in the data set.
        """
        return step

    def check_adjacency(self, adjacency: str) -> None:
        """Refuse neighbours for which no accountant covers the scheme.

        Raises:
            InvalidArgumentError: naming the neighbours that are covered, and why these are not.
        """
        if adjacency in self.refused:
            covered = " or ".join(repr(name) for name in ADJACENCIES if name not in self.refused)
            raise InvalidArgumentError(
                "adjacency", adjacency, f"{covered} with {type(self).__name__} sampling", self.refused[adjacency]
            )

    @abstractmethod
    def event(self, examples: int, noise_multiplier: float, count: int) -> Release:
        """Return what an accountant is told of `count` steps, or epochs, with the same noise multiplier."""

    def events(self, examples: int, multipliers: Factors) -> tuple[Release, ...]:
        """Return what an accountant is told of the first steps of a run, equal ones counted together.

        Args:
            examples: number of examples in the data set.
            multipliers: noise multiplier of every step, in order.
        """
        values, counts = np.unique(multipliers, return_counts=True)
        return tuple(self.event(examples, float(value), int(number)) for value, number in zip(values, counts, strict=True))


class ByEpoch(Scheme):
    """A scheme in which every example takes part in exactly one step of each epoch, by a secret partition of the data.

    The partition lives in the iterator of `draws` and nowhere else. So a run that stops within an epoch cannot finish it: a
    second partition could hand an example to one of its steps again.

    Attributes:
        accounted_as: what an accountant is told of an epoch.
    """

    accounted_as: ClassVar[type[Shuffled] | type[BallsInBins]]

    @abstractmethod
    def epoch_length(self, examples: int) -> int:
        """Return the number of steps in an epoch."""

    @abstractmethod
    def partition(self, examples: int, words: Words) -> list[Indices]:
        """Return the examples of each step of one epoch, sorted."""

    def draws(self, examples: int, words: Words) -> Iterator[Indices]:
        """Yield the steps of one epoch after another, the first epoch from its beginning."""
        while True:
            yield from self.partition(examples, words)

    def steps_in(self, epochs: float, examples: int) -> float:
        """Return how many steps so many epochs have."""
        return epochs * self.epoch_length(examples)

    def events(self, examples: int, multipliers: Factors) -> tuple[Release, ...]:
        """Return one event for every epoch, begun ones included, with the epoch's least noise."""
        return epochs(multipliers.tolist(), self.epoch_length(examples), self.accounted_as)

    def event(self, examples: int, noise_multiplier: float, count: int) -> Release:
        """Return what an accountant is told of `count` epochs with the same noise multiplier."""
        length = self.epoch_length(examples)
        return self.accounted_as(noise_multiplier, count, None if length == 1 else length)

    def participation(self, examples: int, steps: int) -> int:
        """Return the number of epochs that the first `steps` steps touch."""
        return math.ceil(steps / self.epoch_length(examples))

    def resumes_at(self, step: int, examples: int) -> int:
        """Return the first step of an epoch that is not before `step`: what is left of an interrupted epoch counts as spent."""
        length = self.epoch_length(examples)
        return step + (1 - step) % length


def checked_size(size: float, examples: int) -> float:
    """Return a batch size as a float.

    Raises:
        InvalidArgumentError: it is larger than the data set.
    """
    if size > examples:
        raise InvalidArgumentError("sampling.batch_size", size, f"at most the number of examples, {examples}", "Lower it.")
    return float(size)
