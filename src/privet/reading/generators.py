"""Generators of random numbers that a data set or `collate` uses: each example gets numbers of its own from them, too."""

from __future__ import annotations

__all__ = ["OwnGenerators"]

import contextlib
import random
import sys
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import torch

from privet.reading.holders import Unsearched, Watch, explore

_ODD = 0x9E37_79B9_7F4A_7C15  # so that no two generators of one kind begin alike


def _seed_bits(bits: np.random.BitGenerator, seed: int) -> None:
    bits.state = type(bits)(seed).state


def _write_bits(bits: np.random.BitGenerator, state: Any) -> None:
    bits.state = state


def _seed_old(generator: np.random.RandomState, seed: int) -> None:
    bits = generator._bit_generator
    if isinstance(bits, np.random.MT19937):
        generator.seed(seed % 2**32)
    else:  # NumPy seeds no others
        generator.set_state({**type(bits)(seed).state, "has_gauss": 0, "gauss": 0.0})


def _read_sequence(sequence: np.random.SeedSequence) -> Any:
    reduced: Any = sequence.__reduce__()
    return reduced[2] if len(reduced) > 2 else reduced[1][2]


def _write_sequence(sequence: np.random.SeedSequence, state: Any) -> None:
    # Its attributes are read-only, and a bit generator takes no other sequence: unpickling is the only way to change it.
    sequence.__setstate__(state)  # type: ignore[attr-defined]


def _seed_sequence(sequence: np.random.SeedSequence, seed: int) -> None:
    """Let a sequence spawn other children for each seed; what the user derives from its entropy stays the same."""
    fresh = np.random.SeedSequence(sequence.entropy, spawn_key=(seed,), pool_size=sequence.pool_size)
    _write_sequence(sequence, _read_sequence(fresh))


# Kind of a generator → how to seed it, to read its state, and to write it. Those of subclasses are their own methods.
_KINDS: dict[type, tuple[Callable[[Any, int], Any], Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    torch.Generator: (
        lambda generator, seed: generator.manual_seed(seed), lambda generator: generator.get_state(),
        lambda generator, state: generator.set_state(state),
    ),
    np.random.BitGenerator: (_seed_bits, lambda bits: bits.state, _write_bits),
    np.random.SeedSequence: (_seed_sequence, _read_sequence, _write_sequence),
    np.random.RandomState: (
        _seed_old, lambda generator: generator.get_state(legacy=False), lambda generator, state: generator.set_state(state),
    ),
    random.Random: (
        lambda generator, seed: generator.seed(seed), lambda generator: generator.getstate(),
        lambda generator, state: generator.setstate(state),
    ),
}  # fmt: skip
# How many objects that reads have created are followed before all are looked for anew, which drops those that are gone.
_NEW = 64


class OwnGenerators(Unsearched):
    """The generators that user code uses.

    They are looked for in attributes and slots, in containers, in what functions hold, in the user's own classes, and in the
    globals that the user's functions name; the global ones are not among them. Everywhere in the first, second, fourth, eighth, …
    read, because it takes about as long as a few examples; in all others, before and after each example, in what is new.

    Args:
        owners: user code that reads, such as a data set and `collate`.

    Attributes:
        owners: the same.
    """

    def __init__(self, *owners: object) -> None:
        self.owners, self._reads, self._new, self._largest = owners, 0, 0, 0
        self._found, self._watch = dict[int, tuple[Any, type]](), Watch({})

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        return OwnGenerators, self.owners

    def keep(self) -> _Kept:
        """Return a context for one read of several examples."""
        self._reads += 1
        if self._reads & (self._reads - 1) == 0 or self._look_at_new():
            self._look_everywhere()
        return _Kept(self)

    @property
    def found(self) -> dict[int, tuple[Any, type]]:
        """The generators, with their kinds, by id."""
        return self._found

    def look_again(self, states: dict[int, tuple[Any, Any]]) -> bool:
        """Return whether there are generators that have not been there before.

        Args:
            states: by id, generators and their states, of which those are removed that nobody else holds any more.
        """
        if not self._look_at_new():
            return False
        # Repeated, because a generator holds the sequence that it was seeded from.
        while gone := [key for key, count in _count_references(self._found).items() if count == _ALONE + (key in states)]:
            for key in gone:
                del self._found[key]
                states.pop(key, None)
        if len(self._found) > self._largest:  # there may be more like these in places that were left out
            self._look_everywhere()
        return True

    def _look_everywhere(self) -> None:
        explored = explore(self.owners)
        self._found, self._watch = explored.generators, Watch(explored.seen)
        self._new, self._largest = 0, len(self._found)

    def _look_at_new(self) -> bool:
        """Look for generators in what has been replaced or added, and return whether there are new ones."""
        if not (new := self._watch.find_new()):
            return False
        explored = explore(new, self._watch.seen)
        known, self._found = self._found, self._found | explored.generators
        if explored.seen:
            self._new += len(explored.seen)
            if self._new > _NEW:
                self._look_everywhere()
            else:
                self._watch.extend(explored.seen)
        return bool(self._found.keys() - known.keys())


def _count_references(found: Mapping[int, tuple[Any, type]]) -> dict[int, int]:
    return {key: sys.getrefcount(entry[0]) for key, entry in found.items()}


_ALONE = _count_references({0: (object(), object)})[0]


class _Kept:
    """A context in which each example's numbers begin anew, and after which the generators are as before.

    Args:
        own: where the generators are.
    """

    def __init__(self, own: OwnGenerators) -> None:
        self._own, self._states = own, dict[int, tuple[Any, Any]]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for generator, (write, state) in self._states.values():
            write(generator, state)

    def seed(self, number: int) -> None:
        """Let all begin anew from a 64-bit number."""
        for place, (key, (generator, kind)) in enumerate(self._own.found.items(), start=1):
            seed, read, write = _KINDS[kind]
            with contextlib.suppress(NotImplementedError):  # of those that ask the operating system and have no state
                if key not in self._states:
                    self._states[key] = generator, (write, read(generator))
                seed(generator, (number + place * _ODD) % 2**64)

    def look_again(self) -> bool:
        """Return whether there are generators that have not been seeded, as after an example that creates some."""
        return self._own.look_again(self._states)
