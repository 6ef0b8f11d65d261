"""While user code runs on private examples, nothing that one of them causes reaches the program's output or the run's end."""

from __future__ import annotations

__all__ = ["hide_warnings", "hold_signals", "raise_interrupt"]

import contextlib
import functools
import importlib
import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

# What `signal` itself calls, without the conversion to enumerations, which takes ten times as long as all the rest.
_plain: Any = importlib.import_module("_signal")
_get_handler, _set_handler = _plain.getsignal, _plain.signal
_get_timer: Any = getattr(_plain, "getitimer", None)
# Interrupts are held first and released last.
_NUMBERS = sorted(map(int, signal.valid_signals()), key=lambda number: (number != signal.SIGINT, number))
# Of each signal of a timer: the timer, and the clock that it runs by. Windows has none.
_TIMERS: dict[int, tuple[int, Callable[[], float]]] = {}
if hasattr(signal, "setitimer"):
    _TIMERS[int(signal.SIGALRM)] = signal.ITIMER_REAL, time.monotonic
    _TIMERS[int(signal.SIGVTALRM)] = signal.ITIMER_VIRTUAL, lambda: os.times().user
    _TIMERS[int(signal.SIGPROF)] = signal.ITIMER_PROF, time.process_time
_thread = threading.local()  # `hides` is true in a thread that has opened a context which hides


@contextlib.contextmanager
def hide_warnings() -> Iterator[None]:
    """Return a context in which no warning is shown, no log record, and no exception that Python only prints.

    Nested uses do nothing.

    A warning of NumPy or torch tells that an example caused it, a tokenizer logs how long a text is, and an exception in
    `__del__` or in a thread may print its values. Of `logging`, all is silent, since a library's records cannot be told from
    those of the user: who wants to log, logs between the steps.

    This holds in all threads of the process, since user code may use threads that it started earlier. Hooks that were in place
    before are silent as well, the user's own too: they would write to a log. Those that user code sets up inside, such as
    `warnings.catch_warnings(record=True)`, are part of the program and are called; but what a thread outside records while the
    context is open stays empty. Afterwards the hooks are as before.
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
            _filters[:] = warnings.filters, list(warnings.filters)
            _warned["always"] = torch.is_warn_always_enabled()
            # Or a hidden warning would use up the one time that torch's C++ shows it.
            torch.set_warn_always(True)
            for place, make in _HOOKS.items():
                setattr(*place, make(_before[place]))


def _unhide(token: object) -> None:
    with _lock:
        if _open.pop(token, None) is None or _open:
            return
        for place, hook in _before.items():
            setattr(*place, hook)
        _before.clear()
        _recorded.clear()
        torch.set_warn_always(_warned.pop("always"))
        _forget_warnings()


def _forget_warnings() -> None:
    """Let Python forget which warnings it has shown where: a hidden one would not be shown when public code causes it later."""
    filters, held = _filters
    filters[:] = held  # or a later warning of public code could be an error because of an example
    warnings.filters = filters
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


def _is_outer_target() -> bool:
    """Return whether a warning would now go to a place that no code inside has set up."""
    if (target := _read_target()) is warnings.showwarning:
        return any(target is each for each in list(_open.values()))
    return id(getattr(target, "__self__", target)) not in _recorded  # `append` of a list, or the list


class _Quiet:
    """Stands in for a function and is silent while a context is open; after that it calls it, if somebody has kept it."""

    def __init__(self, plain: Callable[..., Any]) -> None:
        self.plain = plain

    def __call__(self, *args: Any, **options: Any) -> Any:
        return None if _open else self.plain(*args, **options)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)  # it may be a method


class _QuietOutside(_Quiet):
    def __call__(self, *args: Any, **options: Any) -> Any:
        return None if _open and _is_outer_target() else self.plain(*args, **options)


class _Noting(_Quiet):
    """Notes the lists in which code inside records its warnings: those of other threads may outlive the context."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        log = self.plain(*args, **options)
        if getattr(_thread, "hides", False) and isinstance(log, list):
            _recorded[id(log)] = log
        return log


def _unwrap(hook: Any) -> Any:
    while isinstance(hook, _Quiet):
        hook = hook.plain
    return hook


_HOOKS: dict[tuple[Any, str], Callable[[Any], Any]] = {
    (warnings, "_showwarnmsg"): _QuietOutside,
    (warnings.catch_warnings, "__enter__"): _Noting,
    (logging.Logger, "callHandlers"): _Quiet,
    (sys, "unraisablehook"): _Quiet,
    (threading, "excepthook"): _Quiet,
}
# Of the contexts that are open in any thread: where warnings went before each; what was in place before the first.
_open: dict[object, Any] = {}
_before: dict[tuple[Any, str], Any] = {}
_once: dict[Any, Any] = {}
_filters: list[Any] = []  # the list of filters, and its items
_warned: dict[str, bool] = {}
_recorded: dict[int, list[Any]] = {}  # by `id`, the lists in which code inside records its warnings
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
        self.handlers: dict[int, Any] = {}
        self.noted: list[tuple[int, Any]] = []
        self._timers: dict[int, tuple[float, float, float]] = {}
        self._due: set[int] = set()

    def __call__(self, number: int, frame: Any) -> None:
        if self.active:
            self.noted.append((number, frame))
        else:
            self.handlers[number](number, frame)

    def note_timers(self) -> None:
        """Note the timers that run: they are the program's, and those that come later are of user code."""
        for number in _TIMERS.keys() & self.handlers.keys():
            timer, clock = _TIMERS[number]
            rest, interval = _get_timer(timer)
            self._timers[number] = clock() if rest else 0.0, rest, interval
        self._due = {number for number, _ in self.noted if number in _TIMERS}

    def restore_timers(self) -> None:
        """Let the timers run as if user code had not touched any, and stop its own; note those that would have expired."""
        for number, (start, rest, interval) in self._timers.items():
            timer, clock = _TIMERS[number]
            if not rest and not any(_get_timer(timer)):
                continue  # it did not run, and does not
            left = rest - (clock() - start) if rest else 0.0
            if rest and left <= 0:
                self._due.add(number)
                left = (left % interval or interval) if interval else 0.0
            signal.setitimer(timer, left, interval)

    def call_handlers(self) -> None:
        """Call the handlers of the signals that came, but of timers only those of the program that have expired."""
        self.active = False
        for number, frame in self.noted:
            if number not in _TIMERS:
                self.handlers[number](number, frame)
        for number in sorted(self._due):
            signal.raise_signal(number)


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

    A timer that user code starts (`signal.alarm`, `signal.setitimer`) may tell that an example is slow. So its signal is lost,
    unless the code that starts it sets the handler as well, and it is stopped at the end. A timer that the program has started
    before goes on whatever user code does with it; if it expires inside, its handler runs at the end.
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
        holder.note_timers()
        yield
    finally:
        try:
            holder.restore_timers()  # first, so that no signal of a timer comes when nothing holds it
            for number in reversed(holder.handlers):
                _set_handler(number, holder.handlers[number])
        finally:
            holder.call_handlers()
