"""What is defined anew between two passes of one engine, and the functions of bound methods, are restored like all the rest."""

import types

import pytest
import torch
from torch import nn

from privet.clipping import Flat
from privet.gradients import trainable
from privet.gradients.core.examples import split_batch
from privet.gradients.engine import Clipper, Engine

LARGEST = 1.0
BOUND = 0.3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x):
        return self.layer(x)


def helper(x):
    return x


def loss(model, batch):
    return model(helper(batch)).square().sum(1)


def scaled(x):
    """Divide by the largest number that any example has had."""
    global LARGEST
    LARGEST = max(LARGEST, float(x.abs().max()))
    return x / LARGEST


def _redefine(patch, model, what):
    def forward(self, x):
        return self.layer(scaled(x))

    if what == "helper":
        patch.setitem(globals(), "helper", scaled)
    elif what == "method":
        patch.setattr(Net, "forward", forward)
    elif what == "property":
        patch.setattr(Net, "size", property(lambda self: scaled), raising=False)
        patch.setattr(Net, "forward", lambda self, x: self.layer(self.size(x)))
    elif what == "class":
        model.__class__ = type("Other", (Net,), {"forward": forward})
    else:
        model.inner = type("Inner", (nn.Module,), {"forward": lambda self, x: scaled(x)})()
        patch.setattr(Net, "forward", lambda self, x: self.layer(self.inner(x)))


@pytest.mark.parametrize("method", ["ghost", "loop"])
@pytest.mark.parametrize("what", ["helper", "method", "property", "class", "submodule"])
def test_what_is_defined_anew_is_followed(what, method, monkeypatch):
    """Such as in a notebook, where a cell runs again between two loops over one training."""
    monkeypatch.setitem(globals(), "LARGEST", 1.0)
    x = torch.randn(4, 3)
    x[0] *= 1e3
    model = Net()
    # `auto`: what reads a number of each example is left to the loop.
    engine = Engine(model, loss, trainable(model), "auto" if method == "ghost" else method)
    engine.clipped_sum(split_batch(x), Clipper.of(engine.parameters, Flat(BOUND)))
    _redefine(monkeypatch, model, what)
    sums = [engine.clipped_sum(split_batch(rows), Clipper.of(engine.parameters, Flat(BOUND))).sums for rows in (x, x[1:])]
    moved = torch.cat([(sums[0][name] - sums[1][name]).flatten() for name in sums[0]]).norm()
    assert moved <= BOUND * (1 + 1e-6)
    assert LARGEST == 1.0


@pytest.mark.parametrize("method", ["auto", "loop"])
@pytest.mark.parametrize(
    "held", [lambda f: f, lambda f: [f], lambda f: types.SimpleNamespace(f=f)], ids=["itself", "list", "object"]
)
def test_the_function_of_a_bound_method_is_followed(held, method):
    largest = 1.0

    def remember(self, x):
        nonlocal largest
        largest = max(largest, float(x.abs().max()))
        return nn.Linear.forward(self, x / largest)

    model = nn.Sequential(nn.Linear(3, 1))
    found = held(types.MethodType(remember, model[0]))
    model.found = found
    call = {list: lambda x: model.found[0](x), types.SimpleNamespace: lambda x: model.found.f(x)}.get(
        type(found), lambda x: model.found(x)
    )
    x = torch.randn(4, 3)
    x[0] *= 1e3
    engine = Engine(model, lambda m, b: call(b).square().sum(1), trainable(model), method)
    engine.clipped_sum(split_batch(x), Clipper.of(engine.parameters, Flat(BOUND)))
    assert largest == 1.0
