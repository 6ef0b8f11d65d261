"""Generators of random numbers that user code holds, such as `self.rng = numpy.random.default_rng(0)`.

A generator with a public seed would give an example numbers that depend on how many were drawn for others before. So the
generators of a data set are seeded anew for every example, from secret numbers.
"""

from __future__ import annotations

import functools
import random
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

_KINDS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
_ODD = 0x9E37_79B9_7F4A_7C15  # so that no two generators of one kind begin alike
_DEPTH = 7  # data set → module → its table of modules → transform → function → container → generator
_LONG = 64  # a longer container holds examples
_LIBRARIES = ("torch", "numpy", "random")


def find_generators(*owners: object) -> list[Any]:
    """Return the generators in attributes, short containers, and the names that functions and methods use."""
    seen, layer = dict[int, Any](), list(owners)
    for _ in range(_DEPTH):
        fresh = {id(value): value for value in layer if id(value) not in seen}
        seen |= fresh
        layer = [held for value in fresh.values() for held in _list_held(value)]
    return [value for value in seen.values() if isinstance(value, _KINDS)]


def seed_held(generators: Iterable[Any], number: int) -> None:
    """Seed generators from a uniform 64-bit number, each differently."""
    for place, generator in enumerate(generators, start=1):
        own = (number + place * _ODD) % 2**64
        if isinstance(generator, np.random.Generator):
            generator.bit_generator.state = type(generator.bit_generator)(own).state
        elif isinstance(generator, torch.Generator):
            generator.manual_seed(own)
        else:
            generator.seed(own % 2**32)


@contextmanager
def preserve_held(generators: Sequence[Any]) -> Iterator[None]:
    """Restore generators at the end: their states would tell how many numbers were drawn."""
    states = [_access(generator)[0]() for generator in generators]
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            _access(generator)[1](state)


def _access(generator: Any) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """Return what reads and what writes a generator's state."""
    if isinstance(generator, np.random.Generator):
        bits = generator.bit_generator
        return lambda: bits.state, functools.partial(setattr, bits, "state")
    if isinstance(generator, random.Random):
        return generator.getstate, generator.setstate
    return generator.get_state, generator.set_state


def _list_held(value: Any) -> Iterable[object]:
    if isinstance(value, list | tuple | dict):
        held = value.values() if isinstance(value, dict) else value
        return held if len(value) <= _LONG else ()
    if isinstance(value, functools.partial):
        return value.func, *value.args, *value.keywords.values()
    if isinstance(value, types.FunctionType):
        if str(value.__module__).partition(".")[0] in _LIBRARIES:
            return ()
        named = (value.__globals__.get(name) for name in value.__code__.co_names)
        return *named, *(cell.cell_contents for cell in value.__closure__ or ()), *(value.__defaults__ or ())
    if isinstance(value, types.MethodType | types.BuiltinMethodType):
        return value.__self__, getattr(value, "__func__", None)
    if isinstance(value, types.ModuleType | type | np.ndarray | torch.Tensor):
        return ()
    methods = (getattr(type(value), name, None) for name in ("__getitem__", "__call__", "forward", "read"))
    functions = (method for method in methods if isinstance(method, types.FunctionType))
    return *getattr(value, "__dict__", {}).values(), *functions
