"""After each pass, also a failed one, the state of modules, objects, names and modes is as before; examples do not meet in it."""

import copy
import functools
import sys
import types
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from recording import cover, shift
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from privet.clipping import Flat
from privet.errors import UnsupportedModelError
from privet.gradients import per_example_norms
from privet.gradients.isolation import _CLASSES, Guard, Snapshot, data_pointer
from privet.gradients.reachable import is_user_code

BOUND = 0.3
LARGE = 70_000
METHODS = pytest.mark.parametrize("method", ["ghost", "loop"])
total, seen = 1.0, [1.0]


class Plain:
    """An object that is no module, as the caches of transformers are."""

    def __init__(self, held):
        self.held = held


class Graph:
    """An example that is an object, as those of PyTorch Geometric are."""

    count = 0

    def __init__(self, **held):
        vars(self).update(held)


@dataclass(slots=True)
class Slotted:
    held: float


class Net(nn.Module):
    """A layer, and whatever else a program gives it."""

    steps = 1.0

    def __init__(self, **held):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("seen", torch.ones(3))
        vars(self).update(held)

    def forward(self, x):
        return self.layer(x)


@functools.lru_cache
def cached(key):
    """Return a list of its own for each key."""
    return [1.0]


def use_global():
    global total
    before, total = total, 3.0
    return before


def use_default(held=[1.0]):  # noqa: B006  # the mistake that is tested
    held.append(2.0)
    return held[-2]


def use_attribute():
    use_attribute.calls = getattr(use_attribute, "calls", 1.0) + 1
    return use_attribute.calls - 1


def use_class():
    Net.steps += 1
    return Net.steps - 1


def use_cache():
    cached("key").append(2.0)
    return cached("key")[-2]


def use_closure():
    held = 1.0

    def factor():
        nonlocal held
        before, held = held, held + 1
        return before

    return factor


def use_unbound_name():
    global found_later
    before = globals().get("found_later", 1.0)
    found_later = before + 1
    return before


# What a loss multiplies by, and changes when it reads it, unless the pass before was undone.
FACTORS = {
    "name of the file": use_global,
    "list of the file": lambda: seen.append(seen[-1] + 1) or seen[-2],
    "default argument": use_default,
    "attribute of a function": use_attribute,
    "attribute of a class": use_class,
    "cache of a function": use_cache,
    "name of a closure": use_closure(),
    "name that is not bound yet": use_unbound_name,
    "partial": functools.partial(lambda held: held.append(held[-1] + 1) or held[-2], [1.0]),
}
# What a model holds, and how a pass that uses it changes it.
STATES = {
    "number": (1.0, lambda net: setattr(net, "held", net.held + 1)),
    "list": ([1.0], lambda net: net.held.append(net.held[-1] + 1)),
    "set": ({1.0}, lambda net: net.held.add(2.0)),
    "deque": (deque([1.0], maxlen=2), lambda net: net.held.append(2.0)),
    "dict": ({"a": 1.0}, lambda net: net.held.update(b=2.0)),
    "order of a dict": (OrderedDict(a=1.0, b=2.0), lambda net: net.held.move_to_end("a")),
    "default dict": (defaultdict(list), lambda net: net.held["a"].append(1.0)),
    "list in a dict in a list": ([{"a": [1.0]}], lambda net: net.held[0]["a"].append(2.0)),
    "empty list": ([], lambda net: net.held.append(1.0)),
    "long list": ([1.0] * 5000, lambda net: net.held.append(2.0)),
    "object": (Plain(1.0), lambda net: setattr(net.held, "held", 2.0)),
    "cache of a language model": (Plain([Plain(torch.ones(2))]), lambda net: setattr(net.held.held[0], "held", torch.zeros(2))),
    "object with slots": (Slotted(1.0), lambda net: setattr(net.held, "held", 2.0)),
    "tensor": (torch.ones(2), lambda net: net.held.mul_(2.0)),
    "tensor in a list": ([torch.ones(2)], lambda net: net.held[0].mul_(2.0)),
    "view in a list": ([torch.ones(4)[1:3]], lambda net: net.held[0].mul_(2.0)),
    "sparse tensor in a list": ([torch.eye(2).to_sparse()], lambda net: net.held[0].mul_(2.0)),
    "array": (np.ones(2), lambda net: net.held.__imul__(2.0)),
    "array in an object": (Plain(np.ones(2)), lambda net: net.held.held.__imul__(2.0)),
    "layer that is not registered": ([Plain(nn.BatchNorm1d(3))], lambda net: net.held[0].held(torch.randn(4, 3))),
    "attribute that is new": (None, lambda net: setattr(net, "other", 1.0)),
    "attribute that goes": (None, lambda net: delattr(net, "held")),
    "buffer": (None, lambda net: net.seen.mul_(2.0)),
    "buffer that is replaced": (None, lambda net: setattr(net, "seen", torch.zeros(3))),
    "buffer that is new": (None, lambda net: net.register_buffer("other", torch.zeros(3))),
    "layer that is replaced": (None, lambda net: setattr(net, "layer", nn.Identity())),
    "training mode": (None, lambda net: net.eval()),
    "hook": (None, lambda net: net.register_forward_hook(lambda *_: None)),
    "class": (None, lambda net: setattr(type(net), "steps", 2.0)),
}


def told(value):
    """Return a value as plain numbers, texts, lists and dictionaries."""
    if isinstance(value, torch.Tensor):
        return value.to_dense().tolist() if value.is_sparse else value.tolist()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Slotted):
        return value.held
    if isinstance(value, nn.Module | Plain):
        return told(vars(value)) | ({"steps": value.steps} if isinstance(value, Net) else {})
    if isinstance(value, dict):
        return {str(key): told(part) for key, part in value.items()} | {"order": [*map(str, value)]}
    return [told(part) for part in value] if isinstance(value, list | deque | set) else str(value)


@METHODS
@pytest.mark.parametrize("fails", [False, True], ids=["ends", "fails"])
@pytest.mark.parametrize("name", STATES)
def test_what_a_pass_changes_is_as_before(name, fails, method):
    held, change = copy.deepcopy(STATES[name])
    model = Net(held=held)

    def loss(m, x):
        losses = m(x).square().sum(1)
        change(m)
        if fails:
            raise ZeroDivisionError
        return losses

    before = told(model)
    try:
        cover(model, loss, torch.randn(4, 3), method)
    except ZeroDivisionError:
        assert fails
    assert told(model) == before
    assert model.held is held


@METHODS
@pytest.mark.parametrize("name", FACTORS)
def test_examples_do_not_meet_in_what_names_are_bound_to(name, method):
    factor, model, x = FACTORS[name], Net(), torch.randn(4, 3)
    for _ in range(2):
        norms = per_example_norms(model, lambda m, x: m(x).square().sum(1) * factor(), x, method=method)
        without = per_example_norms(model, lambda m, x: m(x).square().sum(1), x, method=method)
        assert norms.tolist() == pytest.approx(without.tolist(), rel=1e-5)


@METHODS
def test_examples_do_not_meet_in_an_object_that_they_hold(method):
    model, x, shared = nn.Linear(3, 1), torch.randn(4, 3), Plain(1.0)
    x[0] *= 1e3

    def loss(m, batch):
        rows, held = batch
        held.held = torch.maximum(torch.as_tensor(held.held), rows.detach().abs().max())
        return m(rows / held.held).square().sum(1)

    assert shift(model, loss, (x, shared), Flat(BOUND), method=method) <= BOUND * (1 + 1e-6)
    assert shared.held == 1.0


class Sharing(nn.Module):
    """Two parts that write to one buffer: the second sees what the first has written."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.layer = nn.Module(), nn.Module(), nn.Linear(3, 1)
        seen = torch.zeros(3)
        self.first.register_buffer("seen", seen)
        self.second.register_buffer("seen", seen)

    def forward(self, x):
        self.first.seen += x.detach().sum(0)
        return self.layer(x * self.second.seen)


@METHODS
def test_modules_that_share_a_buffer_share_its_copy(method):
    model, x = Sharing(), torch.randn(4, 3)
    found = per_example_norms(model, lambda model, x: model(x)[:, 0], x, method=method)
    assert found.tolist() == pytest.approx((x.double().pow(4).sum(1) + 1).sqrt().tolist(), rel=1e-5)
    assert not model.first.seen.any()
    assert model.first.seen is model.second.seen


@METHODS
def test_modes_and_whether_parameters_are_trained_are_restored(method):
    model = Net()

    def loss(m, x):
        losses = m(x).sum(1)
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        torch.set_autocast_enabled("cpu", True)
        if method == "loop":  # in vmap, torch refuses it
            m.layer.bias.requires_grad_(False)
        return losses

    try:
        cover(model, loss, torch.randn(1, 3), method)
        found = torch.is_grad_enabled(), torch.get_default_dtype(), torch.is_autocast_enabled("cpu")
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        torch.set_autocast_enabled("cpu", False)
    assert found == (True, torch.float32, False)
    assert model.layer.bias.requires_grad


@METHODS
def test_a_weight_that_parametrize_caches_has_a_gradient_for_each_example(method):
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(3, 2)))
    x = torch.randn(4, 3)
    expected = per_example_norms(model, lambda m, x: m(x).sum(1), x, method=method).tolist()
    with parametrize.cached():
        found = per_example_norms(model, lambda m, x: m(x).sum(1), x, method=method)
        assert parametrize._cache_enabled == 1
    assert found.tolist() == pytest.approx(expected, rel=1e-5)


@METHODS
def test_a_large_array_is_read_only_in_a_pass(method):
    bank = np.zeros(LARGE)
    model = Net(held=[bank[10:], bank])

    def write(m, batch):
        bank[12] += 1.0
        return m(batch).sum(1)

    with pytest.raises(ValueError, match="read-only"):
        per_example_norms(model, write, torch.randn(3, 3), method=method)
    assert not bank.any()
    bank[0] = 1.0


@METHODS
@pytest.mark.parametrize("kind", ["trained", "frozen", "large", "of the loss"])
def test_what_is_not_copied_is_not_written_to(kind, method):
    model, teacher = Net(), nn.Linear(3, 2)
    model.layer.bias.requires_grad_(kind != "frozen")
    model.held = [torch.zeros(LARGE)]
    written = {"trained": model.layer.weight, "frozen": model.layer.bias, "large": model.held[0], "of the loss": teacher.weight}

    def loss(m, x):
        with torch.no_grad():
            written[kind].add_(1.0)
        return m(x).sum(1) + teacher(x).sum(1).detach()

    before = written[kind].detach().clone()
    with pytest.raises(UnsupportedModelError, match="writes to a parameter"):
        per_example_norms(model, loss, torch.randn(3, 3), method=method)
    assert torch.equal(written[kind], before)


def test_modules_that_a_pass_creates_are_removed_and_named():
    model = Net()
    guard = Guard(model, None, dict(model.named_parameters()))
    with guard.isolate():
        model.extra = nn.Linear(2, 2)
    assert guard.created == {"Net.extra"}
    assert not hasattr(model, "extra")


def test_a_pass_inside_another_leaves_what_the_outer_one_has_changed():
    """As a checkpointed part that is computed again."""
    model = Net(held=[1.0])
    guard = Guard(model, None, {})
    with guard.isolate():
        model.held.append(2.0)
        model.seen += 1
        with guard.isolate():
            model.held.append(3.0)
            model.seen += 1
        assert model.held == [1.0, 2.0]
        assert model.seen.tolist() == [2.0] * 3
    assert model.held == [1.0]
    assert model.seen.tolist() == [1.0] * 3


def test_what_changes_between_passes_is_found():
    model = Net(held=[1.0])
    guard = Guard(model, None, {})
    with guard.isolate():
        model.held.append(2.0)
    model.held = other = [[0.0]]
    model.layer = nn.Linear(3, 2)
    with guard.isolate():
        other[0].append(1.0)
        assert guard.is_protected(model.layer.weight)
    assert other == [[0.0]]


def test_the_state_is_looked_for_once_if_nothing_changes(monkeypatch):
    model, made = Net(held=[np.ones(2), torch.ones(2), {"a": 1.0}]), []
    guard = Guard(model, lambda m, x: total, {})
    look = Snapshot.__init__

    def count(self, *roots):
        made.append(roots)
        look(self, *roots)

    monkeypatch.setattr(Snapshot, "__init__", count)
    for _ in range(3):
        with guard.isolate():
            model.held[0] += 1
            model.held[1] += 1
            model.held[2]["b"] = model.steps
    assert not made


def test_the_classes_of_examples_are_looked_for_once(monkeypatch):
    """Each example is an object of its own, and the code of its class may take longer to search than a pass."""
    guard, found = Guard(Net(), None, {}), []
    monkeypatch.setattr(Snapshot, "_save_function", lambda _, function: found.append(function))
    for number in range(3):
        own = Graph(seen=[1.0])
        with guard.isolate(held=[own]):
            Graph.count += 1
            own.seen.append(2.0)
            own.more = 3.0
        assert (Graph.count, vars(own)) == (0, {"seen": [1.0]})
        assert not number or not found
        found.clear()


def test_classes_that_a_program_makes_for_each_example_do_not_pile_up():
    guard = Guard(Net(), None, {})
    for _ in range(2 * _CLASSES):
        own = types.new_class("Own", exec_body=lambda names: names.update(count=0, __module__=__name__))
        with guard.isolate(held=[own()]):
            own.count += 1
        assert own.count == 0
    assert len(guard._roots) <= 2 + _CLASSES


@pytest.mark.parametrize("make", [torch.jit.script, lambda m: torch.jit.trace(m, torch.ones(1, 3))], ids=["script", "trace"])
@pytest.mark.parametrize("place", ["child", "list"])
def test_torchscript_is_refused(make, place):
    """Its calls are not intercepted, and its state is in C++."""
    inner = make(nn.Linear(3, 2))
    model = nn.Sequential(inner) if place == "child" else Net(held=[inner])
    with pytest.raises(UnsupportedModelError, match="TorchScript"):
        Guard(model, None, dict(model.named_parameters()))


def test_where_a_tensor_is_and_what_is_user_code(monkeypatch):
    x = torch.ones(4)
    assert data_pointer(x[2:]) == data_pointer(x) == x.data_ptr()
    assert data_pointer(torch.empty(0)) is data_pointer(torch.eye(2).to_sparse()) is None
    monkeypatch.setitem(sys.modules, "of_a_notebook", types.ModuleType("of_a_notebook"))
    assert all(map(is_user_code, ("__main__", __name__, "of_a_notebook")))
    assert not any(map(is_user_code, ("torch.nn", "numpy", "os", "functools", "privet.plan", "pytest")))
