"""Random numbers inside of a pass: each example's are its own, whatever else is in the batch, and nobody's seed decides them.

What a model draws comes from generators of the pass, seeded anew for each. A pass that is given up, because its examples differ
in what steers them, is run again in parts: these draw the same numbers again as far as the first pass came. So which parts
there are tells nothing of what was drawn, and what was drawn decides about no part.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

# (number of examples, generator) → their random numbers, (number, …)
Sampler = Callable[[int, torch.Generator], Tensor]
# → a seed that nobody knows, a whole number below 2⁶³
Seeds = Callable[[], int]

_SEED = 20_260
_MASK = (1 << 63) - 1


def seeds_of_torch() -> int:
    """Return a seed drawn from torch's own generator: repeatable for who sets that, so for research only."""
    return int(torch.randint(_MASK, ()))


@dataclass
class _Segment:
    """A stretch of calls with one generator.

    Args:
        seed: of the generator.
        examples: that each call draws for.
        rows: which of them are in this pass; None for all.
        calls: of the stretch; None for the last one, which has no end.
    """

    seed: int
    examples: int
    rows: Tensor | None = None
    calls: int | None = None
    generators: dict[torch.device, torch.Generator] = field(default_factory=dict)

    def generator(self, device: torch.device) -> torch.Generator:
        if device not in self.generators:
            self.generators[device] = torch.Generator(device).manual_seed(self.seed)
        return self.generators[device]


class Draws:
    """The random numbers of the examples of one pass.

    Args:
        examples: B.
        seeds: source of seeds.
    """

    def __init__(self, examples: int, seeds: Seeds) -> None:
        self._seeds = seeds
        self._segments = [_Segment(seeds(), examples)]
        self._at, self._calls = 0, 0

    def sample(self, sampler: Sampler, device: torch.device) -> Tensor:
        """Return random numbers of every example in this pass, (B, …).

        Args:
            sampler: draws them; whatever it is asked for, the numbers of different examples must be independent.
            device: where they are to be.
        """
        segment = self._segments[self._at]
        found = sampler(segment.examples, segment.generator(device))
        self._calls += 1
        if self._calls == segment.calls:
            self._at, self._calls = self._at + 1, 0
        return found if segment.rows is None else found.index_select(0, segment.rows.to(device))

    def again(self, index: Tensor) -> Draws:
        """Return the draws of some of these examples in a pass that begins anew: the same numbers as far as this one came.

        Args:
            index: positions of the examples in this pass.
        """
        other = Draws.__new__(Draws)
        other._seeds, other._at, other._calls = self._seeds, 0, 0
        past = self._segments[: self._at]
        if self._calls:
            past = [*past, replace(self._segments[self._at], calls=self._calls)]
        other._segments = [replace(each, rows=index if each.rows is None else each.rows[index], generators={}) for each in past]
        other._segments.append(_Segment(self._seeds(), len(index)))
        return other

    @contextlib.contextmanager
    def replayed_from(self, mark: tuple[int, int, list[dict[torch.device, Tensor]]]) -> Iterator[None]:
        """Draw again inside what was drawn since a mark was made; go on outside where this was."""
        now = self.mark()
        self._restore(mark)
        try:
            yield
        finally:
            self._restore(now)

    def mark(self) -> tuple[int, int, list[dict[torch.device, Tensor]]]:
        """Return where the draws stand."""
        states = [{device: generator.get_state() for device, generator in each.generators.items()} for each in self._segments]
        return self._at, self._calls, states

    def _restore(self, mark: tuple[int, int, list[dict[torch.device, Tensor]]]) -> None:
        self._at, self._calls, states = mark
        for segment, known in zip(self._segments, states, strict=True):
            segment.generators = {}
            for device, state in known.items():
                segment.generator(device).set_state(state)


class Watch:
    """Tells whether the global generators were drawn from; inside of `preserve_generators`, as it seeds them."""

    def __init__(self) -> None:
        self._torch = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        random.seed(_SEED)
        np.random.seed(_SEED)

    def moved(self) -> bool:
        """Return whether something drew from them since."""
        cuda = torch.cuda.get_rng_state_all() if self._cuda else []
        same = torch.equal(self._torch, torch.get_rng_state()) and all(map(torch.equal, self._cuda, cuda))
        return not same or random.random() != _FIRST[0] or float(np.random.random_sample()) != _FIRST[1]


_FIRST = (random.Random(_SEED).random(), float(np.random.RandomState(_SEED).random_sample()))
