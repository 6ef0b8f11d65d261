"""Generators of random numbers that a data set or `collate` holds: each example gets numbers of its own from them, too."""

from __future__ import annotations

__all__ = ["OwnGenerators"]

import functools
import random
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import torch

# How deep generators are looked for, in containers of how many items, and among how many objects.
_DEPTH, _HELD, _SEEN = 4, 64, 2000
_ODD = 0x9E37_79B9_7F4A_7C15  # so that no two generators of one kind begin alike


def _seed_numpy(generator: np.random.Generator, seed: int) -> None:
    generator.bit_generator.state = type(generator.bit_generator)(seed).state


def _restore_numpy(generator: np.random.Generator, state: Any) -> None:
    generator.bit_generator.state = state


# Kind of a generator → how to seed it, to read its state, and to write it.
_KINDS: dict[type, tuple[Callable[[Any, int], Any], Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    torch.Generator: (torch.Generator.manual_seed, torch.Generator.get_state, torch.Generator.set_state),
    np.random.Generator: (_seed_numpy, lambda generator: generator.bit_generator.state, _restore_numpy),
    np.random.RandomState: (
        lambda generator, seed: generator.seed(seed % 2**32), np.random.RandomState.get_state, np.random.RandomState.set_state
    ),
    random.Random: (lambda generator, seed: generator.seed(seed), random.Random.getstate, random.Random.setstate),
}  # fmt: skip


class OwnGenerators:
    """The generators that user code holds, as a context: each example's numbers begin anew, and afterwards states are as before.

    They are looked for in attributes, closures, arguments of partial functions and small containers, four levels deep, again
    after the first example, as some are created by the first call. The global ones are not among them.

    Args:
        owners: user code that reads, such as a data set and `collate`.
    """

    def __init__(self, owners: Sequence[object]) -> None:
        self._owners, self._found = owners, dict[int, tuple[Any, Any]]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for generator, state in self._found.values():
            _KINDS[type(generator)][2](generator, state)

    def seed(self, number: int, *, look_again: bool) -> None:
        """Let all begin anew from a 64-bit number, after looking for further ones if `look_again`."""
        if look_again:
            for key, generator in _find(self._owners).items():
                self._found.setdefault(key, (generator, _KINDS[type(generator)][1](generator)))
        for place, (generator, _) in enumerate(self._found.values(), start=1):
            _KINDS[type(generator)][0](generator, (number + place * _ODD) % 2**64)


def _find(roots: Iterable[object]) -> dict[int, Any]:
    found: dict[int, Any] = {}
    seen: set[int] = set()
    level: list[object] = list(roots)
    for _ in range(_DEPTH + 1):
        following: list[object] = []
        for value in level:
            if id(value) in seen or len(seen) > _SEEN:
                continue
            seen.add(id(value))
            if type(value) in _KINDS:
                found[id(value)] = value
            else:
                following += _held_by(value)
        level = following
    return found


def _held_by(value: object) -> Iterator[object]:
    if isinstance(value, torch.Tensor | np.ndarray | str | bytes | int | float | type | types.ModuleType | None):
        return
    if isinstance(value, dict):
        if len(value) <= _HELD:
            yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        if len(value) <= _HELD:
            yield from value
    elif isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, types.MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, types.FunctionType):
        for cell in value.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # not bound yet
                continue
    try:
        yield from object.__getattribute__(value, "__dict__").values()
    except AttributeError:
        return
