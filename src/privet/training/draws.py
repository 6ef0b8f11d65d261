"""The draws of a run and the examples in them, in one stream for all loops; and how they are read."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import count as count_from
from itertools import islice
from typing import Any

import numpy as np

from privet._utils.registry import is_own
from privet.errors import InvalidArgumentError, count
from privet.reading.batches import Group, PhysicalBatch, split
from privet.reading.rows import ExampleReader, physical_batches
from privet.sampling import Indices, Scheme, Words


@dataclass(frozen=True, eq=False)
class Reading:
    """How a training reads its examples, and what the check before its first step uses.

    Args:
        workers: number of processes that read examples ahead, ≥ 0; 0 reads them in the process that trains.
        probe_batch: public batch of several examples to check with, for models that need realistic values.
        spec: made-up item with the structure of the data set's items; its shapes are used instead of those of the first
            examples, with its text, and with its numbers if the program takes no others. A `probe_batch` takes precedence.
        probe: whether to check model, loss and collate on public input before the first step. Without it, examples are still
            isolated, but a program that behaves differently for a single example, or keeps hidden state, goes unnoticed; the
            statement says so.

    Raises:
        InvalidArgumentError: an argument is out of range.

    >>> Reading(workers=2)
    Reading(workers=2, probe_batch=None, spec=None, probe=True)
    """

    workers: int = 0
    probe_batch: Any = None
    spec: Any = None
    probe: bool = True

    def __post_init__(self) -> None:
        count("workers", self.workers, minimum=0, fix="It is the number of processes that read ahead; 0 is none.")
        if not isinstance(self.probe, bool):
            raise InvalidArgumentError("probe", self.probe, "True or False")


class DrawReader:
    """Draws and reads the examples of every step, in the order of the steps.

    `words` are random words for the draws, `seeds` those for user code that reads (None if none runs). Physical batches have at
    most `size` examples. The steps from `first` on share a partition or cycle. `take` returns the part of a draw to read, and the
    position where it starts.

    Guarantee:
        A draw belongs to one step of the ledger and is never used for another, even if it was read ahead and reading stopped and
        began again. So the steps of an epoch use one partition, and no example is drawn twice in it, whatever the loops.
    """

    def __init__(
        self, scheme: Scheme, examples: int, words: Words, seeds: Words | None, rows: ExampleReader, size: int, workers: int,
        take: Callable[[Indices], tuple[int, Indices]] = lambda draw: (0, draw),
    ) -> None:  # fmt: skip
        self._take = take
        self._scheme, self._examples, self._words, self._seeds = scheme, examples, words, seeds
        self._rows, self._size, self._workers = rows, size, workers
        self._is_own = is_own(scheme)
        self._draws: Iterator[Indices] | None = None
        self._upcoming = self.first = 1  # the step of the next draw
        # Step → the part of its draw that is read here and its first position, until a later step starts.
        self._kept: dict[int, tuple[int, Indices]] = {}
        self._stream: Generator[tuple[PhysicalBatch, list[Group]], None, None] | None = None
        self._process = os.getpid()

    def start(self, step: int) -> int:
        """Return the first step, from `step` on, that can be read; steps before it must be spent without a release.

        The draws continue. A training without draws, or one that lost them, starts new ones where the scheme allows it.
        """
        for done in [number for number in self._kept if number < step]:
            del self._kept[done]
        if self._draws is not None and (step in self._kept or step >= self._upcoming):
            return step
        self.close()
        self._kept.clear()
        self._upcoming = self.first = self._scheme.resumes_at(step, self._examples)
        self._draws = self._scheme.draws(self._examples, self._words)
        return self._upcoming

    def open(self, step: int) -> bool:
        """Start to read from a step on, unless reading continues from the previous step; return whether it was started."""
        if self._stream is not None:
            return False
        self._stream = physical_batches(self._rows, self._split(step), self._workers)
        return True

    def read(self, step: int) -> Iterator[tuple[PhysicalBatch, list[Group]]]:
        """Yield the physical batches of a step's draw, with the examples that could be read; an empty draw is one empty batch.

        `start` was called for the step; draws of earlier steps must have been read to their end, or closed.
        """
        self.open(step)
        assert self._stream is not None
        batches = len(range(0, max(len(self._draw(step)[1]), 1), self._size))
        yield from islice(self._stream, batches)

    def close(self) -> None:
        """Stop reading, and end worker processes; draws of later steps are kept."""
        if self._stream is not None and self._process == os.getpid():  # a fork would end the workers of its parent
            self._stream.close()
            self._stream = None

    def _split(self, step: int) -> Iterator[PhysicalBatch]:
        """Yield the physical batches of a step and all later ones."""
        for number in count_from(step):
            first, draw = self._draw(number)
            yield from split(draw, number, self._size, self._seeds, first)

    def _draw(self, step: int) -> tuple[int, Indices]:
        while step not in self._kept:
            # An interruption leaves no draws, rather than draws of the wrong steps.
            draws, self._draws = self._draws, None
            assert draws is not None
            assert step >= self._upcoming  # else it would draw for ever
            self._kept[self._upcoming] = self._take(self._check(next(draws)))
            self._upcoming += 1
            self._draws = draws
        return self._kept[step]

    def _check(self, draw: Indices) -> Indices:
        """Return a draw in which no example occurs twice, even if a scheme from elsewhere returns one that repeats examples."""
        if self._is_own:
            return draw
        found = np.asarray(draw, dtype=np.int64).ravel()
        return np.unique(found[(found >= 0) & (found < self._examples)])
