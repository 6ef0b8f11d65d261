"""Operations that user code must not perform in a pass: writes to parameters, taking gradients; all refused by name."""

import contextlib
import copy
import pickle

import pytest
import torch
from recording import assert_same_as_the_loop, cover
from torch import library as operators
from torch import nn
from torch.nn import functional as F

from privet.errors import UnsupportedModelError
from privet.gradients import per_example_gradients
from rounding import assert_equal_up_to_rounding

WRITES = {
    "add_": lambda m, x: m.weight.add_(1), "+=": lambda m, x: m.weight.__iadd__(1),
    "[...] =": lambda m, x: m.weight.__setitem__(0, 1),
    "copy_": lambda m, x: m.weight.copy_(m.weight + 1), "out=": lambda m, x: torch.add(m.weight, 1, out=m.weight),
    "detach": lambda m, x: m.weight.detach().mul_(2), "data": lambda m, x: m.weight.data.mul_(2),
    "data =": lambda m, x: setattr(m.weight, "data", torch.zeros(2, 3)), "view": lambda m, x: m.weight.view(-1)[:2].zero_(),
    "transpose": lambda m, x: m.weight.t().zero_(), "nn.init": lambda m, x: nn.init.zeros_(m.weight),
    "renorm_": lambda m, x: m.weight.renorm_(2, 0, 0.1), "index_add_": lambda m, x: m.weight.index_add_(0, torch.tensor([0]), x),
    "foreach": lambda m, x: torch._foreach_add_([m.weight, m.bias], 1.0),
    "nn.init by name": lambda m, x: nn.init.constant_(m.weight, 2.0), "reset": lambda m, x: m.reset_parameters(),
    "activation": lambda m, x: F.relu(m.weight, inplace=True),
    "operator": lambda m, x: torch.ops.aten.add_(m.weight, 1), "overload": lambda m, x: torch.ops.aten.add_.Tensor(m.weight, 1),
    "frozen": lambda m, x: m.frozen.add_(1), "an example's": lambda m, x: m.weight[0].copy_(x[0]),
}  # fmt: skip


class Model(nn.Linear):
    def __init__(self):
        super().__init__(3, 2)
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_a_parameter_may_be_assigned_its_own_memory_and_no_other(method):
    """The 8-bit layers of bitsandbytes do so in every forward pass."""

    def assign(change):
        def loss(m, x):
            m.frozen.data = change(kept)
            return m(x).sum(1)

        return loss

    model = Model()
    kept, x = model.frozen.data, torch.randn(3, 3)
    assert cover(model, assign(lambda own: own), x, method).looped == (3 if method == "loop" else 0)
    for change in (lambda own: own.clone(), lambda own: own.flip(0), lambda own: own[:1], lambda own: own.view(torch.int32)):
        with pytest.raises(UnsupportedModelError, match="writes to a parameter"):
            cover(model, assign(change), x, method)


@pytest.mark.parametrize("method", ["auto", "ghost", "loop"])
@pytest.mark.parametrize("spelling", WRITES)
def test_parameters_are_not_written_to(spelling, method):
    model = Model()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    def loss(m, x):
        with torch.no_grad():
            WRITES[spelling](m, x)
        return m(x).sum(1)

    with pytest.raises(UnsupportedModelError, match="writes to"):
        per_example_gradients(model, loss, torch.randn(4, 3), method=method)
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())


TAKING = {
    "backward": (lambda m, x: m(x).sum().backward(), r"return the loss|backward"),
    "autograd.backward": (lambda m, x: torch.autograd.backward(m(x).sum()), r"return the loss|backward"),
    ".grad =": (lambda m, x: setattr(m.weight, "grad", torch.ones(2, 3)), r"return the loss|backward"),
    "hook": (lambda m, x: m.weight.register_hook(lambda gradient: 2 * gradient), "puts a hook on a parameter"),
}


@pytest.mark.parametrize("method", ["auto", "ghost", "loop"])
@pytest.mark.parametrize("way", TAKING)
def test_taking_gradients_in_a_pass_is_refused(way, method):
    model = Model()
    take, says = TAKING[way]

    def loss(m, x):
        take(m, x)
        return m(x).sum(1)

    with pytest.raises((UnsupportedModelError, RuntimeError), match=says):
        per_example_gradients(model, loss, torch.randn(4, 3), method=method)
    assert all(parameter.grad is None and not parameter._backward_hooks for parameter in model.parameters())


TABLES = {
    "embedding": lambda m, x: F.embedding(x, m.weight, max_norm=0.1),
    "bag": lambda m, x: F.embedding_bag(x, m.weight, max_norm=0.1),
    "derived": lambda m, x: F.embedding(x, m.weight * 1.0, max_norm=0.1),
}


@pytest.mark.parametrize("method", ["auto", "ghost", "loop"])
@pytest.mark.parametrize("kind", TABLES)
def test_tables_are_not_renormalised(kind, method):
    model = nn.Embedding(5, 3)
    before = model.weight.detach().clone()
    with pytest.raises(UnsupportedModelError, match="max_norm"):
        per_example_gradients(
            model, lambda m, x: TABLES[kind](m, x).flatten(1).sum(1), torch.tensor([[1, 2], [3, 4]]), method=method
        )
    assert torch.equal(model.weight, before)


@pytest.mark.parametrize("method", ["auto", "loop"])
def test_parameters_may_be_read_as_statistics(method):
    """Frozen normalisation reads means and variances that are parameters."""
    model = Model()

    def loss(m, x):
        return F.batch_norm(m(x), m.frozen, m.frozen, training=False).sum(1)

    assert cover(model, loss, torch.randn(4, 3), method).looped == (4 if method == "loop" else 0)


@pytest.mark.parametrize("held", [False, True])
def test_a_tensor_that_requires_a_gradient_is_not_written_to(held):
    """It is not copied, as a parameter is not."""
    model = Model()
    scale = torch.ones(2, requires_grad=True)
    model.scale = scale if held else [scale]

    def loss(m, x):
        with torch.no_grad():
            scale.add_(1)
        return m(x).sum(1)

    with contextlib.suppress(UnsupportedModelError):
        cover(model, loss, torch.randn(4, 3), "loop")
    assert scale.tolist() == [1.0, 1.0]


def into(function, *kinds):
    """Write into new tensors; return the first."""
    found = [torch.zeros(1, 3, dtype=kind) for kind in kinds]
    function(*found)
    return found[0].sum()


# What is computed of one example's tensor, although torch's batching would show or share the memory of all.
SHOWN = {
    "sum into": lambda x: into(lambda out: torch.add(x, 1, out=out), torch.float32),
    "sort into": lambda x: into(lambda *out: torch.sort(x, 1, out=out), torch.float32, torch.long) + x[0, 0],
    "add into": lambda x: into(lambda out: torch.ops.aten.add_.Tensor(out, x), torch.float32),
    "without a batching rule": lambda x: torch.unique(x[0].round()).sum(),
    "text": lambda x: float(str(x.detach()).count("1")), "text of a part": lambda x: float(len(repr(x[0, :2].round()))),
    "copy": lambda x: copy.deepcopy(x).sum(), "shallow copy": lambda x: copy.copy(x).sum(),
    "pickle": lambda x: pickle.loads(pickle.dumps(x.detach())).sum(),
    "storage": lambda x: x.untyped_storage()[0] / 100,
    "numbers of the storage": lambda x: torch.tensor(x.storage().tolist()).sum(),
}  # fmt: skip


@pytest.mark.parametrize("kind", SHOWN)
def test_the_memory_behind_an_example_is_not_shown(kind):
    model, x = nn.Linear(3, 2), torch.randn(4, 3)

    def loss(m, x):
        return m(x).sum(1) * (1 + SHOWN[kind](x))

    assert_same_as_the_loop(model, loss, x)
    assert kind != "without a batching rule" or not cover(model, loss, x).looped


@operators.custom_op("user_operators::same", mutates_args=())
def same(x: torch.Tensor) -> torch.Tensor:
    """A custom operator whose batching rule mixes examples."""
    return x.clone()


same.register_autograd(lambda ctx, gradient: gradient)
same.register_vmap(lambda info, in_dims, x: (x.sum(in_dims[0], keepdim=True).expand_as(x).clone(), in_dims[0]))


@pytest.mark.parametrize(
    "operator",
    [same, torch.ops.user_operators.same, torch.ops.user_operators.same.default],
    ids=["function", "packet", "overload"],
)
def test_custom_operators_use_the_loop(operator):
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    covered = cover(model, lambda m, x: operator(m(x)).sum(1), x)
    assert covered.looped == 4
    assert_equal_up_to_rounding(covered.gradients["weight"], x[:, None, :].expand(4, 2, 3))
