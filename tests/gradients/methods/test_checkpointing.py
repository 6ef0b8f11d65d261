"""Passes of several threads see checkpoints of their own, and leave torch's as they were."""

import inspect
import threading

import torch
from torch.utils.checkpoint import checkpoint

from privet.gradients.methods.checkpointing import patch_recomputation
from rounding import assert_equal_up_to_rounding

# As torch defines it, whether or not a pass has wrapped it by now.
PLAIN = inspect.unwrap(torch.utils.checkpoint._checkpoint_without_reentrant_generator)


def run():
    x = torch.ones(2, requires_grad=True)
    checkpoint(torch.sin, x, use_reentrant=False).sum().backward()
    assert_equal_up_to_rounding(x.grad, x.detach().cos())


def watch(seen, name):
    """Return the context of a pass that notes its name when a part is checkpointed."""

    def begin():
        seen.append(name)
        return lambda part: part()

    return patch_recomputation(begin)


def test_passes_may_end_in_any_order():
    seen = []
    first, second = (watch(seen, name) for name in ("first", "second"))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    run()
    assert seen == ["second"]
    second.__exit__(None, None, None)
    run()
    assert seen == ["second"]


def test_a_part_belongs_to_the_pass_of_its_thread():
    seen, entered, done = [], threading.Event(), threading.Event()

    def other():
        with watch(seen, "other"):
            entered.set()
            done.wait(60)
            run()

    thread = threading.Thread(target=other)
    with watch(seen, "this"):
        thread.start()
        entered.wait(60)
        run()
        done.set()
        thread.join()
    assert seen == ["this", "other"]


def test_a_patch_that_ends_does_not_end_the_watch(monkeypatch):
    seen, name, module = [], "_checkpoint_without_reentrant_generator", torch.utils.checkpoint
    with watch([], "first"):
        wrapped = getattr(module, name)
    monkeypatch.setattr(module, name, PLAIN)  # as at the end of a patch that began before the first pass
    with watch(seen, "second"):
        assert getattr(module, name) is not wrapped
        run()
    assert seen == ["second"]
