"""Signals wait while a context holds them, and are delivered at its end."""

import os
import signal
import threading

import pytest

from privet.errors import raise_interrupt
from privet.training.loop import hold_signals


@pytest.fixture
def received():
    """The signals that the program's own handler has received."""
    found = []
    before = signal.signal(signal.SIGTERM, lambda number, _: found.append(number))
    yield found
    signal.signal(signal.SIGTERM, before)


def test_an_interrupt_is_raised_at_the_end():
    reached = []

    @hold_signals()
    def run():
        os.kill(os.getpid(), signal.SIGINT)
        reached.append(True)

    with pytest.raises(KeyboardInterrupt):
        run()
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_inside_passes_and_signals_still_arrive(received):
    @hold_signals()
    def run():
        signal.raise_signal(signal.SIGTERM)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    assert received == [signal.SIGTERM]


def test_handlers_of_the_program_are_called_at_the_outermost_end_and_other_threads_hold_nothing(received):
    def run():
        with hold_signals():
            pass

    thread = threading.Thread(target=run)
    with hold_signals():
        with hold_signals():
            signal.raise_signal(signal.SIGTERM)
        thread.start()
        thread.join()
        assert not received
    assert received == [signal.SIGTERM]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with hold_signals():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_only_interrupts_are_raised_again():
    raise_interrupt(SystemExit())
    raise_interrupt(ValueError())
    with pytest.raises(KeyboardInterrupt):
        raise_interrupt(KeyboardInterrupt())
