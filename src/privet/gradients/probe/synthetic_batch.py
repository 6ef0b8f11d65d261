"""Made-up examples with the structure, shapes and types of real ones."""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from privet.errors import UnsupportedModelError
from privet.gradients.core.examples import Constants, Examples, context_objects, merge_constants, unflatten

_Fill = Callable[..., Tensor]  # (shape, generator=…) → numbers


_BITS, _ONES = (partial(torch.randint, low, 2, device="cpu") for low in (0, 1))


def _uniform(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=generator, device="cpu").clamp(min=1e-3)


# Floating-point numbers and integers. 0 and 1 are valid in nearly every vocabulary and label set, 1 also as a length; losses such
# as binary cross entropy take numbers between 0 and 1 only, or only the two.
KINDS: tuple[tuple[_Fill, _Fill], ...] = ((partial(torch.randn, device="cpu"), _BITS), (_uniform, _ONES), (_BITS, _ONES))
_CONSTANTS: dict[type, Any] = {bool: True, int: 1, float: 1.0, complex: 1.0 + 0j, str: "a", bytes: b"a"}
_STRUCTURE = (type(None), torch.dtype, torch.device)
_DEEPEST = 8


@dataclasses.dataclass(frozen=True)
class _Maker:
    kind: int  # of numbers, a place in `KINDS`
    generator: torch.Generator
    kept: Collection[int] = frozenset()  # ids of objects that stay
    public: bool = False  # whether the given values are public, so that only tensors and arrays change

    def make(self, leaf: Any, depth: int = 0) -> Any:
        """Return a made-up value in place of a leaf, of which only the type and shape are used."""
        own: Any = type(leaf)
        if id(leaf) in self.kept or own in _STRUCTURE:
            return leaf
        if isinstance(leaf, Tensor):
            return self.fill(leaf, tuple(leaf.shape))
        if isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind != "O":
            made = self.fill_array(leaf.dtype, leaf.shape)
            return made if isinstance(leaf, np.ndarray) else made[()]
        if self.public and (own in _CONSTANTS or isinstance(leaf, enum.Enum)):
            return leaf
        if own in _CONSTANTS or isinstance(leaf, enum.Enum):
            return _CONSTANTS[own] if own in _CONSTANTS else next(iter(own))
        attributes = _attributes(leaf) if depth < _DEEPEST else None
        if attributes is None:
            if self.public:
                return leaf
            raise _cannot_make_up(leaf)
        new = own.__new__(own)
        for name, value in attributes.items():
            object.__setattr__(new, name, pytree.tree_map(lambda part: self.make(part, depth + 1), value))
        return new

    def fill(self, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return a tensor of made-up numbers; booleans are true."""
        floats, integers = KINDS[self.kind]
        if like.is_floating_point():
            return floats(shape, generator=self.generator).to(like)
        if like.is_complex():
            return torch.complex(*(floats(shape, generator=self.generator).float() for _ in range(2))).to(like)
        if like.dtype == torch.bool:
            return torch.ones(shape, dtype=torch.bool, device=like.device)
        return integers(shape, generator=self.generator).to(like)

    def fill_array(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        """Return a made-up array; torch knows neither all of NumPy's types nor all of its strides."""
        if dtype.kind in "fciu":
            return KINDS[self.kind][dtype.kind in "iu"](shape, generator=self.generator).numpy().astype(dtype)
        return np.zeros(shape, dtype) if dtype.kind in "VmM" else np.full(shape, True if dtype.kind == "b" else "a", dtype)


def make_synthetic(examples: Examples, count: int, seed: int = 0, kind: int = 0, kept: Collection[int] = frozenset()) -> Examples:
    """Return `count` made-up examples with the structure, shapes and types of given ones.

    Tensors, arrays and the attributes of plain objects are filled by `KINDS[kind]`, and booleans with true. Python's numbers
    become 1, and text the letter a. Objects whose ids are `kept` stay, because all examples share them (`common_objects`).
    Raises:
        UnsupportedModelError: there is another object, which cannot be made up.
    """
    maker = _Maker(kind, torch.Generator().manual_seed(seed), kept)
    for value in context_objects(examples.tree):
        if id(value) not in kept:
            raise _cannot_make_up(value)

    def invent(leaf: Any, own: bool) -> Any:
        if own:
            return maker.fill(leaf, (count, *leaf.shape[1:]))
        if type(leaf) is not Constants:
            return maker.make(leaf)
        made = [maker.make(leaf[place % len(leaf)]) for place in range(count)]
        if kind == 0:  # text that differs, as real text does; for programs that know one word, the other kinds repeat it
            made = [x * (1 + place) if isinstance(x, str | bytes) else x for place, x in enumerate(made)]
        return merge_constants(made)

    leaves = tuple(map(invent, examples.leaves, examples.own))
    return Examples(leaves, examples.own, examples.tree, count)


def common_objects(groups: Iterable[Examples]) -> frozenset[int]:
    """Return the ids of the objects, no tensors or constants, that are one and the same for all of several examples."""
    listed = list(groups)
    if sum(group.count for group in listed) < 2:
        return frozenset()
    held = ([*group.shared, *context_objects(group.tree)] for group in listed)
    return frozenset.intersection(*(frozenset(id(x) for x in each if type(x) not in (*_CONSTANTS, *_STRUCTURE)) for each in held))


def make_synthetic_items(item: Any, count: int, kind: int = 0, *, public: bool = False) -> list[Any]:
    """Return `count` made-up items of a data set with the structure of a given one.

    If `public`, text and objects that cannot be made up stay: the item is itself made up. Otherwise, such objects are refused.
    """
    maker = _Maker(kind, torch.Generator().manual_seed(1), public=public)

    def invent(leaf: Any) -> Any:
        if type(leaf) is int or type(leaf) is float:
            return type(leaf)(maker.fill(torch.tensor(leaf, device="cpu"), ()).item())
        return maker.make(leaf)

    return [pytree.tree_map(invent, item) for _ in range(count)]


def _attributes(value: Any) -> dict[str, Any] | None:
    """Return the attributes of an object that can be made without arguments; None if it has other contents too."""
    kind: Any = type(value)
    own = dict(getattr(value, "__dict__", {}))
    if kind.__new__ is not object.__new__ and not isinstance(value, types.SimpleNamespace):
        return None
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if hasattr(value, field.name)} | own
    slots = any(vars(each).get("__slots__") for each in kind.__mro__)
    return None if slots or not hasattr(value, "__dict__") else own


def _cannot_make_up(value: object) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"the examples hold an object of type {type(value).__name__!r}, which cannot be made up for the check before the first "
        "step, and that of a real example must not be used: pass a made-up item, reading=privet.Reading(spec=…), or a public "
        "batch, reading=privet.Reading(probe_batch=…)"
    )


def is_joinable(examples: Examples) -> bool:
    """Return whether each example's tensors are a batch of one, so that examples can be joined to a larger batch."""
    rows = [leaf for leaf, own in zip(examples.leaves, examples.own, strict=True) if own]
    return bool(rows) and all(leaf.shape[1:2] == (1,) for leaf in rows)


def join_examples(examples: Examples) -> Any:
    """Return a plain batch of all examples, joined along the first dimension of their tensors."""
    leaves = [leaf.flatten(0, 1) if own else leaf for leaf, own in zip(examples.leaves, examples.own, strict=True)]
    return unflatten(leaves, examples.tree)
