"""Wrappers around functions and classes of libraries that passes have to watch."""

from __future__ import annotations

__all__ = ["Place", "wrap_for_good"]

from collections.abc import Callable
from typing import Any

_MARK = "wrapped_for_passes"

# A module or class, the name of an attribute, and a function that returns the attribute's wrapper.
Place = tuple[Any, str, Callable[[Any], Any]]


def wrap_for_good(*places: Place) -> None:
    """Replace functions and classes of libraries by their wrappers, except those that are wrapped already or do not exist.

    Passes may run in several threads and end in any order: so wrappers stay, and do nothing while no pass runs. Every pass asks
    again, because the end of another library's patch may remove a wrapper.
    """
    for owner, name, wrap in places:
        plain = getattr(owner, name, None)
        if plain is not None and not hasattr(plain, _MARK):
            wrapper = wrap(plain)
            setattr(wrapper, _MARK, True)
            setattr(owner, name, wrapper)
