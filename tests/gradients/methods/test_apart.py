"""Functions that torch cannot batch, and code that torch calls below vmap, keep examples apart."""

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F

from privet.gradients import per_example_gradients
from privet.gradients.core.recorder import UntraceableError
from privet.gradients.isolation import Guard
from privet.gradients.methods.calls import SharedCalls
from rounding import assert_equal_up_to_rounding


class Scaled(torch.Tensor):
    """Its operators scale what they return by the largest number that they see."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        plain = torch.utils._pytree.tree_map(lambda x: x.inner if type(x) is cls else x, args)
        found = func(*plain, **(kwargs or {}))
        return found * found.abs().max()


def hooked(pack, unpack):
    def call(layer, x):
        with saved_tensors_hooks(pack, unpack):
            return layer(x).tanh()

    return call


def scale_by_the_largest(x):
    return x * x.abs().max() if x.is_floating_point() else x


WRAPPED = torch._dynamo.disable(scale_by_the_largest)


def moved(layer, x):
    y = torch.arange(6.0).reshape(2, 3) * x[0, 0]
    y.moveaxis(0, 1).mul_(3.0)
    return layer(x + y.sum(0))


def returned(layer, x):
    out = torch.zeros(1, 3) * x
    torch.mul(x, 2.0, out=out).add_(1.0)
    return layer(out)


def read_and_written(layer, x):
    y = x * 2.0
    torch.lerp(y, y * 2.0, y, out=y)
    return layer(y)


def shrunk(layer, x):
    out = x * 0.0
    torch.sum(x, 1, out=out)
    return layer(x) * out.sum()


PROGRAMS = {
    "out_of_another_size": lambda layer, x: layer(torch.mul(x, 2.0, out=torch.empty(0))),
    "out_of_one_number": lambda layer, x: layer(torch.mul(x, 2.0, out=torch.zeros(1))),
    "out_that_shrinks": shrunk,
    "out_that_is_returned": returned,
    "out_that_is_read": read_and_written,
    "moveaxis": moved,
    "operators_of_a_class": lambda layer, x: layer(x * Scaled(torch.ones(3))),
    "operators_of_a_weight": lambda layer, x: layer(F.linear(x, Scaled(torch.eye(3)))),
    "hook": hooked(lambda x: x, scale_by_the_largest),
    "wrapped_hook": hooked(WRAPPED, WRAPPED),
    "quantised": lambda layer, x: layer(torch.quantize_per_tensor_dynamic(x, torch.qint8, False).dequantize()),
    "quantised_by_an_operator": lambda layer, x: layer(
        torch.ops.aten.quantize_per_tensor_dynamic.default(x, torch.qint8, False).dequantize()
    ),
    "negative_zero": lambda layer, x: layer(x) + torch.copysign(torch.ones(()), torch.tensor(torch.sym_float(x[0, 1].round()))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_has_the_gradient_that_it_has_alone(name):
    layer, rows = nn.Linear(3, 1), torch.tensor([[1.0, 0.2, -2.0], [0.5, -0.2, 1.0], [-3.0, 0.1, 0.7], [40.0, -0.3, 90.0]])

    def loss(model, x):
        return PROGRAMS[name](model, x).square().sum(1)

    expected = per_example_gradients(layer, loss, rows, method="loop")
    assert_equal_up_to_rounding(per_example_gradients(layer, loss, rows), expected)
    try:
        found = per_example_gradients(layer, loss, rows, method="ghost")
    except Exception:
        return  # a pass over several examples may refuse
    assert_equal_up_to_rounding(found, expected)


def test_a_tensor_that_is_written_to_is_followed_from_then_on():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))
            self.__dict__["other"] = torch.ones(3, requires_grad=True)

        def forward(self, x):
            y = self.other * 1.0
            first = (x * y).sum(1)
            y.add_(self.shift)
            return first + (x * y).sum(1).square()

    rows = torch.randn(4, 3)
    found = per_example_gradients(Shifted(), lambda model, x: model(x), rows, method="auto")["shift"]
    sums = (rows * (1.0 + torch.tensor([0.5, -1.0, 2.0]))).sum(1, keepdim=True)
    assert_equal_up_to_rounding(found, 2 * sums * rows)


def test_clients_are_kept_apart_from_the_operators_of_a_class():
    guard = Guard(nn.Linear(3, 1), len, {})

    def client(x):
        with SharedCalls(guard, None, 2):
            return x * Scaled(torch.ones(3))

    with pytest.raises(UntraceableError, match="a class of tensors"):
        torch.func.vmap(client)(torch.randn(2, 3))
