"""Wrappers around functions and classes of libraries that passes have to watch."""

from __future__ import annotations

__all__ = ["wrap_for_good"]

from collections.abc import Callable
from typing import Any

_MARK = "wrapped_for_passes"


def wrap_for_good(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    """Replace a function or a class of a library by its wrapper, unless it is wrapped already.

    Wrappers are never taken off: passes may run in several threads at once, and end in any order. So a wrapper itself knows
    which passes run, and does nothing outside them. Every pass asks again, because a patch of somebody else's that began before
    the first pass removes the wrapper when it ends.

    Args:
        owner: module or class.
        name: of the attribute; nothing happens if the owner lacks it, as other versions of torch may.
        wrap: attribute → its wrapper.
    """
    plain = getattr(owner, name, None)
    if plain is not None and not hasattr(plain, _MARK):
        wrapper = wrap(plain)
        setattr(wrapper, _MARK, True)
        setattr(owner, name, wrapper)
