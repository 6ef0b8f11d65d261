"""Gradient checkpointing during a pass: recomputation in the backward pass runs inside the same vmap."""

from __future__ import annotations

__all__ = ["Rerun", "detect_reentrant", "patch_recomputation"]

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch.utils.checkpoint

from privet.gradients.core.wrapping import Place, wrap_for_good

Rerun = Callable[[Callable[[], Any]], Any]

# Functions of the passes that run now, and their threads.
_Entries = list[tuple[int, Callable[[], Any]]]
_reruns: _Entries = []
_notices: _Entries = []


def patch_recomputation(make_rerun: Callable[[], Rerun]) -> contextlib.AbstractContextManager[None]:
    """Return a context that controls how checkpointed parts (`use_reentrant=False`) of a model are recomputed.

    torch stores the function and its arguments, and calls it when a saved tensor is needed; the arguments are tensors of one
    example, which are invalid outside vmap.

    Args:
        make_rerun: called when a part begins; returns a function that recomputes the part: (function without arguments) → its
            result.
    """
    return _enter(_reruns, make_rerun)


def detect_reentrant(notice: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
    """Return a context that calls `notice` whenever a part uses reentrant checkpointing, which hides its parameters."""
    return _enter(_notices, notice)


@contextlib.contextmanager
def _enter(entries: _Entries, function: Callable[[], Any]) -> Iterator[None]:
    wrap_for_good(*_WATCHED)
    entry = threading.get_ident(), function
    entries.append(entry)
    try:
        yield
    finally:
        entries.remove(entry)


def _find(entries: _Entries) -> Callable[[], Any] | None:
    """Return the function of this thread's pass; else of the last one, as autograd may run a backward pass in other threads."""
    own = threading.get_ident()
    found = [function for thread, function in entries if thread == own] or [function for _, function in entries]
    return found[-1] if found else None


def _watch_parts(plain: Any) -> Any:
    @functools.wraps(plain)
    def generator(function: Any, *settings: Any, **options: Any) -> Any:
        make_rerun = _find(_reruns)
        if make_rerun is None:
            return plain(function, *settings, **options)
        again = make_rerun()

        def once_more(*args: Any, **kwargs: Any) -> Any:
            return again(lambda: function(*args, **kwargs))

        return plain(once_more, *settings, **options)

    return generator


def _watch_reentrant(plain: Any) -> Any:
    class Noticed(plain):  # type: ignore[misc]
        @classmethod
        def apply(cls, *args: Any) -> Any:
            notice = _find(_notices)
            if notice is not None:
                notice()
            return plain.apply(*args)

    return Noticed


# A backward pass fails, and the loop is used, if a version of torch lacks one.
_WATCHED: tuple[Place, ...] = (
    (torch.utils.checkpoint, "_checkpoint_without_reentrant_generator", _watch_parts),
    (torch.utils.checkpoint, "CheckpointFunction", _watch_reentrant),
)
