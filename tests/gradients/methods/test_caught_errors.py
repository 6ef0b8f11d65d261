"""An error that one example causes in a pass puts no other example on the path of an `except`, whoever catches it."""

import contextlib

import pytest
import torch
from recording import assert_same_as_the_loop, shift
from torch import distributions, nn
from torch.nn import functional as F

from privet.clipping import Flat
from privet.errors import PrivetError
from privet.gradients import per_example_gradients

BOUND = 0.03


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.table = nn.Linear(3, 2), nn.Embedding(7, 2)


def _by_error(compute, kinds):
    def loss(m, x):
        try:
            return m.layer(x).square().sum(1) + compute(m, x)
        except kinds:
            return -m.layer(x).square().sum(1)

    return loss


def _matrix(x):
    return x[:, :, None] * x[:, None, :] + (60 - x[:, :1, None]) * torch.eye(3)


def _suppressed(m, x):
    sign = -1.0
    with contextlib.suppress(Exception):
        sign = 1.0 if x.abs().max() < 100 else 2.0
    return sign * m.layer(x).square().sum(1)


def _in_finally(m, x):
    def choose():
        sign = -1.0
        try:
            sign = float(x.abs().max() < 100)
        finally:
            return sign  # noqa: B012

    return choose() * m.layer(x).square().sum(1)


class Descriptor(Net):
    @property
    def sign(self):
        if self.x.abs().max() > 100:
            raise AttributeError
        return 1.0

    def __getattr__(self, name):
        return -1.0 if name == "sign" else super().__getattr__(name)


def _by_property(m, x):
    m.x = x
    sign = m.sign
    del m.x
    return sign * m.layer(x).square().sum(1)


LOSSES = {
    "cholesky": _by_error(lambda m, x: torch.linalg.cholesky(_matrix(x)).sum((1, 2)), torch.linalg.LinAlgError),
    "inverse": _by_error(lambda m, x: torch.linalg.inv(_matrix(x) * (x[:, :1, None] < 50)).sum((1, 2)), RuntimeError),
    "table": _by_error(lambda m, x: m.table((x[:, 0].clamp(0, 99)).long()).sum(1), IndexError),
    "classes": _by_error(lambda m, x: F.cross_entropy(m.layer(x), (x[:, 0] > 50).long() * 7, reduction="none"), Exception),
    "control flow": _by_error(lambda m, x: 1 / float(x.abs().max() < 100), Exception),
    "any exception": _by_error(lambda m, x: 1 / float(x.abs().max() < 100), BaseException),
    "distribution": _by_error(
        lambda m, x: -distributions.Normal(m.layer(x)[:, 0], 100 - x[:, 0]).log_prob(torch.ones(())), ValueError),
    "no matrix": _by_error(lambda m, x: torch.linalg.cholesky(x).sum(1), RuntimeError),  # an error of all examples
    "text": _by_error(lambda m, x: len(repr(x)), Exception),
    "suppressed": _suppressed,
    "finally": _in_finally,
    "property": _by_property,
}  # fmt: skip


@pytest.mark.parametrize("method", ["auto", "loop"])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=list(LOSSES))
def test_a_caught_error_of_one_example_leaves_the_others_on_their_path(loss, method):
    torch.manual_seed(0)
    model, x = (Descriptor if loss is _by_property else Net)(), torch.rand(5, 3)
    x[2] = 200.0
    assert shift(model, loss, x, Flat(BOUND), 2, method=method) <= BOUND * 1.0001
    found, expected = (per_example_gradients(model, loss, x, method=each) for each in (method, "loop"))
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-5)


def test_what_is_given_up_for_one_example_is_not_caught_either():
    assert_same_as_the_loop(Net(), LOSSES["text"], torch.rand(1, 3))


@pytest.mark.parametrize("error", [RuntimeError("other"), KeyboardInterrupt()], ids=lambda error: type(error).__name__)
def test_what_user_code_raises_itself_is_raised(error):
    def loss(m, x):
        raise error

    with pytest.raises(type(error)):
        per_example_gradients(Net(), loss, torch.rand(5, 3))


def test_text_of_a_tensor_is_not_that_of_all_examples():
    def loss(m, x):
        return m.layer(x).square().sum(1) * (1.0 if "200" in f"{x}" else 2.0) * float(f"{x.sum():.3f}")

    torch.manual_seed(0)
    model, x = Net(), torch.rand(5, 3)
    x[2] = 200.0
    with pytest.raises(PrivetError):
        per_example_gradients(model, loss, x, method="ghost")
    assert_same_as_the_loop(model, loss, x)
