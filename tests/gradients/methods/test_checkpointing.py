"""Passes of several threads see checkpoints of their own, and leave torch's as they were."""

import threading

import torch
from torch.utils.checkpoint import checkpoint

from privet.gradients.core.patches import patch_recomputation
from rounding import assert_equal_up_to_rounding


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
