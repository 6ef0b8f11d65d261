"""Tensors of a module that are not copied for a pass, and parameters, classes and methods of unusual kinds, are restored."""

import types

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from privet.clipping import Flat
from privet.errors import UnsupportedModelError
from privet.gradients import per_example_norms
from privet.gradients.core.examples import split_batch
from privet.gradients.core.state import snapshot
from privet.gradients.core.state.guard import Guard
from privet.gradients.engine import Clipper, Engine
from privet.gradients.methods.calls import WriteError
from rounding import assert_equal_up_to_rounding


class Slotted(nn.Parameter):
    __slots__ = ("note",)


class Subclass(torch.Tensor):
    pass


class Equal(nn.Module):
    """Equal to all others of its class."""

    number = 0

    def __eq__(self, other):
        return type(self) is type(other)

    def __hash__(self):
        return 1


class EqualMeta(type):
    def __eq__(cls, other):
        return type(cls) is type(other)

    def __hash__(cls):
        return 1


class One(metaclass=EqualMeta):
    number = 0


class Two(metaclass=EqualMeta):
    number = 0


class CopyMeta(type):
    """Shows a copy of a class's attributes."""

    def __getattribute__(cls, name):
        found = type.__getattribute__(cls, name)
        return dict(found) if name == "__dict__" else found


class Copied(metaclass=CopyMeta):
    number = 0


class Pretender:
    """Says that it is a class."""

    number = 0

    @property
    def __class__(self):
        return type


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.one, self.two = nn.Linear(3, 2), Equal(), Equal()
        self.anchor = torch.zeros(3, requires_grad=True)
        self.register_buffer("large", torch.zeros(5))
        self.layer.bias = Slotted(torch.zeros(2))
        self.layer.bias.note = self.anchor.note = self.large.note = 0
        self.classes, self.copied, self.pretender, self.method = (One, Two), Copied, Pretender(), "a".join

    def forward(self, x):
        return self.layer(x)


# Programs: what a pass does to a model, and what tells that it was undone.
PROGRAMS = {
    "attribute_of_a_tensor": (lambda m: setattr(m.anchor, "note", 1), lambda m: m.anchor.note),
    "attribute_of_a_buffer": (lambda m: setattr(m.large, "note", 1), lambda m: m.large.note),
    "class_of_a_buffer": (lambda m: setattr(m.large, "__class__", Subclass), lambda m: type(m.large)),
    "frozen": (lambda m: m.anchor.requires_grad_(False), lambda m: m.anchor.requires_grad),
    "thawed": (lambda m: m.large.requires_grad_(True), lambda m: m.large.requires_grad),
    "resized": (lambda m: m.large.resize_(3), lambda m: m.large.shape),
    "other_memory": (lambda m: setattr(m.large, "data", torch.ones(3)), lambda m: m.large.tolist()),
    "slot_of_a_parameter": (lambda m: setattr(m.layer.bias, "note", 1), lambda m: m.layer.bias.note),
    "equal_module": (lambda m: setattr(m.two, "number", 1), lambda m: m.two.number),
    "equal_class": (lambda m: setattr(m.classes[1], "number", 1), lambda m: m.classes[1].number),
    "class_that_shows_a_copy": (lambda m: setattr(m.copied, "number", 1), lambda m: m.copied.number),
    "pretended_class": (lambda m: setattr(m.pretender, "number", 1), lambda m: m.pretender.number),
    "method_in_c": (lambda m: setattr(m.method, "__module__", 1), lambda m: m.method.__module__),
}


@pytest.fixture
def few_are_copied(monkeypatch):
    monkeypatch.setattr(snapshot, "COPIED", 4)


@pytest.mark.usefixtures("few_are_copied")
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_pass_changes_is_undone(name):
    change, read = PROGRAMS[name]
    model = Model()
    guard, before = Guard(model, len, dict(model.named_parameters())), read(model)
    for _ in range(2):
        try:
            with guard.isolate():
                change(model)
                assert read(model) != before
        except TypeError as error:
            pytest.fail(f"it cannot be saved: {error}")
        assert read(model) == before


def test_a_class_that_shows_a_copy_is_noticed_by_the_next_pass():
    """Nothing else of this model has contents."""
    model = nn.Linear(3, 2)
    model.copied = Copied
    guard = Guard(model, len, dict(model.named_parameters()))
    for _ in range(2):
        with guard.isolate():
            Copied.number = 1
        assert Copied.number == 0


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_a_parameter_that_a_pass_freezes_requires_a_gradient_after_it(method):
    class Freezing(nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            self.weight.requires_grad = False
            return y

    model, x = Freezing(3, 2), torch.randn(4, 3)
    engine = Engine(model, lambda m, x: m(x).sum(1), dict(model.named_parameters()), method)
    for _ in range(2):
        norms = engine.clipped_sum(split_batch(x), Clipper.of(engine.parameters, Flat(1.0))).norms(4)[0]
        assert_equal_up_to_rounding(norms.float(), (2 * (x.square().sum(1) + 1)).sqrt())
    assert model.weight.requires_grad


class Writing(nn.Module):
    """Gives up its attribute's gradient, and writes to it then; or does so after a part that is computed twice is gone."""

    def __init__(self):
        super().__init__()
        self.layer, self.inner, self.extra = nn.Linear(3, 2), nn.Linear(3, 3), nn.Linear(3, 2)
        self.anchor = torch.zeros(3, requires_grad=True)

    def forward(self, x):
        first = float(x[0, 0])
        if first == 1:
            y = self.layer(checkpoint(self.inner, x, use_reentrant=False))
            del self.extra
            return y
        if first == 2:
            with torch.no_grad():
                self.extra.weight.add_(x.mean())
        if first == 3:
            self.anchor.requires_grad_(False)
            self.anchor.add_(x.mean(0))
        return self.layer(self.inner(x))


@pytest.mark.parametrize("order", [[0, 0, 1, 2], [1, 2], [3], [0, 3]], ids=str)
def test_tensors_that_are_not_copied_are_not_written_to(order):
    model = Writing()
    before = [x.detach().clone() for x in (model.extra.weight, model.anchor)]
    engine = Engine(model, lambda m, x: m(x).sum(1), dict(model.named_parameters()), "loop")
    rows = torch.tensor(order, dtype=torch.float32)[:, None].expand(len(order), 3)
    with pytest.raises(WriteError):
        engine.clipped_sum(split_batch(rows.clone()), Clipper.of(engine.parameters, Flat(1.0)))
    assert_equal_up_to_rounding([model.extra.weight.detach(), model.anchor.detach()], before)
    assert model.anchor.requires_grad


@pytest.mark.parametrize("method", ["ghost", "loop"])
@pytest.mark.parametrize("name", ["_backward_hooks", "_post_accumulate_grad_hooks", "grad_dtype"])
def test_what_torch_keeps_with_a_parameter_is_not_set(name, method):
    value = torch.float64 if name == "grad_dtype" else {0: len}

    def loss(model, x):
        setattr(model.weight, name, value)
        return model(x).sum(1)

    if not hasattr(torch.Tensor, name):
        pytest.skip(f"this version of torch has no {name}")
    with pytest.raises(WriteError):
        per_example_norms(nn.Linear(3, 2), loss, torch.randn(2, 3), method=method)


class Empty(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.empty = nn.Linear(3, 2), nn.Parameter(torch.zeros(0, 3))

    def forward(self, x):
        return self.layer(x)


def test_no_numbers_stay_behind_a_parameter_without_any():
    model = Empty()
    guard = Guard(model, len, dict(model.named_parameters()))
    for _ in range(2):
        with pytest.raises(UnsupportedModelError, match="by replacing its memory"), guard.isolate():
            model.empty.data = torch.ones(5, 3)[:0]
        assert model.empty.untyped_storage().nbytes() == 0


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_the_memory_of_a_parameter_without_numbers_is_not_resized(method):
    def loss(model, x):
        model.empty.untyped_storage().resize_(4)
        return model(x).sum(1)

    model = Empty()
    per_example_norms(model, loss, torch.randn(2, 3), method=method)
    assert model.empty.untyped_storage().nbytes() == 0


def test_bases_that_are_changed_between_passes_are_followed():
    class Mixin:
        seen = types.SimpleNamespace(number=0)

    class Plain:
        pass

    class Changing(Plain, nn.Module):
        def __init__(self):
            nn.Module.__init__(self)
            self.layer = nn.Linear(3, 2)

    model = Changing()
    guard = Guard(model, len, dict(model.named_parameters()))
    with guard.isolate():
        pass
    Changing.__bases__ = (Mixin, nn.Module)
    with guard.isolate():
        model.seen.number = 1
    assert Mixin.seen.number == 0


def test_what_a_pass_inside_another_finds_is_not_what_the_outer_one_found():
    """A module that user code removes before a part is computed again is not written to after that."""
    model = Model()
    removed, guard = model.two, Guard(model, len, dict(model.named_parameters()))
    removed.weight = nn.Parameter(torch.zeros(2), requires_grad=False)
    with guard.isolate():
        del model.two
        with guard.isolate():
            assert not guard.is_protected(removed.weight)
        assert guard.is_protected(removed.weight)


class Watching(nn.Parameter):
    """Changes its model whenever torch calls it."""

    model = None

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if cls.model is not None:
            cls.model.__dict__["number"] = 1
        return super().__torch_function__(func, types, args, kwargs or {})


def test_no_class_of_a_parameter_runs_while_a_pass_is_undone(monkeypatch):
    model = nn.Linear(3, 2)
    model.number, model.weight = 0, Watching(torch.zeros(2, 3))
    guard = Guard(model, len, dict(model.named_parameters()))
    found, restore = [], snapshot.Snapshot.restore

    def then_look(self):
        restore(self)
        found.append(model.number)

    monkeypatch.setattr(snapshot.Snapshot, "restore", then_look)
    with guard.isolate():
        monkeypatch.setattr(Watching, "model", model)
    assert found == [0]
