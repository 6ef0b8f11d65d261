"""Modes that user code entered and did not leave are left, and no others."""

import contextlib

import pytest
import torch
from passing_modes import Dispatch, Function

from privet._utils.torch_state import leave_modes, read_modes


@contextlib.contextmanager
def clean():
    """Leave no mode to other tests, whatever happens."""
    before = read_modes()
    try:
        yield
    finally:
        leave_modes(before)
        torch.set_default_device(None)


@pytest.mark.parametrize("kinds", [(Function,), (Dispatch,), (Function, Dispatch), (Function, Function), (Dispatch, Dispatch)])
@pytest.mark.parametrize("outer", [(), (Function,), (Dispatch,), (Function, Dispatch)])
def test_modes_that_were_entered_are_left_and_earlier_ones_stay(kinds, outer):
    stays = []
    # A mode that was left too early raises when it ends.
    with contextlib.suppress(Exception), clean(), contextlib.ExitStack() as around:
        for kind in outer:
            around.enter_context(kind())
        before = read_modes()
        for kind in kinds:
            kind().__enter__()
        for _ in range(2):
            leave_modes(before)
            stays.append(read_modes() == before)
    assert stays == [True, True]


def test_a_mode_that_takes_the_place_of_another_is_left():
    with clean():
        outer = Function()
        outer.__enter__()
        before = read_modes()
        outer.__exit__(None, None, None)
        Function().__enter__()
        leave_modes(before)
        assert read_modes().function == ()


def test_a_default_device_that_was_set_stays():
    with clean():
        before = read_modes()
        Function().__enter__()
        torch.set_default_device("meta")
        Function().__enter__()
        leave_modes(before)
        assert torch.empty(1).device.type == "meta"
        assert len(read_modes().function) == 1
        torch.set_default_device(None)
        assert torch.empty(1).device.type == "cpu"
