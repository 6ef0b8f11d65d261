"""Which objects a snapshot found, and where: enough to tell that none of them was replaced since.

Most passes leave, and find, everything as it was. All of it is compared at once here, by iterators in C. Object by object, in
Python, with the processor's caches full of a step's numbers, it took a quarter of a millisecond per pass.
"""

from __future__ import annotations

__all__ = ["Found", "Identities", "read_global_hooks", "read_memory"]

import itertools
import operator
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from privet.gradients.core.state.bindings import Bindings
from privet.gradients.core.state.contents import Contents
from privet.gradients.core.state.special import read_annotations, read_class, read_function, read_kind

_GLOBALS = vars(nn.modules.module)
_read_hooks_of_all: Callable[[dict[str, Any]], tuple[Any, ...]] = operator.itemgetter(
    *(name for name in _GLOBALS if name.startswith("_global_") and "hooks" in name)
)
_read_grad: Callable[[Tensor], Any] = operator.attrgetter("grad")
_read_hooks: Callable[[Tensor], Any] = operator.attrgetter("_backward_hooks")
_asks_gradient: Callable[[Tensor], bool] = operator.attrgetter("requires_grad")
_read_layout: Callable[[Tensor], Any] = operator.attrgetter("shape", "dtype")
_read_own = object.__getattribute__
_values = operator.methodcaller("values")
_join = itertools.chain.from_iterable


@dataclass(eq=False, slots=True)
class Found:
    """What a snapshot found, so that the next one need not look again where nothing has changed.

    Attributes:
        modules: contents of modules, by the id of their dictionary.
        functions: bindings of functions.
        classes: by the id of a class, which may be equal to another, itself, a copy of its attributes, and those that have
            contents.
    """

    modules: dict[int, Contents] = field(default_factory=dict)
    functions: dict[types.FunctionType, Bindings] = field(default_factory=dict)
    classes: dict[int, tuple[type, dict[str, Any], list[Any]]] = field(default_factory=dict)


def read_memory(parameter: Tensor) -> tuple[Any, ...]:
    """Return where the memory of a parameter is, and how the parameter is laid out in it."""
    # Without numbers it has no place, but it may still have memory.
    place = parameter.data_ptr() or (parameter.untyped_storage()._cdata, parameter.untyped_storage().nbytes())
    return place, parameter.stride(), parameter.is_conj(), parameter.is_neg(), *_read_layout(parameter)


def read_global_hooks() -> tuple[Any, ...]:
    """Return the tables of hooks that are called for every module."""
    return _read_hooks_of_all(_GLOBALS)


class Identities:
    """What was bound where, as of the creation of this object.

    Args:
        found: contents of modules, bindings of functions, and attributes of classes.
        modules, parameters: those found. Parameters have neither hooks nor attributes.
        tables: of parameters, buffers and submodules.
        empty: containers without items.
    """

    def __init__(
        self,
        found: Found,
        modules: Sequence[nn.Module],
        parameters: Sequence[Tensor],
        tables: Iterable[Mapping[str, Any]],
        empty: Sequence[Any],
    ) -> None:
        self._objects, self._parameters, self._empty = [*modules, *parameters], parameters, empty
        self._functions, self._kinds = found.functions, [kind for kind, *_ in found.classes.values()]
        annotations = [each for each in map(read_annotations, found.functions) if each is not None]
        own = [contents.own for contents in found.modules.values()]
        self._tables: list[Mapping[str, Any]] = [*own, *tables, *map(read_class, self._kinds), *annotations]
        self._lengths, self._names = self._read_lengths(), self._read_names()
        self._bound, self._numbers = list(self._read_bound()), self._read_numbers()

    def are_current(self) -> bool:
        """Return whether everything is bound as it was, parameters have the same memory, and what was empty still is."""
        return (
            self._read_lengths() == self._lengths
            and self._read_names() == self._names
            and all(map(operator.is_, self._read_bound(), self._bound))
            and not any(self._empty)
            and not any(map(_read_hooks, self._parameters))
            and self._read_numbers() == self._numbers
            and all(map(Bindings.are_current, self._functions.values()))
        )

    def _read_lengths(self) -> list[int]:
        return list(map(len, self._tables))

    def _read_names(self) -> list[str]:
        return list(_join(self._tables))

    def _read_bound(self) -> Iterator[Any]:
        """Return all that is bound, the same number of objects as long as the lengths of the tables are the same."""
        return itertools.chain(
            map(type, self._objects),
            map(_read_own, self._objects, itertools.repeat("__dict__")),
            map(_read_grad, self._parameters),
            _join(map(_values, self._tables)),
            _join(map(read_function, self._functions)),
            map(read_annotations, self._functions),
            _join(map(read_kind, self._kinds)),
            read_global_hooks(),
        )

    def _read_numbers(self) -> list[Any]:
        """Return whether parameters require gradients, where their memory is, and how they are laid out in it."""
        return [*map(_asks_gradient, self._parameters), *map(read_memory, self._parameters)]
