"""While user code runs on private examples, nothing that one of them causes reaches the program's output or the run's end."""

from __future__ import annotations

__all__ = ["hide_warnings", "hold_signals"]

import contextlib
import functools
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from privet.gradients.core.wrapping import wrap_for_good

_thread = threading.local()  # `hides` is true in a thread while warnings are not shown


@contextlib.contextmanager
def hide_warnings() -> Iterator[None]:
    """Return a context in which this thread shows no warnings: one of NumPy or torch tells that an example caused it."""
    wrap_for_good(warnings, "_showwarnmsg", _unless_hidden)
    before, _thread.hides = getattr(_thread, "hides", False), True
    try:
        yield
    finally:
        _thread.hides = before


def _unless_hidden(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def show(*args: Any, **options: Any) -> Any:
        return None if getattr(_thread, "hides", False) else plain(*args, **options)

    return show


@contextlib.contextmanager
def hold_signals() -> Iterator[None]:
    """Return a context in which signals wait for its end, apart from an interrupt that raises `KeyboardInterrupt`.

    What a handler raises, such as the SystemExit of `sys.exit`, would otherwise be taken for an exception of an example, and the
    program could not be ended.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread runs handlers
        return
    noted: list[tuple[int, Any]] = []
    found = {number: signal.getsignal(number) for number in signal.valid_signals()}
    handlers = {n: handler for n, handler in found.items() if callable(handler) and handler is not signal.default_int_handler}
    for each in handlers:
        signal.signal(each, lambda *call: noted.append(call))
    try:
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
        for number, frame in noted:
            handlers[signal.Signals(number)](number, frame)
