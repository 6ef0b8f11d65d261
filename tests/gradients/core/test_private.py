"""While user code runs on private examples, warnings are not shown, and signals end the run after it."""

import os
import signal
import threading
import warnings

import numpy as np
import pytest
import torch

from privet.gradients.core import private
from privet.gradients.core.private import hide_warnings, hold_signals


def _warn():
    warnings.warn("private", stacklevel=1)


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


def test_other_threads_show_theirs():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with hide_warnings():
            thread = threading.Thread(target=_warn)
            thread.start()
            thread.join()
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
