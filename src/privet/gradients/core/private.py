"""While user code runs on private examples, nothing that one of them causes reaches the program's output or the run's end."""

from __future__ import annotations

__all__ = ["hide_warnings", "hold_signals", "raise_interrupt"]

import contextlib
import importlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

# What `signal` itself calls, without the conversion to enumerations, which takes ten times as long as all the rest.
_plain: Any = importlib.import_module("_signal")
_get_handler, _set_handler = _plain.getsignal, _plain.signal
# Interrupts are held first and released last.
_NUMBERS = sorted(map(int, signal.valid_signals()), key=lambda number: (number != signal.SIGINT, number))
_thread = threading.local()  # `hides` is true in a thread that has opened a context which hides


@contextlib.contextmanager
def hide_warnings() -> Iterator[None]:
    """Return a context in which no warning is shown, nor an exception that Python would only print; nested uses do nothing.

    One of NumPy or torch tells that an example caused it, and an exception in `__del__` or in a thread may print its values.

    This holds in all threads of the process, since user code may use threads that it started earlier. Hooks that were in place
    before are silent as well, the user's own too: they would write to a log. Those that user code sets up inside, such as
    `warnings.catch_warnings(record=True)`, are part of the program and are called. Afterwards the hooks are as before.
    """
    if getattr(_thread, "hides", False):
        yield
        return
    token = object()
    _thread.hides = True
    try:
        _hide(token)
        yield
    finally:
        _thread.hides = False
        _unhide(token)


def _hide(token: object) -> None:
    with _lock:
        first, _open[token] = not _open, _read_target()
        if first:
            _before.update({place: _unwrap(getattr(*place)) for place in _HOOKS})
            _once.clear()
            _once.update(warnings.onceregistry)  # type: ignore[attr-defined]
            for place, make in _HOOKS.items():
                setattr(*place, make(_before[place]))


def _unhide(token: object) -> None:
    with _lock:
        if _open.pop(token, None) is None or _open:
            return
        for place, hook in _before.items():
            setattr(*place, hook)
        _before.clear()
        _forget_warnings()


def _forget_warnings() -> None:
    """Let Python forget which warnings it has shown where: a hidden one would not be shown when public code causes it later."""
    registry: dict[Any, Any] = warnings.onceregistry  # type: ignore[attr-defined]
    registry.clear()
    registry.update(_once)
    # Always, since whether an example caused one is private. `catch_warnings` does so too, but other threads may be using it.
    if (forget := getattr(warnings, "_filters_mutated", None)) is not None:
        forget()
    else:
        with warnings.catch_warnings():
            pass


def _read_target() -> Any:
    """Return where a warning would go now: the function that shows it, or the list of this context in which it is recorded."""
    if (shown := warnings.showwarning) is not getattr(warnings, "_showwarning_orig", shown):
        return shown
    read_context = getattr(warnings, "_get_context", None)  # Python 3.14
    log = None if read_context is None else read_context().log
    return getattr(warnings, "_showwarnmsg_impl", shown) if log is None else log


def _make_quiet(plain: Callable[..., Any]) -> Callable[..., Any]:
    return _Quiet(plain, lambda: True)


def _make_quiet_warnings(plain: Callable[..., Any]) -> Callable[..., Any]:
    return _Quiet(plain, _is_outer_target)


def _is_outer_target() -> bool:
    target = _read_target()
    usual = getattr(target, "__module__", None) in ("warnings", "_py_warnings")
    return usual or any(target is each for each in list(_open.values()))


class _Quiet:
    """Stands in for a hook while a context is open; after that it calls the hook, if somebody has kept it."""

    def __init__(self, plain: Callable[..., Any], is_silent: Callable[[], bool]) -> None:
        self.plain, self._is_silent = plain, is_silent

    def __call__(self, *args: Any, **options: Any) -> Any:
        return None if _open and self._is_silent() else self.plain(*args, **options)


def _unwrap(hook: Any) -> Any:
    while type(hook) is _Quiet:
        hook = hook.plain
    return hook


_HOOKS: dict[tuple[Any, str], Callable[[Any], Any]] = {
    (warnings, "_showwarnmsg"): _make_quiet_warnings,
    (sys, "unraisablehook"): _make_quiet,
    (threading, "excepthook"): _make_quiet,
}
# Of the contexts that are open in any thread: where warnings went before each; what was in place before the first.
_open: dict[object, Any] = {}
_before: dict[tuple[Any, str], Any] = {}
_once: dict[Any, Any] = {}
_lock = threading.RLock()


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # a thread that holds it does not exist in the child
    os.register_at_fork(after_in_child=_renew_lock)


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
