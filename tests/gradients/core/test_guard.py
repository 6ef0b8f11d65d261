"""What a pass may change is as it was afterwards: modules, buffers, containers, closures and globals, after failures too."""

from collections import deque

import numpy as np
import pytest
import torch
from recording import cover
from torch import nn

from privet.gradients import per_example_norms
from privet.gradients.core.reachable import find_modules
from privet.gradients.core.state import Guard

GLOBAL = [0]


class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("seen", torch.zeros(3))
        self.count, self.log, self.table, self.recent = 0, [[1]], {"a": [1]}, deque([1], maxlen=3)
        self.names, self.plain = {"a"}, torch.zeros(2)

    def forward(self, x):
        self.seen += x.sum(0)
        self.count += 1
        self.log[0].append(x)
        self.table["b"] = x
        self.recent.append(x)
        self.names.add("b")
        self.plain.add_(1)
        self.last = x
        self.register_buffer("new", torch.ones(1))
        self.train(False)
        self.register_forward_hook(lambda *_: None)
        return self.layer(x)


def held(model):
    """All that can be told of a module, tensors by their numbers."""

    def told(value):
        if isinstance(value, torch.Tensor):
            return value.tolist()
        if isinstance(value, dict):
            return {key: told(inner) for key, inner in value.items()}
        return [told(inner) for inner in value] if isinstance(value, list | deque) else value

    return {name: told(value) for name, value in vars(model).items() if name != "_modules"}, list(model._modules)


@pytest.mark.parametrize("method", ["ghost", "loop"])
@pytest.mark.parametrize("fails", [False, True])
def test_whatever_a_model_changes_is_put_back(method, fails):
    model, inside, total = Stateful(), [0], torch.zeros(1)
    counter = 0

    def loss(m, x):
        nonlocal counter
        inside.append(x)
        GLOBAL.append(x)
        total.add_(1)
        counter += 1
        out = m(x).sum(1)
        if fails:
            raise ZeroDivisionError
        return out

    before = held(model)
    if fails:
        with pytest.raises(ZeroDivisionError):
            cover(model, loss, torch.randn(4, 3), method)
    else:
        cover(model, loss, torch.randn(4, 3), method)
    assert held(model) == before
    assert (inside, GLOBAL, counter, total.tolist()) == ([0], [0], 0, [0.0])


class Counted(nn.Linear):
    """A model that counts its calls, which hides nothing from vmap."""

    calls = 0

    def forward(self, x):
        self.calls = self.calls + 1
        return super().forward(x)


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_numbers_that_a_model_counts_are_put_back(method):
    model = Counted(3, 2)
    assert cover(model, lambda m, x: m(x).sum(1), torch.randn(4, 3), method).looped == (4 if method == "loop" else 0)
    assert model.calls == 0


def test_what_was_made_inside_is_known_by_name():
    class Lazy(nn.Linear):
        def forward(self, x):
            self.extra = nn.Linear(2, 2)
            return super().forward(x)

    model = Lazy(3, 2)
    guard = Guard(model, None, dict(model.named_parameters()))
    with guard.isolate():
        model(torch.ones(1, 3))
    assert guard.created == {"Lazy.extra"}
    assert not hasattr(model, "extra")


def test_modules_in_sight_are_those_of_the_model_and_of_the_loss():
    model, teacher, criterion = nn.Linear(3, 2), nn.Linear(3, 2), nn.MSELoss()

    def loss(m, x):
        return criterion(m(x), teacher(x))

    assert set(find_modules(model, loss).values()) >= {model, teacher, criterion}


class Counting:
    """A loss that is an object, with a number of its own and one of its class."""

    seen = 0.0

    def __init__(self):
        self.own = 0.0

    def __call__(self, model, batch):
        self.own += 1
        type(self).seen += 1
        return model(batch[0])[:, 0]

    def method(self, model, batch):
        return self(model, batch)


class Remembering(nn.Linear):
    """A model whose class remembers."""

    calls = 0.0

    def forward(self, x):
        type(self).calls += 1
        return super().forward(x)


def _with_default(model, batch, memory=[0.0]):  # noqa: B006
    memory[0] += 1
    return model(batch[0])[:, 0]


def _with_attribute(model, batch):
    _with_attribute.calls += 1
    return model(batch[0])[:, 0]


_with_attribute.calls = 0.0


@pytest.mark.parametrize("method", ["ghost", "loop"])
@pytest.mark.parametrize("bound", [False, True], ids=["object", "method"])
def test_objects_and_classes_that_are_losses_are_put_back(method, bound):
    counting, model = Counting(), Remembering(3, 1)
    per_example_norms(model, counting.method if bound else counting, (torch.randn(4, 3),), method=method)
    assert (counting.own, Counting.seen, Remembering.calls) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_defaults_and_attributes_of_loss_functions_are_put_back(method):
    for loss in (_with_default, _with_attribute):
        per_example_norms(nn.Linear(3, 1), loss, (torch.randn(4, 3),), method=method)
    assert (_with_default.__defaults__[0], _with_attribute.calls) == ([0.0], 0.0)


class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        return x.detach()


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_what_a_loss_holds_beside_numbers_is_put_back(method):
    """Modules, arrays, and tensors that are written to where no version counts."""
    teacher, array, hidden = Teacher(), np.zeros(2), torch.zeros(2)

    def loss(m, x):
        array[0] += 1
        hidden.data.add_(1)
        return (m(x) - teacher(m(x))).sum(1) + m(x).sum(1)

    cover(nn.Linear(3, 2), loss, torch.randn(4, 3), method)
    assert (float(teacher.calls), array.tolist(), hidden.tolist()) == (0.0, [0.0, 0.0], [0.0, 0.0])


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_modes_and_flags_are_put_back(method):
    model = nn.Linear(3, 2)

    def loss(m, x):
        losses = m(x).sum(1)
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        if method == "loop":  # in vmap, torch refuses it
            m.bias.requires_grad_(False)
        return losses

    try:
        cover(model, loss, torch.randn(1, 3), method)
        found = torch.is_grad_enabled(), torch.get_default_dtype(), model.bias.requires_grad
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
    assert found == (True, torch.float32, True)
