"""What a pass finds is remembered for the next one, and looked at again as soon as anything has changed."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

from privet.gradients.core.state.contents import read_contents
from privet.gradients.core.state.guard import Guard


class Holder(nn.Module):
    shared = ["class"]

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.register_buffer("seen", torch.zeros(1))
        self.filled, self.empty, self.number, self.tensor = ["own"], [], 1, torch.ones(1)

    def forward(self, x):
        return self.layer(x) * TOTAL * len(self.shared)


TOTAL = 1.0


def loss(model, batch):
    return model(batch).sum(1)


def swap_layers(model):
    model.layer = nn.Linear(1, 1)


def add_a_buffer(model):
    model.register_buffer("more", torch.full((1,), 3.0))


def set_a_global(_):
    globals()["TOTAL"] = 7.0


def set_a_class_attribute(_):
    Holder.shared = ["another"]


# What a program changes between two passes: by name, a change, and how it is read.
CHANGES = {
    "number": (lambda m: setattr(m, "number", 2), lambda m: m.number),
    "list replaced": (lambda m: setattr(m, "filled", ["new"]), lambda m: m.filled),
    "list filled": (lambda m: m.empty.append("item"), lambda m: list(m.empty)),
    "list emptied": (lambda m: m.filled.clear(), lambda m: list(m.filled)),
    "tensor": (lambda m: setattr(m, "tensor", torch.full((1,), 5.0)), lambda m: m.tensor.item()),
    "attribute added": (lambda m: setattr(m, "added", "new"), lambda m: getattr(m, "added", None)),
    "attribute removed": (lambda m: delattr(m, "number"), lambda m: hasattr(m, "number")),
    "kind of table": (lambda m: setattr(m, "_forward_hooks", OrderedDict(m._forward_hooks)), lambda m: id(m._forward_hooks)),
    "buffer": (lambda m: m.seen.fill_(4.0), lambda m: m.seen.item()),
    "buffer added": (add_a_buffer, lambda m: len(list(m.buffers()))),
    "submodule": (swap_layers, lambda m: id(m.layer)),
    "global": (set_a_global, lambda m: TOTAL),
    "class": (set_a_class_attribute, lambda m: Holder.shared),
}  # fmt: skip


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    monkeypatch.setitem(globals(), "TOTAL", 1.0)
    monkeypatch.setattr(Holder, "shared", ["class"])


def write_everywhere(model):
    model.number, model.tensor, model.added = -1, torch.zeros(1), -1
    model.filled.append("left")
    model.empty.append("left")
    model.seen.fill_(-1.0)
    Holder.shared = ["left"]
    globals()["TOTAL"] = -1.0


@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_between_passes_is_kept_and_what_a_pass_changes_is_not(change):
    make, read = CHANGES[change]
    model = Holder()
    guard = Guard(model, loss, dict(model.named_parameters()))
    for _ in range(2):
        with guard.isolate():
            write_everywhere(model)
    make(model)
    expected = read(model)
    for _ in range(2):
        with guard.isolate():
            write_everywhere(model)
        assert read(model) == expected


def test_contents_are_read_again_only_after_a_change():
    model = Holder()
    first = read_contents(model.__dict__, None)
    assert read_contents(model.__dict__, first) is first
    model.empty.append(1)
    filled = read_contents(model.__dict__, first)
    assert ("empty", [1]) in filled.others
    assert read_contents(model.__dict__, filled) is filled
    model.number = 2
    assert read_contents(model.__dict__, filled) is not filled


def test_another_module_with_equal_contents_is_not_taken_for_the_first():
    model, other = Holder(), Holder()
    other.__dict__.update(model.__dict__)
    assert read_contents(other.__dict__, read_contents(model.__dict__, None)).own is other.__dict__
