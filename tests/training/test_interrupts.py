import os
import signal
import threading

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import privet
from one_layer import D, N, plan
from privet.errors import raise_interrupt
from privet.training.loop import StepError, hold_signals


class Means(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(D, 1)
        self.register_buffer("mean", torch.zeros(D))

    def forward(self, x):
        found = self.layer(x - self.mean)
        self.mean.lerp_(x.detach().mean(0), 0.5)
        return found


@pytest.fixture
def raising():
    """A signal whose handler raises an error that an example could raise, too."""

    def handle(*_):
        raise RuntimeError

    before = signal.signal(signal.SIGUSR1, handle)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.filterwarnings("ignore:the model changes its own state")
@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGUSR1, StepError)])
@pytest.mark.parametrize("method", ["loop", "ghost"])
def test_an_interrupt_leaves_no_example_in_the_model_or_the_checkpoint(method, number, raised, raising, tmp_path):
    def loss(model, batch):
        found = model(batch[0])[:, 0]
        if interrupts:
            signal.raise_signal(number)
        return found

    model, data, interrupts = Means(), TensorDataset(torch.full((N, D), 100.0)), False
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = privet.Training(plan(N), model, loss, optimizer, data, tmp_path, method=method)
    interrupts = True
    with pytest.raises(raised):
        training.run()
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["model"]
    assert not model.mean.any()
    assert not saved.get("mean", torch.zeros(D)).any()
    assert training.steps_spent == 1
    interrupts = False
    training.run()
    assert training.steps_spent == 3


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
