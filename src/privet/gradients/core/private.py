"""While user code runs on private examples, nothing that one of them causes reaches the program's output or the run's end."""

from __future__ import annotations

__all__ = ["hide_warnings", "hold_signals", "raise_interrupt"]

import contextlib
import functools
import importlib
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from privet.gradients.core.wrapping import wrap_for_good

# What `signal` itself calls, without the conversion to enumerations, which takes ten times as long as all the rest.
_plain: Any = importlib.import_module("_signal")
_get_handler, _set_handler = _plain.getsignal, _plain.signal
# Interrupts are held first and released last.
_NUMBERS = sorted(map(int, signal.valid_signals()), key=lambda number: (number != signal.SIGINT, number))
_thread = threading.local()  # `hides` is true in a thread while warnings are not shown


@contextlib.contextmanager
def hide_warnings() -> Iterator[None]:
    """Return a context in which this thread shows no warnings: one of NumPy or torch tells that an example caused it."""
    wrap_for_good((warnings, "_showwarnmsg", _unless_hidden))
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


class _Holder:
    """Stands in for the handlers of signals, and notes the signals while it is active.

    Not active, it calls the handlers: an exception on its way out, which leaves it in place, takes no signal from the program.
    """

    def __init__(self, *, active: bool) -> None:
        self.active = active
        self.handlers: dict[int, Callable[[int, Any], object]] = {}
        self.noted: list[tuple[int, Any]] = []

    def __call__(self, number: int, frame: Any) -> None:
        if self.active:
            self.noted.append((number, frame))
        else:
            self.handlers[number](number, frame)


_last = _Holder(active=False)


def raise_interrupt(error: BaseException) -> None:
    """Raise a KeyboardInterrupt again, which comes from whoever runs the program; do nothing for one that user code raised.

    While signals wait, and outside the main thread, only user code raises it, as it may because of one example.
    """
    held = _last.active or threading.current_thread() is not threading.main_thread()
    if isinstance(error, KeyboardInterrupt) and not held:
        raise error


@contextlib.contextmanager
def hold_signals() -> Iterator[None]:
    """Return a context in which signals, interrupts among them, wait for its end; nested uses do nothing.

    What a handler raises, such as the SystemExit of `sys.exit`, would otherwise be taken for an exception of an example. And an
    interrupt could leave the model as an example has made it: any line may be interrupted, those that restore it too. So no
    more than one pass, or one physical batch of a step, belongs into such a context.
    """
    global _last
    if _last.active or threading.current_thread() is not threading.main_thread():  # only the main thread runs handlers
        yield
        return
    holder = _Holder(active=True)
    try:
        _last = holder
        handlers = {number: handler for number in _NUMBERS if callable(handler := _get_handler(number))}
        for number, handler in handlers.items():
            holder.handlers[number] = handler.handlers[number] if type(handler) is _Holder else handler
            _set_handler(number, holder)
        yield
    finally:
        try:
            for number in reversed(holder.handlers):
                _set_handler(number, holder.handlers[number])
        finally:
            holder.active = False
            for number, frame in holder.noted:
                holder.handlers[number](number, frame)
