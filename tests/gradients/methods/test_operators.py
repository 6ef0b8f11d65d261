"""Operators and TorchScript functions, whose own calls torch does not show: examples that share a pass do not share them."""

import pytest
import torch
from oracle import plain_gradients, relative_error_per_example
from recording import cover
from torch import library, nn
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.scan import scan

from privet.errors import UnsupportedModelError
from privet.gradients.core.recorder import UntraceableError
from privet.gradients.isolation import Guard
from privet.gradients.methods.calls import SharedCalls
from rounding import assert_equal_up_to_rounding

X = torch.tensor([[1.0, 2, 3], [4, -5, 6], [-7, 8, 9], [1, -2, 1]])


def count(x):
    """Write to a tensor of its own."""
    found = torch.zeros_like(x)
    for _ in range(3):
        found += x
    return found


def weigh(table, x):
    return x * table


class Net(nn.Module):
    def __init__(self, trained=False):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.table = nn.Linear(3, 2), nn.Parameter(torch.rand(3), requires_grad=trained)

    def forward(self, x):
        return self.layer(x)


counted, weighed = map(torch.jit.script, (count, weigh))


pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


@pytest.mark.parametrize("method", ["auto", "loop"])
@pytest.mark.parametrize("compute", [lambda m, x: counted(m(x)), lambda m, x: weighed(m.table, m(x) @ m.layer.weight)])
def test_scripts_that_compute_only_have_the_gradients_of_plain_autograd(compute, method):
    model = Net(trained=True)
    expected = plain_gradients(model, lambda m, x: compute(m, x).square().sum(1), X)
    covered = cover(model, lambda m, x: compute(m, x).square().sum(1), X, method)
    assert relative_error_per_example(covered.gradients, expected) < 1e-5


def test_a_script_is_not_tried_again_for_all_examples_once_its_error_is_caught():
    def loss(m, x):
        try:
            return counted(m(x)).sum(1)
        except UntraceableError:
            return 0 * m(x).sum(1)

    covered = cover(Net(), loss, X)
    assert covered.looped == len(X)
    assert torch.equal(covered.gradients["layer.bias"], torch.full((4, 2), 3.0))


def choose(m, x):
    return torch.cond(x.sum() > 0, lambda x: m(x), lambda x: 2 * m(x) ** 2, (x,))


def repeat(m, x):
    weight = m.layer.weight[:, :2]
    return while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, (h @ weight).tanh()), (torch.tensor(0), x[:, :2]))[1]


FLOW = {
    "cond": (choose, lambda m, x: m(x) if x.sum() > 0 else 2 * m(x) ** 2),
    "while_loop": (repeat, lambda m, x: (((x[:, :2] @ (w := m.layer.weight[:, :2])).tanh() @ w).tanh() @ w).tanh()),
}


@pytest.mark.parametrize("method", ["ghost", "loop"])
@pytest.mark.parametrize("kind", FLOW)
def test_control_flow_of_torch_has_the_gradients_of_control_flow_of_python(kind, method):
    """Outside compilation, torch would give no gradient to what the branches use besides their arguments."""
    model = Net()
    operator, python = FLOW[kind]
    covered = cover(model, lambda m, x: operator(m, x).square().sum(1), X, method)
    expected = plain_gradients(model, lambda m, x: python(m, x).square().sum(1), X)
    assert relative_error_per_example(covered.gradients, expected) < 1e-5
    assert covered.gradients["layer.weight"].any()


def _scanned(step, m, x):
    return m(scan(step, torch.zeros(3), x.expand(3, 3))[0][None])


def test_operators_whose_functions_use_parameters_are_refused():
    def step(c, t):
        return c + m.layer(t).sum(), c * 1

    m = Net()
    for method in ("auto", "loop"):
        with pytest.raises(UnsupportedModelError, match="functions that use parameters to torch's operator scan"):
            cover(m, lambda m, x: _scanned(step, m, x).sum(1), X, method)


def test_operators_whose_functions_use_none_are_computed_one_by_one():
    covered = cover(Net(), lambda m, x: _scanned(lambda c, t: (c + t, c * 1), m, x).sum(1), X)
    assert_equal_up_to_rounding(covered.gradients["layer.weight"], 3 * X[:, None].expand(4, 2, 3))
    assert covered.looped == len(X)


@library.custom_op("user_operators::batched", mutates_args=())
def batched(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


batched.register_vmap(lambda info, dims, x: (x.flip(0), dims[0]))


def test_the_batching_rule_of_an_operator_sees_no_clients():
    guard = Guard(nn.Linear(1, 1), len, {})

    def client(x):
        with SharedCalls(guard, None, 2):
            return batched(x)

    with pytest.raises(UntraceableError, match="custom operator"):
        torch.func.vmap(client)(torch.rand(2, 3))
