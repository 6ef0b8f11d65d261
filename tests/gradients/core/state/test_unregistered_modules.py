"""Modules that are not registered in the model, but held by containers, objects, functions or globals: isolated like others."""

import functools

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from privet.clipping import Flat
from privet.errors import UnsupportedModelError
from privet.gradients import clipped_sum, per_example_norms
from privet.gradients.methods.calls import WriteError


class Summing(nn.Module):
    """Adds what it has seen so far."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.seen += x.detach().sum(0)
        return x + self.seen


class Writing(nn.Module):
    """Adds its input to a frozen parameter."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3), requires_grad=False)

    def forward(self, x):
        with torch.no_grad():
            self.weight.add_(x.sum(0))
        return x


class Holder:
    def __init__(self, inner):
        self.inner = inner

    def __call__(self, x):
        return self.inner(x)


def call(inner, x):
    return inner(x)


def tables(inner):
    return {"call": inner.forward, "buffers": inner._buffers}


# How a model holds a module, as what it calls.
HELD = {
    "list": lambda inner: [inner],
    "nested": lambda inner: {"a": [(inner,)]},
    "object": Holder,
    "method": lambda inner: inner.forward,
    "function": lambda inner: lambda x: inner(x),
    "partial": lambda inner: functools.partial(call, inner),
    "module": lambda inner: inner,
    "table of buffers": tables,
}


class Model(nn.Module):
    def __init__(self, held):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        object.__setattr__(self, "held", held)  # registers nothing

    def forward(self, x):
        held = self.held
        while not callable(held):
            held = held.get("call", held.get("a")) if isinstance(held, dict) else held[0]
        return self.layer(held(x))


def losses(model, x):
    return model(x).square().sum(1)


GLOBAL = [Summing(), Writing()]


class Global(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.layer, self.number = nn.Linear(3, 2), number

    def forward(self, x):
        return self.layer(GLOBAL[self.number](x))


def make(name, kind):
    """Return a model that uses a module of a kind, and that module."""
    torch.manual_seed(0)
    inner = GLOBAL[kind is Writing] if name == "global" else kind()
    return (Global(kind is Writing) if name == "global" else Model(HELD[name](inner))), inner


@pytest.mark.parametrize("method", ["ghost", "loop"])
@pytest.mark.parametrize("name", [*HELD, "global"])
def test_examples_do_not_meet_in_a_buffer(name, method):
    model, inner = make(name, Summing)
    buffer, x = inner.seen, torch.randn(5, 3)
    norms = per_example_norms(model, losses, x, method=method)
    alone = [per_example_norms(model, losses, x[i : i + 1], method=method).item() for i in range(5)]
    assert norms.tolist() == pytest.approx(alone, rel=1e-5)
    assert inner.seen is buffer
    assert not buffer.any()
    both = [clipped_sum(model, losses, part, Flat(0.5), method=method).tensors for part in (x, x[1:])]
    moved = torch.cat([(both[0][name] - both[1][name]).flatten() for name in both[0]])
    assert moved.norm() <= 0.5


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_what_a_hook_uses_is_isolated_and_what_it_records_is_not_kept(method):
    torch.manual_seed(0)
    model, inner, shapes, x = nn.Linear(3, 3), Summing(), [], torch.randn(5, 3)

    def add(_module, _inputs, output):
        shapes.append(output.shape)
        return inner(output)

    model.register_forward_hook(add)
    norms = per_example_norms(model, losses, x, method=method)
    alone = [per_example_norms(model, losses, x[i : i + 1], method=method).item() for i in range(5)]
    assert norms.tolist() == pytest.approx(alone, rel=1e-5)
    assert not inner.seen.any()
    assert shapes == []


@pytest.mark.parametrize("method", ["ghost", "loop"])
@pytest.mark.parametrize("place", ["module", "parameter", "all modules"])
def test_a_hook_does_not_tell_one_example_about_another(place, method):
    torch.manual_seed(0)
    model, x, kept = nn.Linear(3, 2), torch.randn(4, 3), [1.0]

    def next_factor():
        kept.append(2.0)
        return kept[-2]

    norms = per_example_norms(model, losses, x, method=method)
    register, hook = {
        "module": (model.register_forward_hook, lambda _module, _inputs, output: output * next_factor()),
        "parameter": (model.weight.register_hook, lambda gradient: gradient * next_factor()),
        "all modules": (register_module_forward_hook, lambda _module, _inputs, output: output * next_factor()),
    }[place]
    handle = register(hook)
    try:
        assert per_example_norms(model, losses, x, method=method).tolist() == pytest.approx(norms.tolist(), rel=1e-5)
    finally:
        handle.remove()
    assert kept == [1.0]


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_modules_of_a_librarys_hook_are_isolated_and_what_it_records_is_kept(method):
    """Restoring what it records could break the library."""
    torch.manual_seed(0)
    model, inner, shapes, x = nn.Linear(3, 3), Summing(), [], torch.randn(5, 3)

    library = {"__name__": "torch.utils.adding", "shapes": shapes, "inner": inner}
    exec("def add(_module, _inputs, output):\n    shapes.append(output.shape)\n    return inner(output)", library)
    model.register_forward_hook(functools.partial(library["add"]))
    norms = per_example_norms(model, losses, x, method=method)
    alone = [per_example_norms(model, losses, x[i : i + 1], method=method).item() for i in range(5)]
    assert norms.tolist() == pytest.approx(alone, rel=1e-5)
    assert not inner.seen.any()
    assert set(shapes) == {(1, 3)}


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_hooks_that_a_pass_registers_for_all_modules_are_removed(method):
    model, x = nn.Linear(3, 2), torch.randn(4, 3)

    def registering(m, x):
        register_module_forward_hook(lambda _module, _inputs, output: output * 2)
        return losses(m, x)

    first, second = (per_example_norms(model, registering, x, method=method).tolist() for _ in range(2))
    assert first == pytest.approx(second)


class Adding:
    """A hook that adds what it has seen so far."""

    def __init__(self):
        self.seen = 0.0

    def __call__(self, _module, _inputs, output):
        self.seen = self.seen + output.detach().sum(0)
        return output + self.seen


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_hooks_that_are_objects_and_attributes_named_like_hooks_are_restored(method):
    torch.manual_seed(0)
    model, hook, x = Model(lambda x: x), Adding(), torch.randn(5, 3)
    model.layer.register_forward_hook(hook)
    calls = []
    model.my_hooks = {"note": functools.partial(calls.append, 1)}

    def loss(model, x):
        model.my_hooks["note"]()
        return losses(model, x)

    norms = per_example_norms(model, loss, x, method=method)
    alone = [per_example_norms(model, loss, x[i : i + 1], method=method).item() for i in range(5)]
    assert norms.tolist() == pytest.approx(alone, rel=1e-5)
    assert (hook.seen, calls) == (0.0, [])


def test_torchscript_is_refused_wherever_it_is_held():
    model = Model([torch.jit.script(nn.Linear(3, 3))])
    with pytest.raises(UnsupportedModelError, match="TorchScript"):
        per_example_norms(model, losses, torch.randn(5, 3))


@pytest.mark.parametrize("method", ["ghost", "loop"])
@pytest.mark.parametrize("name", [*HELD, "global"])
def test_a_parameter_is_not_written_to(name, method):
    model, inner = make(name, Writing)
    with pytest.raises(WriteError):
        per_example_norms(model, losses, torch.randn(5, 3), method=method)
    assert not inner.weight.any()
