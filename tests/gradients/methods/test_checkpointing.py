"""Passes of several threads see checkpoints of their own, and leave torch's as they were."""

import inspect
import threading

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from privet.gradients.methods.checkpointing import detect_reentrant, patch_recomputation
from rounding import assert_equal_up_to_rounding

# As torch defines them, whether or not a pass has wrapped them by now.
PLAIN = {
    True: next(kind for kind in torch.utils.checkpoint.CheckpointFunction.__mro__ if "watched" not in vars(kind)),
    False: inspect.unwrap(torch.utils.checkpoint._checkpoint_without_reentrant_generator),
}


def run(reentrant):
    x = torch.ones(2, requires_grad=True)
    checkpoint(torch.sin, x, use_reentrant=reentrant).sum().backward()
    assert_equal_up_to_rounding(x.grad, x.detach().cos())


def watch(reentrant, seen, name):
    """Return the context of a pass that notes its name when a part is checkpointed."""

    def begin():
        seen.append(name)
        return lambda part: part()

    return (detect_reentrant if reentrant else patch_recomputation)(begin)


@pytest.mark.parametrize("reentrant", [True, False])
def test_passes_may_end_in_any_order(reentrant):
    seen = []
    first, second = (watch(reentrant, seen, name) for name in ("first", "second"))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    run(reentrant)
    assert seen == ["second"]
    second.__exit__(None, None, None)
    run(reentrant)
    assert seen == ["second"]


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_part_belongs_to_the_pass_of_its_thread(reentrant):
    seen, entered, done = [], threading.Event(), threading.Event()

    def other():
        with watch(reentrant, seen, "other"):
            entered.set()
            done.wait(60)
            run(reentrant)

    thread = threading.Thread(target=other)
    with watch(reentrant, seen, "this"):
        thread.start()
        entered.wait(60)
        run(reentrant)
        done.set()
        thread.join()
    assert seen == ["this", "other"]


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_patch_that_ends_does_not_end_the_watch(reentrant, monkeypatch):
    seen, name = [], "CheckpointFunction" if reentrant else "_checkpoint_without_reentrant_generator"
    module = torch.utils.checkpoint
    with watch(reentrant, [], "first"):
        wrapped = getattr(module, name)
    monkeypatch.setattr(module, name, PLAIN[reentrant])  # as at the end of a patch that began before the first pass
    with watch(reentrant, seen, "second"):
        assert getattr(module, name) is not wrapped
        run(reentrant)
    assert seen == ["second"]
