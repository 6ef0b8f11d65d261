"""Random numbers within a pass: independent for every example and unaffected by the rest of the batch or by user seeds.

A model draws from generators that belong to the pass and are freshly seeded for it. A pass that is abandoned because its
examples take different paths is repeated in parts, which draw the same numbers again up to the point that any pass before
reached. So the split does not change the distribution of the numbers.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from privet._utils.randomness import Words, torch_generators, watch_generators
from privet.gradients.core.batching import run_on_physical_batch

# (number of examples, generator) → their random numbers, (number, …)
DrawFunction = Callable[[int, torch.Generator], Tensor]
# → a secret seed, an integer in [0, 2⁶³)
SeedSource = Callable[[], int]

_MASK = (1 << 63) - 1
_BLOCK = 64  # words that are drawn at once, as one alone takes as long


def draw_torch_seed(generator: torch.Generator | None = None) -> int:
    """Draw a seed from a generator, by default torch's global one: reproducible after its `manual_seed`, so for research only."""
    return int(torch.randint(_MASK, (), generator=generator, device="cpu"))


def make_seed_source(words: Words) -> SeedSource:
    """Return a source of secret seeds made of random words, each used once."""

    def draw() -> Iterator[int]:
        while True:
            for word in words(_BLOCK):
                yield int(word) >> 1

    return functools.partial(next, draw())


@dataclass
class _Segment:
    seed: int
    examples: int  # that each call draws for
    rows: Tensor | None = None  # positions of those that are in this pass; None for all
    calls: int | None = None  # number of draws; None for the last segment, which is open
    generators: dict[torch.device, torch.Generator] = field(default_factory=dict)

    def generator(self, device: torch.device) -> torch.Generator:
        if device not in self.generators:
            self.generators[device] = torch.Generator(device).manual_seed(self.seed)
        return self.generators[device]


class Draws:
    """Random numbers of the B examples of one pass."""

    def __init__(self, examples: int, seeds: SeedSource) -> None:
        self._seeds = seeds
        self._segments = [_Segment(seeds(), examples)]
        self._at, self._calls = 0, 0

    def sample(self, sampler: DrawFunction, device: torch.device) -> Tensor:
        """Draw random numbers for every example in this pass, (B, …); the sampler's must be independent between examples."""
        segment = self._segments[self._at]
        found = sampler(segment.examples, segment.generator(device))
        self._calls += 1
        if self._calls == segment.calls:
            self._at, self._calls = self._at + 1, 0
        return found if segment.rows is None else found.index_select(0, segment.rows.to(device))

    @property
    def are_unused(self) -> bool:
        """Whether nothing was drawn."""
        return not (self._at or self._calls)

    def restart(self, index: Tensor) -> Draws:
        """Return the draws for a repeated pass over the examples at `index`: all numbers that were drawn so far, then new ones.

        Also those that this pass did not come to: it may be given up earlier than one before it, whose numbers decided the split.
        """
        other = Draws.__new__(Draws)
        other._seeds, other._at, other._calls = self._seeds, 0, 0
        *past, last = self._segments
        if self._at == len(past) and self._calls:
            past.append(replace(last, calls=self._calls))
        other._segments = [replace(each, rows=index if each.rows is None else each.rows[index], generators={}) for each in past]
        other._segments.append(_Segment(self._seeds(), len(index)))
        return other

    @contextlib.contextmanager
    def replay_from(self, mark: tuple[int, int, list[dict[torch.device, Tensor]]]) -> Iterator[None]:
        """Return a context that repeats the draws since a mark; afterwards, continue from the current point."""
        now = self.mark()
        self._restore(mark)
        try:
            yield
        finally:
            self._restore(now)

    def mark(self) -> tuple[int, int, list[dict[torch.device, Tensor]]]:
        """Return the current state of the draws."""
        states = [{device: generator.get_state() for device, generator in each.generators.items()} for each in self._segments]
        return self._at, self._calls, states

    def _restore(self, mark: tuple[int, int, list[dict[torch.device, Tensor]]]) -> None:
        self._at, self._calls, states = mark
        for segment, known in zip(self._segments, states, strict=True):
            segment.generators = {}
            for device, state in known.items():
                segment.generator(device).set_state(state)


class Draw:
    """Draws random tensors for the current example; there is no token in the loop over single examples."""

    def __init__(self, draws: Draws, token: Tensor | None) -> None:
        self._draws, self._token = draws, token

    @property
    def is_together(self) -> bool:
        """Whether several examples draw at once, inside vmap."""
        return self._token is not None

    def __call__(self, fill: Callable[[Tensor, torch.Generator], Tensor], like: Tensor) -> Tensor:
        """Return `fill(empty tensor, generator)` for a tensor of the shape, dtype and device of `like`."""
        shape, dtype, device = like.shape, like.dtype, like.device

        def sample(examples: int, generator: torch.Generator) -> Tensor:
            return fill(torch.empty(examples, *shape, dtype=dtype, device=device), generator)

        if self._token is None:
            return self._draws.sample(sample, device)[0]
        # Inside vmap, torch refuses to fill an unbatched tensor.
        found: Tensor = run_on_physical_batch(self._token, lambda _: self._draws.sample(sample, device), (self._token,))
        return found

    def empty_result(self, function: Any, arguments: Any, options: dict[str, Any]) -> Tensor:
        """Return an uninitialised tensor like the result of a tensor factory, which vmap lets draw nothing."""
        own, out = without_options(options, "generator", "out", "device", "requires_grad", "pin_memory"), options.get("out")
        if out is not None:
            own["dtype"], options = out.dtype, {"device": out.device}
        found: list[Tensor] = []

        def look(token: Tensor | None) -> Tensor | None:
            found.append(function(*arguments, **own, device="meta"))
            return token

        look(None) if self._token is None else run_on_physical_batch(self._token, look, (self._token,))
        device = options.get("device") or torch.get_default_device()
        return torch.empty(found[0].shape, dtype=found[0].dtype, device=device)


def without_options(options: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the options of a call but those of these names."""
    return {name: value for name, value in options.items() if name not in names}


class GeneratorWatch:
    """Detects draws from the global generators; use it inside `preserve_generators`."""

    def __init__(self) -> None:
        self._torch, self._have_others_advanced = _read_states(), watch_generators()

    def has_advanced(self) -> bool:
        """Return whether a global generator has been drawn from since."""
        return _read_states() != self._torch or self._have_others_advanced()


def _read_states() -> list[bytes]:
    """Return the states of torch's generators, as bytes, which are compared faster; a device that comes into use adds one."""
    return [generator.get_state().numpy().tobytes() for generator in torch_generators()]
