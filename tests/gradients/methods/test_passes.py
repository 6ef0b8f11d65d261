import random

import pytest
import torch
from recording import Seen, cover, physical, stack_depth
from torch import nn
from torch.overrides import TorchFunctionMode

from privet.errors import UnsupportedModelError
from privet.gradients.methods import passes
from privet.gradients.methods.ghost import Program
from privet.gradients.methods.passes import Passes
from privet.gradients.parameters import trainable
from privet.reading.batches import group_examples
from rounding import assert_equal_up_to_rounding


def steered(m, x):
    return m(x).sum(1) * (2 if float(x[0, 0]) > 0 else 3)


def test_groups_are_of_examples_that_agree():
    model, x = nn.Linear(3, 2), torch.tensor([[1.0, 2, 3], [-1, 2, 3], [1, 5, 6], [-1, 8, 9]])
    covered = cover(model, lambda m, x: steered(m, x.sign() * x), x)
    assert covered.looped == 0
    signs = cover(model, lambda m, x: m(x).sum(1) * (2 if bool(x[0, 0] > 0) else 3), x)
    assert (signs.groups, signs.looped) == (2, 0)
    factors = torch.tensor([2.0, 3, 2, 3])
    assert_equal_up_to_rounding(signs.gradients["bias"], factors[:, None].expand(4, 2))


def catches(read):
    def factor(text):
        try:
            return read(text)
        except Exception:
            return 9

    return factor


# What a loss does with the text of an example: factors of the losses of three, and the passes that it takes.
TEXTS = {
    "not read": (lambda text: 1, [1, 1, 1], 1),
    "length": (len, [1, 2, 1], 3),
    "equality": (lambda text: 2 + (text == "b"), [2, 2, 3], 3),
    "method": (lambda text: text.count("a"), [1, 2, 0], 3),
    "type": (lambda text: 1 + isinstance(text, str), [2, 2, 2], 3),
    "key": (lambda text: {"a": 4, "aa": 5, "b": 6}[text], [4, 5, 6], 3),
    "read by C": (lambda text: len("-".join(["x", text])), [3, 4, 3], 3),
    "read in a try": (catches(len), [1, 2, 1], 3),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_that_differs_splits_a_pass_where_it_is_read(name):
    factor, expected, groups = TEXTS[name]
    model, texts = nn.Linear(2, 1), ["a", "aa", "b"]
    examples = group_examples([{"x": torch.ones(1, 2), "id": [text]} for text in texts])[0].examples
    passes = Passes(Program(model, lambda m, b: factor(b["id"][0]) * m(b["x"])[:, 0], trainable(model)), lambda: 0)
    found = torch.zeros(3)
    for index, tape in passes.tapes(examples):
        found[index] = tape.grads["bias"].materialize()[:, 0]
    assert found.tolist() == expected
    assert (passes.groups, passes.looped) == (groups, 0)


@pytest.mark.parametrize("error", [ValueError, SystemExit, GeneratorExit])
@pytest.mark.parametrize("method", ["auto", "loop"])
def test_a_failing_example_contributes_zero_and_others_are_unaffected(method, error):
    def loss(m, x):
        if bool(x[0, 0] > 5):
            raise error(f"secret {x}")
        return m(x).square().sum(1)

    torch.manual_seed(0)
    model, x = nn.Linear(3, 2), torch.rand(5, 3)
    x[2, 0] = 9.0
    covered = cover(model, loss, x, method, skip_errors=True)
    others = torch.tensor([0, 1, 3, 4])
    without = cover(model, loss, x[others], method)
    assert covered.norms[2] == 0
    for name, value in covered.gradients.items():
        assert not value[2].any()
        assert torch.equal(value[others], without.gradients[name])
    with pytest.raises(error, match="secret"):
        cover(model, loss, x, method)


class UnspeakableError(ValueError):
    def __str__(self):
        raise RuntimeError("private")


def test_what_an_error_says_is_not_asked_for_in_training():
    def loss(m, x):
        if bool(x[0, 0] > 5):
            raise UnspeakableError
        return m(x).square().sum(1)

    norms = cover(nn.Linear(3, 2), loss, torch.tensor([[1.0, 2, 3], [9, 1, 1], [2, 1, 1]]), skip_errors=True).norms
    assert (norms > 0).tolist() == [True, False, True]


def test_skipping_errors_does_not_permit_writes_to_the_model():
    model = nn.Linear(3, 2)
    before = model.weight.detach().clone()

    def loss(m, x):
        with torch.no_grad():
            m.weight.add_(1)
        return m(x).sum(1)

    covered = cover(model, loss, torch.randn(3, 3), skip_errors=True)
    assert not covered.norms.any()
    assert torch.equal(model.weight, before)
    with pytest.raises(UnsupportedModelError):
        cover(model, loss, torch.randn(3, 3))


def drawn(loss, x, before):
    """Return each example's first draw in every pass that it took part in and that came so far, by its mark x[i, 0]."""
    seen = Seen()

    def noted(m, x):
        before(m, x)
        first = torch.rand(1, 1) + x[:, :1] * 0
        seen(torch.cat([physical(x[:, :1]), physical(first)], 1).detach())
        return loss(m, x, first)

    covered = cover(nn.Linear(3, 2), noted, x)
    found = {float(mark): [] for mark in x[:, 0]}
    for rows in seen.items:
        for mark, value in rows.tolist():
            found[mark].append(value)
    return covered, found


def write_into_new_tensors(m, x, first):
    whole = torch.zeros(1, 3)
    whole[:, :2] = m(x) * first
    return whole.sum(1)


def go_in_groups(m, x, first):
    return m(x).sum(1) * (2 if bool(x[0, 0].long() % 2 == 0) else 3)


def go_alone(m, x, first):
    return m(x).sum(1) * random.random()


def write_before(m, x):
    write_into_new_tensors(m, x, 1.0)


@pytest.mark.parametrize(("loss", "before", "groups", "looped", "times"), [
    (write_into_new_tensors, None, 1, 0, 2), (go_in_groups, None, 2, 0, 2), (go_alone, None, 0, 4, 3),
    # The first ends before anything is drawn. If the second was given up for what it drew, new draws would have another law.
    (go_in_groups, write_before, 2, 0, 2), (go_alone, write_before, 0, 4, 2),
])  # fmt: skip
def test_an_example_draws_the_same_in_every_pass(loss, before, groups, looped, times):
    """The split into passes does not depend on draws, so a repeated pass repeats its draws."""
    covered, found = drawn(loss, torch.tensor([[1.0, 2, 3], [2, 2, 3], [3, 5, 6], [4, 8, 9]]), before or (lambda m, x: None))
    assert (covered.groups, covered.looped) == (groups, looped)
    assert [len(values) for values in found.values()] == [times] * 4
    assert all(len(set(values)) == 1 for values in found.values())
    assert len({values[0] for values in found.values()}) == 4


def test_hooks_on_gradients_and_on_parameters_see_one_example():
    model, x, sizes = nn.Linear(3, 2), torch.randn(4, 3), Seen()
    handle = model.register_full_backward_hook(lambda module, into, out: sizes(len(out[0])))
    assert cover(model, lambda m, x: m(x).sum(1), x).looped == 4
    handle.remove()
    assert set(sizes.items) == {1}
    handle = model.bias.register_hook(lambda gradient: gradient / gradient.norm())
    covered = cover(model, lambda m, x: m(x).sum(1), x)
    handle.remove()
    assert covered.looped == 4
    assert_equal_up_to_rounding(covered.gradients["bias"].norm(dim=1), torch.ones(4))


def test_positions_that_a_mode_changes_are_not_kept():
    class Zeroing(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            return found * 0 if func is torch.arange else found

    with Zeroing():
        passes._positions(4321)
    assert torch.equal(passes._positions(4321), torch.arange(4321))


@pytest.mark.parametrize("odd", ["disagrees", "raises"])
def test_how_deep_user_code_runs_in_the_stack_depends_on_no_other_example(odd):
    """A recursive model may meet the limit of the stack: an example must not do so because of what another one does."""

    def loss(m, x):
        if bool(x[0, 0] > 5):
            assert odd == "disagrees"
        elif bool(x[0, 0] > 4):
            assert x.sum() > 0
        return m(x).sum(1) * stack_depth()

    model, x = nn.Linear(3, 2), torch.ones(16, 3)
    alone = cover(model, loss, x, skip_errors=True).gradients["bias"]
    assert (alone > 20).all()
    x[5, 0], x[6, 0] = 9.0, 4.5
    among = cover(model, loss, x, skip_errors=True).gradients["bias"]
    others = torch.arange(16) != 5
    assert torch.equal(among[others], alone[others])
