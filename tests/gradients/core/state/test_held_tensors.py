"""Tensors, storages and gradients that a model holds are as before after each example, whatever wrote to them."""

import array

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from privet.clipping import Flat
from privet.errors import UnsupportedModelError
from privet.gradients import clipped_sum, per_example_gradients, per_example_norms
from privet.gradients.core.state.guard import Guard
from privet.gradients.methods.calls import WriteError
from rounding import assert_equal_up_to_rounding


def inference(size):
    with torch.inference_mode():
        return torch.zeros(size)


def add_in_inference(held, x):
    with torch.inference_mode():
        held.add_(x)


def overwrite(held, x):
    memory = held.numpy()
    memory[...] = -0.0
    return x


def replace_key(held, x):
    held[True] = held.pop(1)


def with_gradient(requires_grad):
    held = torch.zeros(3, requires_grad=requires_grad)
    held.grad = torch.zeros(3)
    return held


def expanded():
    mean = torch.zeros(3)
    return {"mean": mean, "rows": mean.expand(4, 3)}


def hooked():
    held = torch.zeros(3, requires_grad=True)
    held.register_hook(lambda g: g)
    return [held]


# Name → (what a model holds, what an example with large inputs does to it, what is read of it).
HELD = {
    "storage": (
        lambda: [torch.zeros(3).untyped_storage()], lambda held, x: held[0].fill_(64), lambda held: float(held[0][3]),
    ),
    "typed storage": (
        lambda: torch.zeros(3)._typed_storage(), lambda held, x: held.fill_(7.0), lambda held: float(held[1]),
    ),
    "resized storage": (
        lambda: [torch.zeros(3).untyped_storage()], lambda held, x: held[0].resize_(40), lambda held: float(held[0].nbytes()),
    ),
    "csr tensor": (
        lambda: [torch.eye(3).to_sparse_csr()], lambda held, x: held[0].values().add_(x),
        lambda held: held[0].values().sum().item(),
    ),
    "csc tensor": (
        lambda: [torch.eye(3).to_sparse_csc()], lambda held, x: held[0].values().add_(x),
        lambda held: held[0].values().sum().item(),
    ),
    "inference tensor": (lambda: [inference(3)], lambda held, x: add_in_inference(held[0], x), lambda held: held[0].sum().item()),
    "nested tensor": (
        lambda: [torch.nested.nested_tensor([torch.zeros(3), torch.zeros(2)])],
        lambda held, x: held[0].unbind()[0].copy_(x), lambda held: held[0].unbind()[0].sum().item(),
    ),
    "sign of zero": (
        lambda: [torch.zeros(3)], lambda held, x: overwrite(held[0], x), lambda held: float(held[0].signbit().sum()),
    ),
    "sign of a complex zero": (
        lambda: [torch.zeros(3, dtype=torch.complex64)], lambda held, x: overwrite(held[0], x),
        lambda held: float(held[0].real.signbit().sum()),
    ),
    "sign in a view of a conjugate": (
        lambda: [torch.zeros(3, dtype=torch.complex64).conj()], lambda held, x: overwrite(held[0].conj(), x),
        lambda held: float(held[0].conj().real.signbit().sum()),
    ),
    "sign in an array of Python's": (
        lambda: array.array("d", [0.0]), lambda held, x: held.__setitem__(0, -0.0), lambda held: float(str(held[0]) == "-0.0"),
    ),
    "key that equals another": (lambda: {1: 2.0}, replace_key, lambda held: float(next(iter(held)) is True)),
    "view that overlaps itself": (expanded, lambda held, x: held["mean"].add_(x), lambda held: held["rows"].sum().item()),
    "graph": (
        lambda: [torch.zeros(3)], lambda held, x: held[0].add_(torch.ones(3, requires_grad=True).square()),
        lambda held: float(held[0].requires_grad),
    ),
    "graph of a view": (
        lambda: [torch.zeros(4, 3)[1]], lambda held, x: held[0].add_(torch.ones(3, requires_grad=True).square()),
        lambda held: float(held[0].requires_grad) + held[0]._base.requires_grad,
    ),
    "hook": (
        lambda: [torch.zeros(3, requires_grad=True)], lambda held, x: held[0].register_hook(lambda g: g),
        lambda held: float(len(held[0]._backward_hooks or ())),
    ),
    "hook beside another": (
        hooked, lambda held, x: held[0].register_hook(lambda g: g), lambda held: float(len(held[0]._backward_hooks or ())),
    ),
    "hook after accumulation": (
        lambda: [torch.zeros(3, requires_grad=True)], lambda held, x: held[0].register_post_accumulate_grad_hook(len),
        lambda held: float(len(held[0]._post_accumulate_grad_hooks or ())),
    ),
    "hook of a sparse tensor": (
        lambda: [torch.eye(3).to_sparse().requires_grad_()], lambda held, x: held[0].register_hook(lambda g: g),
        lambda held: float(len(held[0]._backward_hooks or ())),
    ),
    "conjugate bit": (
        lambda: [torch.zeros(3, dtype=torch.complex64)], lambda held, x: setattr(held[0], "data", held[0].data.conj()),
        lambda held: float(held[0].is_conj()),
    ),
    "sign bit": (
        lambda: [torch.zeros(3)], lambda held, x: setattr(held[0], "data", torch._neg_view(held[0].data)),
        lambda held: float(held[0].is_neg()),
    ),
    "size of the memory": (
        lambda: [torch.zeros(3)], lambda held, x: held[0].untyped_storage().resize_(4096),
        lambda held: float(held[0].untyped_storage().nbytes()),
    ),
    "memory that is freed": (
        lambda: [torch.ones(3)], lambda held, x: held[0].untyped_storage().resize_(0),
        lambda held: float(held[0].untyped_storage().nbytes()) + held[0].sum().item(),
    ),
    "masked array": (
        lambda: np.ma.array(np.zeros(3), mask=[True, False, False], hard_mask=True),
        lambda held, x: held.data.__setitem__(0, x[0].item()), lambda held: float(held.data[0]),
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:TypedStorage", "ignore:Sparse CS", "ignore:The PyTorch API of nested")
@pytest.mark.parametrize("method", ["auto", "loop"])
@pytest.mark.parametrize("name", HELD)
def test_what_an_example_writes_is_undone(name, method):
    make, write, read = HELD[name]

    class Holding(nn.Linear):
        def forward(self, x):
            out = super().forward(x) * (1 + read(self.held))
            if x[0, 0].item() > 100:
                write(self.held, x[0].detach())
            return out

    torch.manual_seed(0)
    model, x = Holding(3, 2), torch.randn(4, 3)
    x[0] = 300.0
    model.held = make()
    before = read(model.held)
    try:
        found = per_example_norms(model, lambda m, x: m(x).square().sum(1), x, method=method)
    except RuntimeError as error:
        pytest.fail(f"it cannot be restored: {error}")
    plain = nn.Linear(3, 2)
    plain.load_state_dict(model.state_dict())
    expected = per_example_norms(plain, lambda m, x: (m(x) * (1 + before)).square().sum(1), x, method="loop")
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)
    assert read(model.held) == before


class Memory(nn.Module):
    """Adds what it computes of large inputs to a memory in a list, as if it were constant."""

    def __init__(self):
        super().__init__()
        self.encode, self.decode, self.memory = nn.Linear(3, 3), nn.Linear(3, 2), [torch.zeros(3)]

    def forward(self, x):
        encoded = self.encode(x)
        if x[0, 0].item() > 100:
            self.memory[0].mul_(0.9).add_(encoded[0].square())
        return self.decode(encoded + self.memory[0])


@pytest.mark.parametrize("method", ["auto", "loop"])
def test_a_graph_in_a_memory_neither_stops_other_examples_nor_changes_them(method):
    torch.manual_seed(0)
    model, x = Memory(), torch.randn(5, 3)
    x[1] = 300.0

    def loss(m, batch):
        return m(batch).square().sum(1)

    for _ in range(2):
        norms = per_example_norms(model, loss, x, method=method)
        alone = [per_example_norms(model, loss, one, method="loop").item() for one in x.split(1)]
        assert norms.tolist() == pytest.approx(alone, rel=1e-4)
        assert model.memory[0].is_leaf
        assert not model.memory[0].any()


@pytest.mark.parametrize("method", ["auto", "loop"])
def test_a_view_that_a_checkpointed_part_adds_to_is_a_leaf_again(method):
    """Its recomputation is a pass inside another, whose end restores as well."""
    torch.manual_seed(0)
    model, x = Memory(), torch.randn(3, 3)
    model.memory = [torch.zeros(2, 3)[1]]
    x[1] = 300.0

    def loss(m, batch):
        return checkpoint(m, batch, use_reentrant=False).square().sum(1)

    norms = per_example_norms(model, loss, x, method=method)
    alone = [per_example_norms(model, loss, one, method="loop").item() for one in x.split(1)]
    assert norms.tolist() == pytest.approx(alone, rel=1e-4)
    assert norms.min() > 0
    assert (model.memory[0].is_leaf, model.memory[0].any().item()) == (True, False)


def test_a_view_is_a_leaf_again_after_a_pass_inside_another():
    model = Memory()
    model.memory = [torch.zeros(2, 3)[1]]
    guard = Guard(model, len, dict(model.named_parameters()))
    with guard.isolate():
        try:
            with guard.isolate():
                model.memory[0].add_(model.encode.weight[0])
        except UnsupportedModelError as error:
            pytest.fail(f"it cannot be restored: {error}")
        assert model.memory[0].is_leaf


class Frozen(nn.Module):
    """Writes the gradient of a part that another phase has left, where an input is large."""

    def __init__(self, write):
        super().__init__()
        self.write, self.frozen, self.linear = write, nn.Parameter(torch.ones(3), requires_grad=False), nn.Linear(3, 2)
        self.constant = [torch.zeros(3)]
        for held in (self.frozen, self.linear.weight, self.constant[0]):
            held.grad = torch.zeros_like(held)

    def forward(self, x):
        gradients = [held.grad for held in (self.frozen, self.linear.weight, self.constant[0])]
        left = sum(float(each.sum()) for each in gradients if each is not None)
        if x[0, 0].item() > 100:
            self.write(self, x[0].detach(), gradients)
        return self.linear(x) * (1 + left)


def add(model, x, gradients):
    for each in gradients:
        if each is not None:
            each.add_(x)


@pytest.mark.parametrize("method", ["auto", "loop"])
@pytest.mark.parametrize("write", [add, lambda model, x, gradients: model.zero_grad()], ids=["add", "zero"])
def test_gradients_that_were_there_are_neither_seen_nor_written(write, method):
    torch.manual_seed(0)
    model, x = Frozen(write), torch.randn(4, 3)
    x[0] = 300.0
    before = [held.grad for held in (model.frozen, model.linear.weight, model.constant[0])]
    plain = nn.Linear(3, 2)
    plain.load_state_dict(model.linear.state_dict())
    found = per_example_norms(model, lambda m, x: m(x).square().sum(1), x, method=method)
    expected = per_example_norms(plain, lambda m, x: m(x).square().sum(1), x, method="loop")
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)
    after = [held.grad for held in (model.frozen, model.linear.weight, model.constant[0])]
    assert all(one is other and not one.any() for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize("method", ["auto", "loop"])
def test_a_storage_too_large_to_be_copied_is_refused(method):
    model = nn.Linear(3, 2)
    model.held = [torch.zeros(1 << 21).untyped_storage()]
    with pytest.raises(UnsupportedModelError, match="UntypedStorage of 8,388,608"):
        clipped_sum(model, lambda m, x: m(x).sum(1), torch.randn(2, 3), Flat(1.0), method=method)


# Name → (what a frozen parameter is made of, its numbers).
LAYOUTS = {
    "sparse": (lambda: torch.eye(3).to_sparse(), lambda kept: kept._values()),
    "csr": (lambda: torch.eye(3).to_sparse_csr(), lambda kept: kept.values()),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(3), torch.ones(2)]), lambda kept: kept.unbind()[0]),
}


class Graph(nn.Module):
    def __init__(self, name, write=None):
        super().__init__()
        make, self.numbers = LAYOUTS[name]
        self.write = write
        self.matrix, self.linear = nn.Parameter(make(), requires_grad=False), nn.Linear(3, 1)

    def forward(self, x):
        numbers = self.numbers(self.matrix.detach())
        if self.write is not None:
            self.write(numbers)
        return self.linear(x).squeeze(1) * float(numbers.sum())


@pytest.mark.filterwarnings("ignore:Sparse CSR", "ignore:The PyTorch API of nested")
@pytest.mark.parametrize("method", ["auto", "loop"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_frozen_parameters_of_any_layout_are_allowed(name, method):
    x = torch.randn(4, 3)
    found = per_example_gradients(Graph(name), lambda m, x: m(x), x, method=method)["linear.weight"]
    assert_equal_up_to_rounding(found, 3 * x[:, None])


@pytest.mark.filterwarnings("ignore:Sparse CSR", "ignore:The PyTorch API of nested")
@pytest.mark.parametrize("method", ["auto", "loop"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_frozen_parameters_of_any_layout_are_not_written_to(name, method):
    model = Graph(name, lambda numbers: numbers.mul_(2))
    with pytest.raises(WriteError):
        per_example_gradients(model, lambda m, x: m(x), torch.randn(4, 3), method=method)
    assert model.numbers(model.matrix.detach()).tolist() == [1.0] * 3


SIZE = 300  # a square of which is too large to be copied
LARGE = {
    "tensor": (lambda: torch.zeros(SIZE**2), lambda held: held.add_(1)),
    "entry": (lambda: torch.zeros(SIZE**2), lambda held: held.__setitem__(0, 1.0)),
    "inference tensor": (lambda: inference(SIZE**2), lambda held: add_in_inference(held, torch.ones(1))),
    "sparse": (lambda: torch.ones(SIZE, SIZE).to_sparse(), lambda held: held._values().add_(1)),
    "csr": (lambda: torch.ones(SIZE, SIZE).to_sparse_csr(), lambda held: held.values().add_(1)),
    "nested": (lambda: torch.nested.nested_tensor([torch.zeros(SIZE**2)] * 2), lambda held: held.unbind()[0].add_(1)),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR", "ignore:The PyTorch API of nested")
@pytest.mark.parametrize("method", ["auto", "loop"])
@pytest.mark.parametrize("name", LARGE)
def test_large_tensors_in_containers_are_not_written_to(name, method):
    make, write = LARGE[name]
    model = nn.Linear(3, 2)
    model.held = {"bank": make()}

    def loss(m, x):
        write(m.held["bank"])
        return m(x).sum(1)

    with pytest.raises(WriteError):
        clipped_sum(model, loss, torch.randn(2, 3), Flat(1.0), method=method)


@pytest.mark.parametrize("method", ["auto", "loop"])
@pytest.mark.parametrize("size", [2_000, 10_000])
def test_what_large_containers_hold_is_restored(size, method):
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    model.held = [[0.0] for _ in range(size)]

    def loss(m, x):
        m.held[-1].append(m.held[-1][-1] + 1)
        return m(x).square().sum(1) * m.held[-1][-1]

    found = per_example_norms(model, loss, x, method=method)
    torch.testing.assert_close(found, per_example_norms(model, lambda m, x: m(x).square().sum(1), x), rtol=1e-5, atol=0)
    assert model.held[-1] == [0.0]
