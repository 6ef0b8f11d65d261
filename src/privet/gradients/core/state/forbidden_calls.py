"""Calls that user code must not make while it runs on examples, because nothing else intercepts or undoes them."""

from __future__ import annotations

__all__ = ["forbid_calls"]

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from privet.errors import UnsupportedModelError
from privet.gradients.core.wrapping import Place, wrap_for_good

_pass = threading.local()  # `running` is true in a thread while it runs user code on examples
_FORBIDDEN: tuple[tuple[Any, str, str], ...] = (
    (threading.Thread, "start", "starts a thread, where writes and random numbers of examples could not be kept apart"),
    (torch.utils, "swap_tensors", "swaps the contents of tensors, which would outlive the pass"),
    (torch._C, "_swap_tensor_impl", "swaps the contents of tensors, which would outlive the pass"),
)


@contextlib.contextmanager
def forbid_calls() -> Iterator[None]:
    """Return a context in which this thread cannot call what torch does not intercept and a snapshot does not restore."""
    wrap_for_good(*_WATCHED)
    before, _pass.running = getattr(_pass, "running", False), True
    try:
        yield
    finally:
        _pass.running = before


def _forbid(plain: Callable[..., Any], does: str) -> Callable[..., Any]:
    @functools.wraps(plain)
    def call(*args: Any, **options: Any) -> Any:
        if getattr(_pass, "running", False):
            raise UnsupportedModelError(f"the model or loss {does}, while it runs on an example")
        return plain(*args, **options)

    return call


_WATCHED: list[Place] = [(owner, name, functools.partial(_forbid, does=does)) for owner, name, does in _FORBIDDEN]
