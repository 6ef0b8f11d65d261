"""Signals that wait: a handler may raise at any line."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

# Those whose handlers people set: Ctrl-C, and how schedulers announce the end of a job.
_NUMBERS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2") if hasattr(signal, name)]
_held: list[tuple[int, Any]] | None = None  # signals that came while a context holds them; None outside of all contexts


@contextlib.contextmanager
def hold_signals() -> Iterator[None]:
    """Return a context in which interrupts and other signals wait for its end; nested uses do nothing.

    A handler may raise at any line, as if the example had. At most one physical batch belongs into such a context.
    """
    global _held
    if _held is not None or threading.current_thread() is not threading.main_thread():  # only the main thread runs handlers
        yield
        return
    handlers = {number: handler for number in _NUMBERS if callable(handler := signal.getsignal(number))}
    _held = held = []
    try:
        for number in handlers:
            signal.signal(number, lambda *came: held.append(came))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        _held = None
        for number, frame in held:
            handlers[number](number, frame)
