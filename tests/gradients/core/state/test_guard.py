"""Isolation of state: modules, buffers, containers, closures and globals are restored after a pass, also after failures."""

import array
import contextlib
import functools
import inspect
import signal
import sys
import threading
from collections import deque
from queue import SimpleQueue

import numpy as np
import pytest
import torch
from recording import cover
from torch import nn
from torch.overrides import _get_current_function_mode_stack

from privet.errors import LedgerError, UnsupportedModelError
from privet.gradients import per_example_norms
from privet.gradients.core.state.guard import Guard, restore_left
from privet.gradients.core.state.reachable import find_modules
from privet.gradients.core.state.snapshot import Snapshot

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
    """Return the whole state of a module, tensors by their values."""

    def told(value):
        if isinstance(value, torch.Tensor):
            return value.tolist()
        if isinstance(value, dict):
            return {key: told(inner) for key, inner in value.items()}
        return [told(inner) for inner in value] if isinstance(value, list | deque) else value

    return {name: told(value) for name, value in vars(model).items() if name != "_modules"}, list(model._modules)


@pytest.mark.parametrize("method", ["ghost", "loop"])
@pytest.mark.parametrize("fails", [False, True])
def test_changes_by_a_model_are_restored(method, fails):
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
    """A model that counts its calls in a Python attribute."""

    calls = 0

    def forward(self, x):
        self.calls = self.calls + 1
        return super().forward(x)


@pytest.mark.parametrize("method", ["ghost", "loop"])
@pytest.mark.parametrize("held_before", [{}, {"scale": 1.0, "notes": [0]}], ids=["nothing", "something"])
def test_attributes_of_parameters_are_restored(method, held_before):
    """Quantised parameters keep their scales there, and a model could keep an example there."""

    class Keeping(nn.Linear):
        def forward(self, x):
            self.weight.scale = x.sum()
            self.weight.notes = [*getattr(self.weight, "notes", []), 1]
            self.weight.notes.append(x)
            return super().forward(x)

    model = Keeping(3, 2)
    model.weight.__dict__.update(held_before)
    cover(model, lambda m, x: m(x).sum(1), torch.randn(4, 3), method)
    assert model.weight.__dict__ == held_before


class Total:
    """A total in a slot, and a second slot that is empty."""

    __slots__ = ("of_last", "value")

    def __init__(self):
        self.value = 1.0


class Slotted(nn.Module):
    """Keeps values in slots, in bytes and in an array of numbers."""

    def __init__(self):
        super().__init__()
        self.layer, self.total = nn.Linear(3, 2), Total()
        self.bytes, self.numbers = bytearray(b"\x01"), array.array("d", [1.0])

    def forward(self, x):
        y = self.layer(x * self.total.value * self.bytes[-1] * self.numbers[-1])
        if hasattr(self.total, "of_last"):
            y = y + 1
        self.total.value, self.total.of_last = 2.0, x
        self.bytes.append(3)
        self.numbers[0] = 5.0
        return y


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_slots_and_arrays_of_numbers_are_restored(method):
    torch.manual_seed(0)
    model, x = Slotted(), torch.randn(4, 3)
    norms = per_example_norms(model, lambda m, x: m(x).square().sum(1), x, method=method)
    alone = [per_example_norms(model, lambda m, x: m(x).square().sum(1), x[i : i + 1], method=method).item() for i in range(4)]
    assert norms.tolist() == pytest.approx(alone, rel=1e-5)
    assert (model.total.value, hasattr(model.total, "of_last")) == (1.0, False)
    assert (model.bytes, model.numbers.tolist()) == (bytearray(b"\x01"), [1.0])


class Totals(list):
    """A list with an attribute."""

    value = 1.0


class Place:
    """An object, a class, and a key of a dictionary."""

    value = 1.0


MEMORY = [1.0]


class UsingAGlobal:
    """An object that no function of the model names, whose methods use a global."""

    @property
    def value(self):
        return MEMORY[-1]

    def put(self, value):
        MEMORY.append(value)


def _make_partial():
    made = functools.partial(max, 1)
    made.value = 1.0
    return [made]


def _make_tensor():
    made = torch.zeros(2)
    made.value = 1.0
    return [made]


# Where a model finds an object with an attribute `value`: name → (what it holds, how to get at the object).
PLACES = {
    "a list of a class of its own": (lambda: Totals([1]), lambda held: held),
    "a class": (lambda: Place, lambda held: held),
    "the class of an object": (Place, type),
    "the class of a module": (lambda: [Counted(1, 1)], lambda held: type(held[0])),
    "the key of a dictionary": (lambda: {Place(): 1}, lambda held: next(iter(held))),
    "a partial": (_make_partial, lambda held: held[0]),
    "a tensor": (_make_tensor, lambda held: held[0]),
}  # fmt: skip


@pytest.mark.parametrize("method", ["ghost", "loop"])
@pytest.mark.parametrize("place", PLACES)
def test_attributes_of_all_kinds_of_objects_are_restored(place, method):
    torch.manual_seed(0)
    make, get = PLACES[place]
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    model.held = make()
    before = getattr(get(model.held), "value", 1.0)

    def loss(m, x):
        holder = get(m.held)
        y = m(x).sum(1) * getattr(holder, "value", 1.0)
        holder.value = 2.0
        return y

    norms = per_example_norms(model, loss, x, method=method)
    alone = [per_example_norms(model, loss, x[i : i + 1], method=method).item() for i in range(4)]
    assert norms.tolist() == pytest.approx(alone, rel=1e-5)
    assert getattr(get(model.held), "value", 1.0) == before


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_globals_that_an_objects_methods_use_are_restored(method):
    torch.manual_seed(0)
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    model.held = UsingAGlobal()

    def loss(m, x):
        y = m(x).sum(1) * m.held.value
        m.held.put(2.0)
        return y

    norms = per_example_norms(model, loss, x, method=method)
    alone = [per_example_norms(model, loss, x[i : i + 1], method=method).item() for i in range(4)]
    assert norms.tolist() == pytest.approx(alone, rel=1e-5)
    assert MEMORY == [1.0]


class Stack(nn.Module):
    """Keeps values in a list and a dictionary that only builtin methods lead to."""

    def __init__(self):
        super().__init__()
        self.layer, stack, table = nn.Linear(3, 2), [1.0], {"first": 1.0}
        self.push, self.top = stack.append, stack.__getitem__
        self.keep, self.size = table.__setitem__, table.__len__

    def forward(self, x):
        y = self.layer(x * self.top(-1) * self.size())
        self.push(2.0)
        self.keep("second", 3.0)
        return y


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_containers_that_only_their_methods_lead_to_are_restored(method):
    torch.manual_seed(0)
    model, x = Stack(), torch.randn(4, 3)
    norms = per_example_norms(model, lambda m, x: m(x).sum(1), x, method=method)
    alone = [per_example_norms(model, lambda m, x: m(x).sum(1), x[i : i + 1], method=method).item() for i in range(4)]
    assert norms.tolist() == pytest.approx(alone, rel=1e-5)
    assert (model.top(-1), model.size()) == (1.0, 1)


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_counters_of_a_model_are_restored(method):
    model = Counted(3, 2)
    assert cover(model, lambda m, x: m(x).sum(1), torch.randn(4, 3), method).looped == (4 if method == "loop" else 0)
    assert model.calls == 0


def test_modules_created_during_a_pass_are_reported_by_name():
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


@pytest.mark.parametrize("make", [torch.jit.script, lambda m: torch.jit.trace(m, torch.ones(1, 3))], ids=["script", "trace"])
def test_torchscript_is_refused(make):
    """Its calls are not intercepted, and its state is in C++."""
    model = nn.Sequential(make(nn.Linear(3, 2)))
    with pytest.raises(UnsupportedModelError, match="TorchScript"):
        Guard(model, None, dict(model.named_parameters()))


def test_modules_of_model_and_loss_are_found():
    model, teacher, criterion = nn.Linear(3, 2), nn.Linear(3, 2), nn.MSELoss()

    def loss(m, x):
        return criterion(m(x), teacher(x))

    assert set(find_modules(model, loss).values()) >= {model, teacher, criterion}


head = 3.0  # a global of the name that the loss below gives to a module in its closure, and to an attribute


def test_a_module_in_a_closure_is_found_beside_a_global_of_its_name():
    inner = nn.Linear(2, 1)

    def close_over(head):
        return lambda model, batch: head(model.head(batch[0]))[:, 0]

    assert inner in find_modules(close_over(inner)).values()


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


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_modules_that_share_a_buffer_share_its_copy(method):
    model, x = Sharing(), torch.randn(4, 3)
    found = per_example_norms(model, lambda model, x: model(x)[:, 0], x, method=method)
    torch.testing.assert_close(found, (x.double().pow(4).sum(1) + 1).sqrt(), rtol=1e-5, atol=0)
    assert not model.first.seen.any()
    assert model.first.seen is model.second.seen


class Counting:
    """A loss object with an instance attribute and a class attribute that change."""

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
    """A model that keeps state on its class."""

    calls = 0.0

    def forward(self, x):
        type(self).calls += 1
        return super().forward(x)


class Rewritten(nn.Linear):
    """A model that replaces a method of its class, and adds another."""

    def scale(self):
        return 1.0

    def forward(self, x):
        kind, factor = type(self), self.scale()
        kind.scale, kind.added = (lambda _: 2.0), (lambda _: 0.0)
        return super().forward(x) * factor


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_methods_of_a_class_are_restored(method):
    model, before = Rewritten(3, 1), Rewritten.scale
    norms = [per_example_norms(model, _plain_loss, (torch.ones(4, 3),), method=method) for _ in range(2)]
    assert torch.equal(*norms)
    assert Rewritten.scale is before
    assert not hasattr(Rewritten, "added")


def _plain_loss(model, batch):
    return model(batch[0])[:, 0]


def _with_default(model, batch, memory=[0.0]):  # noqa: B006
    memory[0] += 1
    return model(batch[0])[:, 0]


def _with_attribute(model, batch):
    _with_attribute.calls += 1
    return model(batch[0])[:, 0]


_with_attribute.calls = 0.0


@pytest.mark.parametrize("method", ["ghost", "loop"])
@pytest.mark.parametrize("bound", [False, True], ids=["object", "method"])
def test_state_of_loss_objects_and_classes_is_restored(method, bound):
    counting, model = Counting(), Remembering(3, 1)
    per_example_norms(model, counting.method if bound else counting, (torch.randn(4, 3),), method=method)
    assert (counting.own, Counting.seen, Remembering.calls) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_defaults_and_attributes_of_loss_functions_are_restored(method):
    for loss in (_with_default, _with_attribute):
        per_example_norms(nn.Linear(3, 1), loss, (torch.randn(4, 3),), method=method)
    assert (_with_default.__defaults__[0], _with_attribute.calls) == ([0.0], 0.0)


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_an_attribute_that_a_function_gives_itself_is_removed(method):
    def loss(model, batch):
        loss.calls = getattr(loss, "calls", 0) + 1
        return loss.calls * model(batch[0]).sum(1)

    x = torch.randn(4, 3)
    norms = per_example_norms(nn.Linear(3, 1), loss, (x,), method=method)
    assert not vars(loss)
    assert norms.tolist() == pytest.approx((x.square().sum(1) + 1).sqrt().tolist(), rel=1e-5)


class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        return x.detach()


class OwnTensor(torch.Tensor):
    """A tensor whose numbers are not compared, so that only its version tells that it was written to."""


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_other_objects_of_a_loss_are_restored(method):
    """Modules, arrays, and tensors that are written to without a version counter."""
    teacher, array, hidden, grown = Teacher(), np.zeros(2), torch.zeros(2), np.zeros(2)
    own = torch.zeros(2).as_subclass(OwnTensor)

    def loss(m, x):
        array[0] += 1
        hidden.data.add_(1)
        own.data.add_(1)
        grown.resize(3, refcheck=False)
        return (m(x) - teacher(m(x))).sum(1) + m(x).sum(1)

    cover(nn.Linear(3, 2), loss, torch.randn(4, 3), method)
    assert (float(teacher.calls), array.tolist(), hidden.tolist(), own.tolist()) == (0.0, [0.0] * 2, [0.0] * 2, [0.0] * 2)
    assert grown.tolist() == [0.0, 0.0]


def _give_other_memory(x):
    x.data = torch.ones(3)


CHANGES = {
    "through an array": lambda x: np.add(x.numpy(), 1, out=x.numpy()), "other memory": _give_other_memory,
    "set_": lambda x: x.set_(torch.ones(3)), "another size": lambda x: x.resize_(5).fill_(1.0),
    "another shape": lambda x: x.resize_(1, 2), "in place": lambda x: x.add_(1),
}  # fmt: skip


@pytest.mark.parametrize("method", ["ghost", "loop"])
@pytest.mark.parametrize("change", CHANGES)
def test_tensors_in_containers_are_restored_however_they_change(change, method):
    model, held = nn.Linear(3, 2), torch.zeros(2)
    model.held = [held]
    place = held.data_ptr()

    def loss(m, x):
        CHANGES[change](m.held[0])
        return m(x).sum(1)

    cover(model, loss, torch.randn(4, 3), method)
    assert held.tolist() == [0.0, 0.0]
    assert held.data_ptr() == place or change == "another size"


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_sparse_tensors_in_containers_are_restored(method):
    model, held = nn.Linear(3, 2), torch.eye(3).to_sparse()
    model.held = {"held": held}

    def loss(m, x):
        held.add_(torch.eye(3).to_sparse())
        return m(x).sum(1)

    cover(model, loss, torch.randn(4, 3), method)
    assert torch.equal(held.to_dense(), torch.eye(3))


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_modes_and_flags_are_restored(method):
    model = nn.Linear(3, 2)

    def loss(m, x):
        losses = m(x).sum(1)
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        torch.autograd.set_detect_anomaly(True, check_nan=False)
        if method == "loop":  # in vmap, torch refuses it
            m.bias.requires_grad_(False)
        return losses

    try:
        cover(model, loss, torch.randn(1, 3), method)
        anomaly = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
        found = torch.is_grad_enabled(), torch.get_default_dtype(), model.bias.requires_grad
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        torch.autograd.set_detect_anomaly(False)
    assert found == (True, torch.float32, True)
    assert anomaly == (False, True)


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_no_thread_is_started_in_a_pass(method):
    ran = []

    class Threaded(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            threading.Thread(target=ran.append, args=(1,)).start()
            return self.layer(x)

    with pytest.raises(UnsupportedModelError, match="starts a thread"):
        per_example_norms(Threaded(), lambda m, b: m(b).sum(1), torch.ones(2, 3), method=method)
    assert not ran
    thread = threading.Thread(target=ran.append, args=(1,))
    thread.start()
    thread.join()
    assert ran == [1]


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_no_parameter_is_swapped_in_a_pass(method):
    class Swapping(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            torch.utils.swap_tensors(self.layer.weight, nn.Parameter(torch.full((2, 3), 5.0)))
            return self.layer(x)

    model = Swapping()
    before = model.layer.weight.detach().clone()
    with pytest.raises(UnsupportedModelError, match="swaps the contents"):
        per_example_norms(model, lambda m, b: m(b).sum(1), torch.ones(2, 3), method=method)
    assert torch.equal(model.layer.weight, before)
    one, other = torch.zeros(1), torch.ones(1)
    torch.utils.swap_tensors(one, other)
    assert (one.item(), other.item()) == (1.0, 0.0)


def test_other_threads_may_start_threads_meanwhile():
    """A program that trains in one thread and serves in others goes on."""
    model, started = nn.Linear(3, 2), []
    inside, done = threading.Event(), threading.Event()

    def start_another():
        inside.wait()
        other = threading.Thread(target=started.append, args=(1,))
        other.start()
        other.join()
        done.set()

    waiting = threading.Thread(target=start_another)
    waiting.start()
    with Guard(model, lambda m, b: None, dict(model.named_parameters())).isolate():
        inside.set()
        assert done.wait(60)
    waiting.join()
    assert started == [1]


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_an_interrupt_waits_until_the_model_is_restored(method):
    class Interrupted(Stateful):
        def forward(self, x):
            signal.raise_signal(signal.SIGINT)
            went_on.put(1)
            return super().forward(x)

    model, went_on = Interrupted(), SimpleQueue()  # which is not restored
    before, modules = held(model)
    with pytest.raises(KeyboardInterrupt):
        per_example_norms(model, lambda m, x: m(x).square().sum(1), torch.randn(4, 3), method=method)
    assert not went_on.empty()
    assert held(model) == (before, modules)
    assert not _get_current_function_mode_stack()
    assert torch.func.vmap(torch.sin)(torch.zeros(2)).tolist() == [0, 0]


LINES = len(inspect.getsource(Snapshot.restore).splitlines())


@pytest.mark.parametrize("line", range(2, LINES))
def test_what_interrupts_the_restoring_leaves_nothing(line):
    """By a trace function, as no signal does it while signals are held."""
    model, left = Stateful(), [1]
    before, guard = held(model), Guard(model, lambda m, x: m(x), dict(model.named_parameters()))
    code = Snapshot.restore.__code__

    def interrupt(frame, event, argument):
        if frame.f_code is not code:
            return None
        if event == "line" and frame.f_lineno == code.co_firstlineno + line and left:
            left.pop()
            raise KeyboardInterrupt
        return interrupt

    tracing = sys.gettrace()
    try:
        with contextlib.suppress(KeyboardInterrupt), guard.isolate():
            model(torch.ones(1, 3))
            sys.settrace(interrupt)
    finally:
        sys.settrace(tracing)
    assert held(model) == before
    assert not restore_left(model)


def test_what_is_left_of_a_pass_is_restored_with_the_passes_inside_of_it(monkeypatch):
    model = Stateful()
    before, guard = held(model), Guard(model, lambda m, x: m(x), dict(model.named_parameters()))
    with monkeypatch.context() as patch:
        patch.setattr(Snapshot, "restore", lambda self: 1 / 0)
        with contextlib.suppress(ZeroDivisionError), guard.isolate():
            model(torch.ones(1, 3))
            with guard.isolate():
                model(torch.ones(1, 3))
    assert held(model) != before
    assert restore_left(model)
    assert held(model) == before
    assert not restore_left(model)


def test_a_model_that_another_thread_runs_is_not_restored_meanwhile():
    def run():
        with guard.isolate():
            inside.set()
            done.wait()

    model, inside, done = Stateful(), threading.Event(), threading.Event()
    guard = Guard(model, lambda m, x: m(x), dict(model.named_parameters()))
    thread = threading.Thread(target=run)
    thread.start()
    inside.wait()
    try:
        with pytest.raises(LedgerError, match="another thread"):
            restore_left(model)
        assert not restore_left(Stateful())
    finally:
        done.set()
        thread.join()
    assert not restore_left(model)
