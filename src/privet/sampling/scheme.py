"""Interface of sampling schemes: the draws of a run, and the events for the accountant."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np

from privet._utils.randomness import Words
from privet._utils.registry import Part, is_own_kind
from privet.accounting import BallsInBinsEvent, ShuffledEvent
from privet.accounting.events import ADJACENCIES, Release
from privet.errors import InvalidArgumentError
from privet.noise import Participation
from privet.sampling.draws import Indices
from privet.schedules import Factors


class Scheme(Part, ABC):
    """A sampling scheme. It is a frozen value; the draws of a run are an iterator that holds the run's secrets.

    Attributes:
        refused: unsupported adjacency → why no accountant covers it.
    """

    refused: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def expected_batch_size(self, examples: int) -> float:
        """Return the public divisor of sums: the expected or largest number of examples in a step."""

    @abstractmethod
    def draws(self, examples: int, words: Words) -> Iterator[Indices]:
        """Yield the sorted indices of each step's examples, without end, from a source of independent uniform 64-bit words.

        The first array is for a step at which a run may begin or resume, according to `resumes_at`.
        """

    def rate(self, examples: int) -> float:
        """Return the sampling rate q, the probability that an example takes part in a step, for a data set of this size."""
        return self.expected_batch_size(examples) / examples

    def steps_per_epoch(self, examples: int) -> float:
        """Return the number of steps that see every example once, in expectation or exactly."""
        return self.steps_in(1, examples)

    def steps_in(self, epochs: float, examples: int) -> float:
        """Return the number of steps in `epochs` epochs."""
        return epochs * examples / self.expected_batch_size(examples)

    def participation(self, examples: int, steps: int) -> int:
        """Return how many of the first `steps` steps one example can take part in at most."""
        return steps

    def pattern(self, examples: int, steps: int) -> Participation | None:
        """Return how one example takes part in the first `steps` steps; None if correlated noise cannot rely on it.

        For schemes that limit the steps of an example: by a cycle, by epochs, or to all of them.
        """
        return None

    def resumes_at(self, step: int, examples: int) -> int:
        """Return the first step from `step` (counted from 1) on at which a run may resume with fresh randomness."""
        return step

    def check_adjacency(self, adjacency: str) -> None:
        """Refuse adjacencies for which no accountant covers the scheme."""
        if adjacency in self.refused:
            covered = " or ".join(repr(name) for name in ADJACENCIES if name not in self.refused)
            fix = self.refused[adjacency]
            raise InvalidArgumentError("adjacency", adjacency, f"{covered} with {type(self).__name__} sampling", fix)

    @abstractmethod
    def event(self, examples: int, noise_multiplier: float, count: int) -> Release:
        """Return the event of `count` steps, or epochs, with the same noise multiplier."""

    def events(self, examples: int, multipliers: Factors) -> tuple[Release, ...]:
        """Return the events of the first steps of a run, one multiplier for every step; equal ones are merged."""
        values, counts = np.unique(multipliers, return_counts=True)
        return tuple(self.event(examples, float(value), int(number)) for value, number in zip(values, counts, strict=True))


class ByEpoch(Scheme):
    """A scheme in which every example takes part in exactly one step of each epoch, by a secret partition of the data.

    The partition lives only in the iterator of `draws`. So a run that stops within an epoch cannot finish it: a second partition
    could assign an example to another step of the same epoch.
    """

    accounted_as: ClassVar[type[ShuffledEvent] | type[BallsInBinsEvent]]

    @abstractmethod
    def epoch_length(self, examples: int) -> int:
        """Return the number of steps in an epoch."""

    @abstractmethod
    def partition(self, examples: int, words: Words) -> list[Indices]:
        """Return the examples of each step of one epoch, sorted."""

    def draws(self, examples: int, words: Words) -> Iterator[Indices]:
        """Yield the steps of successive epochs, from the beginning of the first."""
        while True:
            yield from self.partition(examples, words)

    def steps_in(self, epochs: float, examples: int) -> float:
        """Return the number of steps in `epochs` epochs."""
        return epochs * self.epoch_length(examples)

    def pattern(self, examples: int, steps: int) -> Participation:
        """Return how an example takes part: once per epoch, possibly in its last step and in the first one of the next."""
        length = self.epoch_length(examples)
        return Participation(steps, self.participation(examples, steps), separation=1, epoch=length)

    def events(self, examples: int, multipliers: Factors) -> tuple[Release, ...]:
        """Return one event per epoch, including an unfinished one, with the epoch's smallest multiplier."""
        return tuple(self.event(examples, float(least), 1) for least in least_of(multipliers, self.epoch_length(examples)))

    def event(self, examples: int, noise_multiplier: float, count: int) -> Release:
        """Return the event of `count` epochs with the same noise multiplier."""
        length = self.epoch_length(examples)
        return self.accounted_as(noise_multiplier, count, None if length == 1 else length)

    def participation(self, examples: int, steps: int) -> int:
        """Return the number of epochs that the first `steps` steps touch."""
        return math.ceil(steps / self.epoch_length(examples))

    def resumes_at(self, step: int, examples: int) -> int:
        """Return the first step of the first epoch that begins at or after `step`; the rest of an interrupted epoch is lost."""
        length = self.epoch_length(examples)
        return step + (1 - step) % length


def least_of(multipliers: Factors, steps: int) -> Factors:
    """Return the smallest multiplier of every so many steps in a row, the rest at the end included."""
    return np.asarray(np.minimum.reduceat(multipliers, np.arange(0, len(multipliers), steps)))


# What draws examples, and what says of the draws how to account for them.
_DRAWING = ("draws", "draw", "partition")
_DECLARING = ("rate", "participation", "pattern", "resumes_at", "event", "events", "epoch_length", "accounted_as")


def check_declared(scheme: Scheme) -> None:
    """Refuse a scheme that draws in a way of its own, and inherits from a kind with other draws how to account for them."""
    kinds = type(scheme).__mro__
    definer = {
        name: place for name in (*_DRAWING, *_DECLARING) for place, kind in reversed([*enumerate(kinds)]) if name in vars(kind)
    }
    drawing = min(definer[name] for name in _DRAWING if name in definer)
    if is_own_kind(kinds[drawing]):
        return
    missing = [name for name in _DECLARING if definer.get(name, -1) > drawing and kinds[definer[name]] not in (Scheme, ByEpoch)]
    if missing:
        name, base = kinds[drawing].__name__, kinds[definer[missing[0]]].__name__
        allowed = f"a scheme that declares {', '.join(missing)} beside the draws of its own"
        fix = f"Those of {base} describe other draws. Define them in {name}; what still holds, as in event = {base}.event."
        raise InvalidArgumentError("sampling", scheme, allowed, fix)


def check_size(size: float, examples: int) -> float:
    """Return a batch size as a float, refusing one that is larger than the data set."""
    if size > examples:
        raise InvalidArgumentError("sampling.batch_size", size, f"at most the number of examples, {examples}", "Lower it.")
    return float(size)
