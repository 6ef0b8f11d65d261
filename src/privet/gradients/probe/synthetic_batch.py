"""Made-up examples with the structure, shapes and types of real ones."""

from __future__ import annotations

__all__ = ["KINDS", "common_objects", "is_joinable", "join_examples", "make_synthetic", "make_synthetic_items"]

import dataclasses
import enum
import threading
import types
from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from privet.errors import UnsupportedModelError
from privet.gradients.core.copying import is_bare
from privet.gradients.core.examples import Examples, context_objects, unflatten

_Fill = Callable[[tuple[int, ...], torch.Generator], Tensor]


def _random_bits(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randint(0, 2, shape, generator=generator, device="cpu")


def _ones(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.ones(shape, dtype=torch.int64, device="cpu")


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, device="cpu")


def _uniform(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=generator, device="cpu").clamp(min=1e-3)


# Floating-point numbers and integers. 0 and 1 are valid in nearly every vocabulary and label set, 1 also as a length; losses such
# as binary cross entropy take numbers between 0 and 1 only, or only the two.
KINDS: tuple[tuple[_Fill, _Fill], ...] = ((_normal, _random_bits), (_uniform, _ones), (_random_bits, _ones))
_DEEPEST = 8


def make_synthetic(examples: Examples, count: int, seed: int = 0, kind: int = 0, kept: Collection[int] = frozenset()) -> Examples:
    """Return made-up examples with the structure of given ones.

    Tensors, arrays and the attributes of plain objects are filled by `KINDS[kind]`, and booleans with true. Python's numbers
    become 1, and text the letter a.

    Args:
        examples: give structure, shapes and types.
        count: number of made-up examples.
        seed: of their content.
        kind: of their numbers.
        kept: ids of objects that stay because all examples share them (`common_objects`).

    Raises:
        UnsupportedModelError: there is another object, which cannot be made up.
    """
    generator = torch.Generator().manual_seed(seed)
    for value in context_objects(examples.tree):
        if id(value) not in kept:
            raise _cannot_make_up(value)

    leaves = tuple(
        _fill(leaf, (count, *leaf.shape[1:]), kind, generator) if own else _invent(leaf, kind, generator, kept=kept)
        for leaf, own in zip(examples.leaves, examples.own, strict=True)
    )
    return Examples(leaves, examples.own, examples.tree, count)


def common_objects(groups: Iterable[Examples]) -> frozenset[int]:
    """Return the ids of the objects, no tensors or constants, that are one and the same for all of several examples.

    Among them are parts of their objects that cannot be copied and hold nothing, such as a file or a module.
    """
    listed = list(groups)
    if sum(group.count for group in listed) < 2:
        return frozenset()
    held = ([*group.shared, *context_objects(group.tree)] for group in listed)
    found = ({**{id(x): x for x in each}, **_bare_parts(each)} for each in held)
    return frozenset.intersection(
        *(frozenset(key for key, x in each.items() if type(x) not in (*_CONSTANTS, *_STRUCTURE)) for each in found)
    )


def _bare_parts(objects: Iterable[Any]) -> dict[int, Any]:
    """Return by id what plain objects hold, and what these hold, that has no contents itself."""
    found, seen, waiting = dict[int, Any](), set[int](), list(objects)
    while waiting:
        value = waiting.pop()
        if id(value) not in seen and _is_plain(type(value)):
            seen.add(id(value))
            parts = pytree.tree_leaves(list((_attributes(value) or {}).values()))
            found.update((id(part), part) for part in parts if is_bare(part))
            waiting += parts
    return found


def _is_plain(kind: Any) -> bool:
    """Return whether an object of this class can be made without arguments, and has nothing but attributes."""
    return kind.__new__ is object.__new__ or kind is types.SimpleNamespace


def make_synthetic_items(item: Any, count: int, kind: int = 0, *, public: bool = False) -> list[Any]:
    """Return made-up items of a data set with the structure of a given one.

    Args:
        item: gives structure, shapes and types.
        count: number of made-up items.
        kind: of their numbers, as for `make_synthetic`.
        public: whether text, and objects that cannot be made up, stay: the item is itself made up.

    Raises:
        UnsupportedModelError: the item is not public and holds an object that cannot be made up.
    """
    generator = torch.Generator().manual_seed(1)

    def invent(leaf: Any) -> Any:
        if type(leaf) is int or type(leaf) is float:
            return type(leaf)(_fill(torch.tensor(leaf, device="cpu"), (), kind, generator).item())
        return _invent(leaf, kind, generator, public)

    return [pytree.tree_map(invent, item) for _ in range(count)]


_CONSTANTS: dict[type, Any] = {bool: True, int: 1, float: 1.0, complex: 1.0 + 0j, str: "a", bytes: b"a"}
_STRUCTURE = (type(None), torch.dtype, torch.device)
_LOCKS: dict[type, Callable[[], Any]] = {type(make()): make for make in (threading.Lock, threading.RLock)}


def _invent(
    leaf: Any, kind: int, generator: torch.Generator, public: bool = False, depth: int = 0, kept: Collection[int] = frozenset()
) -> Any:
    """Return a made-up value in place of a leaf, of which only the type and shape are used; if it is public, only tensors change.

    What is `kept` stays. A lock becomes another one.

    Raises:
        UnsupportedModelError: it is an object that holds something else than attributes.
    """
    own: Any = type(leaf)
    if id(leaf) in kept:
        return leaf
    if own in _LOCKS and not public:
        return _LOCKS[own]()
    if own in _CONSTANTS:
        return leaf if public else _CONSTANTS[own]
    if own in _STRUCTURE:
        return leaf
    if isinstance(leaf, Tensor):
        return _fill(leaf, tuple(leaf.shape), kind, generator)
    if isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind != "O":
        made = _fill_array(leaf.dtype, leaf.shape, kind, generator)
        return made if isinstance(leaf, np.ndarray) else made[()]
    if isinstance(leaf, enum.Enum) and not public:
        return next(iter(own))
    state = _attributes(leaf) if _is_plain(own) and depth < _DEEPEST else None
    if state is None:
        if public:
            return leaf
        raise _cannot_make_up(leaf)
    new = own.__new__(own)
    for name, value in state.items():
        made = pytree.tree_map(lambda part: _invent(part, kind, generator, public, depth + 1, kept), value)
        object.__setattr__(new, name, made)
    return new


def _cannot_make_up(value: object) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"the examples hold an object of type {type(value).__name__!r}, which cannot be made up for the check before the first "
        "step, and that of a real example must not be used: pass a made-up item, reading=privet.Reading(spec=…), or a public "
        "batch, reading=privet.Reading(probe_batch=…)"
    )


def _attributes(value: Any) -> dict[str, Any] | None:
    """Return the attributes of an object; None if it has other contents too."""
    slots = {name for each in type(value).__mro__ for name in vars(each).get("__slots__", ())}
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if field.name in slots and hasattr(value, field.name)]
        return {**{name: getattr(value, name) for name in names}, **getattr(value, "__dict__", {})}
    return None if slots or not hasattr(value, "__dict__") else dict(vars(value))


def _fill(like: Tensor, shape: tuple[int, ...], kind: int, generator: torch.Generator) -> Tensor:
    floats, integers = KINDS[kind]
    if like.is_floating_point():
        return floats(shape, generator).to(like)
    if like.is_complex():
        return torch.complex(*(floats(shape, generator).float() for _ in range(2))).to(like)
    if like.dtype == torch.bool:
        return torch.ones(shape, dtype=torch.bool, device=like.device)
    return integers(shape, generator).to(like)


def _fill_array(dtype: np.dtype[Any], shape: tuple[int, ...], kind: int, generator: torch.Generator) -> Any:
    """Return a made-up array; torch knows neither all of NumPy's types nor all of its strides."""
    floats, integers = KINDS[kind]
    if dtype.kind in "fc":
        return floats(shape, generator).numpy().astype(dtype)
    if dtype.kind in "iu":
        return integers(shape, generator).numpy().astype(dtype)
    return np.zeros(shape, dtype) if dtype.kind in "VmM" else np.full(shape, True if dtype.kind == "b" else "a", dtype)


def is_joinable(examples: Examples) -> bool:
    """Return whether each example's tensors are a batch of one, so that examples can be joined to a larger batch."""
    return all(not own or leaf.shape[1:2] == (1,) for leaf, own in zip(examples.leaves, examples.own, strict=True))


def join_examples(examples: Examples) -> Any:
    """Return a plain batch of all examples, joined along the first dimension of their tensors."""
    leaves = [leaf.flatten(0, 1) if own else leaf for leaf, own in zip(examples.leaves, examples.own, strict=True)]
    return unflatten(leaves, examples.tree)
