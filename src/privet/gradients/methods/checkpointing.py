"""Gradient checkpointing during a pass: recomputation in the backward pass runs inside the same vmap."""

from __future__ import annotations

__all__ = ["Rerun", "patch_recomputation"]

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch.utils.checkpoint

from privet.gradients.core.wrapping import Place, wrap_for_good

Rerun = Callable[[Callable[[], Any]], Any]

# What makes the functions of the passes that run now, and their threads.
_reruns: list[tuple[int, Callable[[], Rerun]]] = []


@contextlib.contextmanager
def patch_recomputation(make_rerun: Callable[[], Rerun]) -> Iterator[None]:
    """Return a context that controls how checkpointed parts (`use_reentrant=False`) of a model are recomputed.

    torch calls the part's function again with its arguments, tensors of one example that are invalid outside vmap.
    Args:
        make_rerun: called when a part begins; returns (function without arguments) → its result, which recomputes it.
    """
    wrap_for_good(_WATCHED)
    entry = threading.get_ident(), make_rerun
    _reruns.append(entry)
    try:
        yield
    finally:
        _reruns.remove(entry)


def _find_rerun() -> Callable[[], Rerun] | None:
    """Return that of this thread's pass; else of the last one, as autograd may run a backward pass in other threads."""
    own = threading.get_ident()
    found = [function for thread, function in _reruns if thread == own] or [function for _, function in _reruns]
    return found[-1] if found else None


def _watch_parts(plain: Any) -> Any:
    @functools.wraps(plain)
    def generator(function: Any, *settings: Any, **options: Any) -> Any:
        make_rerun = _find_rerun()
        if make_rerun is None:
            return plain(function, *settings, **options)
        again = make_rerun()

        def once_more(*args: Any, **kwargs: Any) -> Any:
            return again(lambda: function(*args, **kwargs))

        return plain(once_more, *settings, **options)

    return generator


# A backward pass fails, and the loop is used, if a version of torch lacks it.
_WATCHED: Place = torch.utils.checkpoint, "_checkpoint_without_reentrant_generator", _watch_parts
