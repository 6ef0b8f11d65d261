"""Calls that nothing intercepts or undoes are refused while user code runs on examples, and only then."""

import contextlib
import threading

import pytest
import torch

from privet.errors import UnsupportedModelError
from privet.gradients.core.state import forbidden_calls
from privet.gradients.core.state.forbidden_calls import forbid_calls

FORBIDDEN = [(owner, name) for owner, name, _ in forbidden_calls._FORBIDDEN]


@pytest.mark.parametrize(("owner", "name"), FORBIDDEN)
def test_a_call_is_refused_in_a_pass_and_allowed_after_it(owner, name, monkeypatch):
    called = []
    monkeypatch.setattr(owner, name, lambda *args: called.append(args))
    with forbid_calls(), pytest.raises(UnsupportedModelError, match="while it runs on an example"):
        getattr(owner, name)(None)
    assert not called
    with contextlib.suppress(UnsupportedModelError):
        getattr(owner, name)(None)
    assert len(called) == 1


@pytest.mark.parametrize(("owner", "name"), FORBIDDEN)
def test_a_patch_that_ends_does_not_end_the_refusal(owner, name, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, lambda *args: None)  # as if it had begun before the first pass
        with forbid_calls():
            pass
    monkeypatch.setattr(owner, name, lambda *args: None)
    with forbid_calls(), pytest.raises(UnsupportedModelError):
        getattr(owner, name)(None)


def test_only_the_thread_that_runs_user_code_is_refused():
    found = []
    other = threading.Thread(target=lambda: found.append(torch.utils.swap_tensors(torch.ones(1), torch.zeros(1))))
    with forbid_calls():
        # Started by a function that no pass wraps, as a thread of another program would have been before the pass.
        threading.Thread.start.__wrapped__(other)
        other.join()
        with pytest.raises(UnsupportedModelError):
            torch.utils.swap_tensors(torch.ones(1), torch.zeros(1))
    assert found == [None]


def test_a_pass_inside_a_pass_does_not_end_the_refusal():
    with forbid_calls():
        with forbid_calls():
            pass
        with pytest.raises(UnsupportedModelError):
            torch.utils.swap_tensors(torch.ones(1), torch.zeros(1))
