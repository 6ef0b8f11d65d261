"""Whose code a module or a class is: the user's, Python's, or that of an installed library."""

from __future__ import annotations

__all__ = ["find_user_classes", "is_user_code"]

import functools
import inspect
import os
import sys
from pathlib import Path

_PYTHON = Path(os.__file__).parent
_INSTALLED = {"site-packages", "dist-packages"}


@functools.cache
def is_user_code(name: str) -> bool:
    """Return whether the Python module of this name belongs neither to Python nor to an installed library."""
    package, place = name.partition(".")[0], getattr(sys.modules.get(name), "__file__", None)
    if package in ("__main__", "torch", "privet"):  # a notebook's or a launcher's main module may have any file
        return package == "__main__"
    if place is None:
        return package not in sys.stdlib_module_names
    return not Path(place).is_relative_to(_PYTHON) and _INSTALLED.isdisjoint(Path(place).parts)


@functools.lru_cache(maxsize=1024)
def find_user_classes(kind: type) -> tuple[type, ...]:
    """Return a class, its bases and its metaclasses that are user code: defined neither in Python nor in an installed library."""
    return tuple(each for each in (*kind.__mro__, *inspect.getmro(type(kind))) if is_user_code(each.__module__))
