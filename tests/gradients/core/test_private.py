"""While user code runs on private examples, warnings and logs are not shown, and signals end the run after it."""

import contextlib
import importlib.util
import logging
import os
import signal
import sys
import threading
import time
import warnings

import numpy as np
import pytest
import torch

from privet.gradients.core import private
from privet.gradients.core.private import hide_warnings, hold_signals


def _warn():
    warnings.warn("private", stacklevel=1)


def _find_usual():
    """Return the function that prints a warning, which pytest replaces."""
    fresh = importlib.util.module_from_spec(spec := importlib.util.find_spec("warnings"))
    spec.loader.exec_module(fresh)
    return fresh._showwarnmsg_impl


PLAIN = _find_usual()
WARNINGS = {"python": _warn, "numpy": lambda: np.log(np.zeros(3)), "torch": lambda: torch.ones(1).std()}


@pytest.mark.parametrize("warn", WARNINGS.values(), ids=list(WARNINGS))
def test_warnings_are_shown_outside_only(warn):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with hide_warnings():
            warn()
            with hide_warnings():
                warn()
            warn()
        assert not seen
        warn()
        assert len(seen) == 1


def _in_a_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


@contextlib.contextmanager
def _elsewhere(make):
    """Hold a context open in another thread, and give a list of what it gives."""
    opened, closing, given = threading.Event(), threading.Event(), []

    def other():
        with make() as found:
            given.append(found)
            opened.set()
            closing.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    opened.wait(10)
    try:
        yield given
    finally:
        closing.set()
        thread.join()


def _fail():
    raise ValueError("private")


class _Half:
    def __del__(self):
        _fail()


# What prints an exception, and the hook that is asked to.
PRINTED = {
    "__del__": ((sys, "unraisablehook"), _Half),
    "__del__ in a thread": ((sys, "unraisablehook"), lambda: _in_a_thread(_Half)),
    "thread": ((threading, "excepthook"), lambda: _in_a_thread(_fail)),
}


def test_threads_show_no_warnings_either():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with hide_warnings():
            _in_a_thread(_warn)
        assert not seen
        _in_a_thread(_warn)
        assert len(seen) == 1


@pytest.mark.parametrize(("hook", "cause"), PRINTED.values(), ids=list(PRINTED))
def test_exceptions_are_printed_outside_only(monkeypatch, hook, cause):
    seen = []
    monkeypatch.setattr(*hook, own := lambda told: seen.append(told.exc_type))
    with hide_warnings():
        cause()
        with hide_warnings():
            cause()
        cause()
    assert not seen
    assert getattr(*hook) is own
    cause()
    assert seen == [ValueError]


@pytest.mark.parametrize(("hook", "cause"), PRINTED.values(), ids=list(PRINTED))
def test_a_hook_that_user_code_sets_up_inside_is_called_and_gone_afterwards(monkeypatch, hook, cause):
    seen = []
    monkeypatch.setattr(*hook, own := lambda told: None)

    def run():
        with hide_warnings():
            setattr(*hook, lambda told: seen.append(told.exc_type))
            cause()
            raise KeyError

    with pytest.raises(KeyError):
        run()
    assert seen == [ValueError]
    assert getattr(*hook) is own


def test_a_hook_that_somebody_kept_from_inside_works_afterwards(monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", own := lambda told: seen.append(told.exc_type))
    with hide_warnings():
        kept = sys.unraisablehook
    sys.unraisablehook = kept
    _Half()
    assert seen == [ValueError]
    with hide_warnings():
        _Half()
    assert len(seen) == 1
    assert sys.unraisablehook is own


def test_contexts_of_two_threads_end_in_any_order(monkeypatch):
    seen, longer = [], contextlib.ExitStack()
    monkeypatch.setattr(sys, "unraisablehook", own := lambda told: seen.append(told.exc_type))
    with longer:
        with hide_warnings():
            longer.enter_context(_elsewhere(hide_warnings))
        _Half()
    assert not seen
    assert sys.unraisablehook is own


@pytest.mark.parametrize("warn", WARNINGS.values(), ids=list(WARNINGS))
def test_a_program_that_records_its_warnings_gets_them(warn):
    with warnings.catch_warnings(record=True) as outside:
        with hide_warnings():
            with warnings.catch_warnings(record=True) as inside:
                warnings.simplefilter("always")
                warn()
                with hide_warnings():
                    warn()
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                warn()
        assert len(inside) == 2
        assert not outside


def test_warnings_that_go_to_a_log_or_to_the_usual_place_are_hidden(monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(warnings, "showwarning", lambda *told: seen.append(told))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with hide_warnings():
            _warn()
            monkeypatch.setattr(warnings, "showwarning", warnings._showwarning_orig)
            monkeypatch.setattr(warnings, "_showwarnmsg_impl", PLAIN)
            _warn()
            monkeypatch.setattr(warnings, "showwarning", lambda *told: seen.append("inside"))
            _warn()
    assert seen == ["inside"]
    assert not capsys.readouterr().err


@pytest.mark.parametrize("action", ["default", "module", "once"])
def test_a_hidden_warning_is_shown_when_public_code_causes_it(action):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter(action)
        with hide_warnings():
            _warn()
        _warn()
        _warn()
        assert len(seen) == 1


def test_what_another_thread_records_meanwhile_is_hidden():
    @contextlib.contextmanager
    def recording():
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            yield seen

    with hide_warnings(), _elsewhere(recording) as recorded:
        _warn()
    assert recorded == [[]]


def _warn_once():
    """Cause a warning that torch shows once in a process."""
    array = np.ones(1)
    array.flags.writeable = False
    torch.from_numpy(array)


def test_a_hidden_warning_is_not_the_one_that_torch_shows_in_a_process():
    assert not torch.is_warn_always_enabled()
    with hide_warnings(), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        _warn_once()
        with hide_warnings():
            _warn_once()
        _warn_once()
        torch.set_warn_always(False)
    assert len(seen) == 3
    assert not torch.is_warn_always_enabled()


def _replace_filters():
    warnings.filters = [("error", None, Warning, None, 0)]


@pytest.mark.parametrize("change", [
    lambda: warnings.simplefilter("error"), lambda: warnings.filters.clear(), warnings.resetwarnings, _replace_filters,
    lambda: warnings.catch_warnings().__enter__(),
])  # fmt: skip
def test_filters_of_warnings_are_as_before(change):
    before, held = warnings.filters, list(warnings.filters)
    with hide_warnings():
        change()
    found, items = warnings.filters, list(warnings.filters)
    warnings.filters, before[:] = before, held
    assert found is before
    assert items == held


@pytest.mark.parametrize("run", [lambda log: log(), _in_a_thread], ids=["this thread", "another thread"])
def test_log_records_are_emitted_outside_only(monkeypatch, run):
    class Handler(logging.Handler):
        def emit(self, record):
            seen.append(record)

    def log():
        logger.error("private")

    seen, logger, before = [], logging.Logger("library"), logging.Logger.callHandlers
    logger.addHandler(Handler())
    with hide_warnings():
        run(log)
        with hide_warnings():
            run(log)
        run(log)
    assert not seen
    assert logging.Logger.callHandlers is before
    run(log)
    assert len(seen) == 1


def _signal_inside(heard):
    with hold_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        assert not heard


def _interrupt_inside(reached):
    with hold_signals():
        signal.raise_signal(signal.SIGINT)
        reached.append(1)


def test_a_handler_runs_after_the_context():
    heard = []

    def stop(number, frame):
        heard.append(number)
        raise SystemExit(3)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with pytest.raises(SystemExit):
            _signal_inside(heard)
        assert heard == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is stop
        with pytest.raises(SystemExit):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_an_interrupt_waits():
    reached = []
    with pytest.raises(KeyboardInterrupt):
        _interrupt_inside(reached)
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_waits_for_the_outermost_context():
    def run():
        with hold_signals():
            _interrupt_inside(reached)
            reached.append(2)

    reached = []
    with pytest.raises(KeyboardInterrupt):
        run()
    assert reached == [1, 2]


def test_a_handler_that_raises_while_others_are_put_back_takes_no_signal_from_the_program():
    def stop(number, frame):
        raise SystemExit(3)

    def interrupted(number, handler):
        if handler is stop:  # as if the signal came just then
            raise SystemExit(3)
        return plain(number, handler)

    plain = private._set_handler
    before = signal.signal(signal.SIGTERM, stop)
    try:
        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit), hold_signals():
            patch.setattr(private, "_set_handler", interrupted)
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with hold_signals():
            pass
        assert signal.getsignal(signal.SIGTERM) is stop
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_other_threads_hold_no_signals():
    def run():
        with hold_signals():
            done.append(1)

    done = []
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert done


TIMERS = {"real": signal.SIGALRM, "virtual": signal.SIGVTALRM, "prof": signal.SIGPROF}


def _exit(number, frame):
    raise SystemExit(3)


@pytest.fixture
def alarm():
    """Set a handler that raises, and leave no timer."""
    before = signal.signal(signal.SIGALRM, _exit)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("number", TIMERS.values(), ids=list(TIMERS))
def test_a_timer_of_user_code_is_lost(number):
    heard, (timer, _) = [], private._TIMERS[number]
    before = signal.signal(number, lambda number, frame: heard.append(number))
    try:
        with hold_signals():
            signal.setitimer(timer, 0.001)
            while signal.getitimer(timer)[0]:
                pass
        with hold_signals():
            signal.setitimer(timer, 100, 100)
        assert not heard
        assert not signal.getitimer(timer)[0]
        signal.raise_signal(number)
        assert heard
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, before)


def test_a_time_limit_whose_handler_user_code_sets_works_inside(alarm):
    def limit():
        outer = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        try:
            time.sleep(5)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, outer)

    def stop(number, frame):
        raise TimeoutError

    with hold_signals():
        with pytest.raises(TimeoutError):
            limit()
        signal.raise_signal(signal.SIGALRM)
    assert signal.getsignal(signal.SIGALRM) is _exit


@pytest.mark.parametrize("own", [None, 0, 100], ids=["no other", "stopped", "replaced"])
def test_a_timer_of_the_program_that_expires_inside_waits_for_the_end(alarm, own):
    def run():
        with hold_signals():
            if own is not None:
                signal.setitimer(signal.ITIMER_REAL, own)
            time.sleep(0.03)
            reached.append(1)

    reached = []
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    with pytest.raises(SystemExit):
        run()
    assert reached
    assert not signal.getitimer(signal.ITIMER_REAL)[0]
    run()


def test_a_timer_of_the_program_goes_on(alarm):
    signal.setitimer(signal.ITIMER_REAL, 100, 70)
    with hold_signals():
        signal.setitimer(signal.ITIMER_REAL, 0)
    rest, interval = signal.getitimer(signal.ITIMER_REAL)
    assert 90 < rest <= 100
    assert interval == 70


def test_a_timer_that_repeats_goes_on(alarm):
    def run():
        with hold_signals():
            time.sleep(0.03)

    signal.setitimer(signal.ITIMER_REAL, 0.02, 70)
    with pytest.raises(SystemExit):
        run()
    rest, interval = signal.getitimer(signal.ITIMER_REAL)
    assert 60 < rest < 70
    assert interval == 70


def test_a_timer_of_the_program_that_expires_just_before_is_not_lost(alarm, monkeypatch):
    def run():
        with hold_signals():
            reached.append(1)

    def install(number, handler):
        plain(number, handler)
        if number == signal.SIGALRM and handler is not _exit:
            signal.raise_signal(number)

    reached, plain = [], private._set_handler
    monkeypatch.setattr(private, "_set_handler", install)
    with pytest.raises(SystemExit):
        run()
    assert reached


def test_a_timer_that_ends_the_process_does_so_afterwards():
    """Even if something interrupts the putting back of handlers."""

    def interrupted(number, handler):
        if handler == signal.SIG_DFL:
            raise KeyError
        return plain(number, handler)

    plain = private._set_handler
    if (child := os.fork()) == 0:
        with pytest.MonkeyPatch.context() as patch:
            try:
                with hold_signals():
                    patch.setattr(private, "_set_handler", interrupted)
            except KeyError:
                pass
        signal.raise_signal(signal.SIGALRM)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGALRM
