"""Gradient checkpointing during a pass: recomputation in the backward pass runs inside the same vmap."""

from __future__ import annotations

__all__ = ["Rerun", "detect_reentrant", "patch_recomputation"]

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch.utils.checkpoint

Rerun = Callable[[Callable[[], Any]], Any]
_NAME = "_checkpoint_without_reentrant_generator"


@contextlib.contextmanager
def patch_recomputation(make_rerun: Callable[[], Rerun]) -> Iterator[None]:
    """Return a context that controls how checkpointed parts (`use_reentrant=False`) of a model are recomputed.

    torch stores the function and its arguments, and calls it when a saved tensor is needed; the arguments are tensors of one
    example, which are invalid outside vmap.

    Args:
        make_rerun: called when a part begins; returns a function that recomputes the part: (function without arguments) → its
            result.
    """
    module: Any = torch.utils.checkpoint
    plain = getattr(module, _NAME, None)
    if plain is None:  # another version of torch: such a part fails in the backward pass, and the loop is used
        yield
        return

    def generator(function: Any, *settings: Any, **options: Any) -> Any:
        again = make_rerun()

        def once_more(*args: Any, **kwargs: Any) -> Any:
            return again(lambda: function(*args, **kwargs))

        return plain(once_more, *settings, **options)

    setattr(module, _NAME, generator)
    try:
        yield
    finally:
        setattr(module, _NAME, plain)


@contextlib.contextmanager
def detect_reentrant(notice: Callable[[], None]) -> Iterator[None]:
    """Return a context that calls `notice` whenever a part uses reentrant checkpointing, which hides its parameters."""
    module: Any = torch.utils.checkpoint
    plain: Any = module.CheckpointFunction

    class Noticed(plain):  # type: ignore[misc]
        @classmethod
        def apply(cls, *args: Any) -> Any:
            notice()
            return plain.apply(*args)

    module.CheckpointFunction = Noticed
    try:
        yield
    finally:
        module.CheckpointFunction = plain
