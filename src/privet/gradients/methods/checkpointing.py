"""Gradient checkpointing inside of a pass: what runs again in the backward pass runs inside of the same vmap again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch.utils.checkpoint

Again = Callable[[Callable[[], Any]], Any]
_NAME = "_checkpoint_without_reentrant_generator"


@contextlib.contextmanager
def running_again_by(make_again: Callable[[], Again]) -> Iterator[None]:
    """Let checkpointed parts (`use_reentrant=False`) of a model run again by a function, inside this context.

    torch keeps the function and its arguments, and calls it when a saved tensor is asked for; the arguments are tensors of one
    example, which mean nothing outside of vmap.

    Args:
        make_again: called when a part begins; returns what runs the part once more: (function without arguments) → its result.
    """
    module: Any = torch.utils.checkpoint
    plain = getattr(module, _NAME, None)
    if plain is None:  # another version of torch: such a part fails in the backward pass, and examples go one by one
        yield
        return

    def generator(function: Any, *settings: Any, **options: Any) -> Any:
        again = make_again()

        def once_more(*args: Any, **kwargs: Any) -> Any:
            return again(lambda: function(*args, **kwargs))

        return plain(once_more, *settings, **options)

    setattr(module, _NAME, generator)
    try:
        yield
    finally:
        setattr(module, _NAME, plain)


@contextlib.contextmanager
def noticing_reentrant(notice: Callable[[], None]) -> Iterator[None]:
    """Call a function inside whenever a part of a model is checkpointed in the old way, which hides its parameters from the
    graph.
    """
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
