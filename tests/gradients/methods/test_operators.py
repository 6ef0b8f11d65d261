"""Operators and TorchScript functions, whose own calls torch does not show: they write to nothing that outlives the pass."""

import pytest
import torch
from oracle import plain_gradients, relative_error_per_example
from recording import cover
from torch import library, nn
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.scan import scan

from privet.errors import UnsupportedModelError
from privet.gradients.core.recorder import UntraceableError
from privet.gradients.core.state.guard import Guard
from privet.gradients.methods.calls import SharedCalls

X = torch.tensor([[1.0, 2, 3], [4, -5, 6], [-7, 8, 9], [1, -2, 1]])


def renew(table, x):
    with torch.no_grad():
        if bool(x.max() > 0):
            table.mul_(0.5).add_(x[0] * 0.5)
    return x * table


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


def normalise(table, x):
    return nn.functional.batch_norm(x, table, None, training=True)


renewed, counted, weighed, normalised = map(torch.jit.script, (renew, count, weigh, normalise))


@library.custom_op("privet_tests::moving_average", mutates_args=())
def moving_average(x: torch.Tensor) -> torch.Tensor:
    NETS[0].table.data.copy_(x[0])
    return x.clone()


@library.custom_op("privet_tests::with_context", mutates_args=())
def with_context(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def _store(ctx, inputs, output):
    NETS[0].table.data.copy_(inputs[0][0])


moving_average.register_autograd(lambda ctx, gradient: gradient)
with_context.register_autograd(lambda ctx, gradient: gradient, setup_context=_store)
NETS = []  # for operators, whose functions have no other way to a model
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


def _traced_writer(model):
    table = model.table.detach()
    return torch.jit.trace(lambda x: x + table.add_(x[0]), X[:1], check_trace=False)


WRITERS = {
    "a script's argument": lambda m, x: m(renewed(m.table, x)),
    "statistics given to a script": lambda m, x: m(normalised(m.table.detach(), torch.stack([x, 2 * x], 2))[:, :, 0]),
    "a view given to a script": lambda m, x: m(renewed(m.table[:], x)),
    "a script's constant": lambda m, x: m(m.traced(x)),
    "an operator's closure": lambda m, x: m(moving_average(m.layer.weight[:1] * x)),
    "an operator's context": lambda m, x: m(with_context(m.layer.weight[:1] * x)),
}


@pytest.mark.parametrize("method", ["auto", "loop"])
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("writer", WRITERS)
def test_what_torch_hides_writes_to_no_parameter(writer, trained, method):
    model = Net(trained)
    NETS[:] = [model]
    if writer == "a script's constant":
        model.traced = _traced_writer(model)
    before = model.table.detach().clone()
    with pytest.raises(UnsupportedModelError, match="writes to a parameter"):
        cover(model, lambda m, x: WRITERS[writer](m, x).sum(1), X, method)
    assert torch.equal(model.table, before)


@pytest.mark.parametrize("method", ["auto", "loop"])
@pytest.mark.parametrize("compute", [lambda m, x: counted(m(x)), lambda m, x: weighed(m.table, m(x) @ m.layer.weight)])
def test_scripts_that_compute_only_have_the_gradients_of_plain_autograd(compute, method):
    model = Net(trained=True)
    covered = cover(model, lambda m, x: compute(m, x).square().sum(1), X, method)
    assert (
        relative_error_per_example(covered.gradients, plain_gradients(model, lambda m, x: compute(m, x).square().sum(1), X))
        < 1e-5
    )


def test_a_script_is_not_tried_again_for_all_examples_once_its_error_is_caught():
    def loss(m, x):
        try:
            return counted(m(x)).sum(1)
        except UntraceableError:
            return 0 * m(x).sum(1)

    covered = cover(Net(), loss, X)
    assert covered.looped == len(X)
    assert torch.equal(covered.gradients["layer.bias"], torch.full((4, 2), 3.0))


def test_methods_of_scripted_modules_are_refused_wherever_they_are_held():
    methods = (torch.jit.script(nn.Linear(3, 3)).forward,)
    for method in ("auto", "loop"):
        with pytest.raises(UnsupportedModelError, match="TorchScript module"):
            cover(Net(), lambda m, x: m(methods[0](x)).sum(1), X, method)
    assert methods[0](X).shape == X.shape


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
    assert torch.allclose(covered.gradients["layer.weight"], 3 * X[:, None].expand(4, 2, 3))
    assert covered.looped == len(X)


library.define("privet_tests::by_name", "(Tensor x) -> Tensor")


@library.impl("privet_tests::by_name", "CompositeImplicitAutograd")
def _by_name(x):
    NETS[0].table.data.copy_(x[0])
    BANK[:3] = x[0].detach()
    return x * 1


BANK = torch.zeros(70_000)  # too large to be copied for every pass


@pytest.mark.parametrize("method", ["auto", "loop"])
@pytest.mark.parametrize("trained", [False, True])
def test_what_a_kernel_writes_that_is_registered_by_name_is_undone(trained, method):
    model = Net(trained)
    NETS[:] = [model]
    before = model.table.detach().clone()
    covered = cover(model, lambda m, x: torch.ops.privet_tests.by_name(m(x)[:, [0, 1, 0]]).sum(1) + BANK.sum(), X, method)
    assert torch.equal(model.table, before)
    assert not BANK.any()
    assert covered.gradients["layer.weight"].any()


SEEN = [0.0]


@library.custom_op("privet_tests::over_the_largest", mutates_args=())
def largest(x: torch.Tensor) -> torch.Tensor:
    SEEN[0] = max(SEEN[0], float(x.abs().max()))
    return x / SEEN[0]


largest.register_autograd(lambda ctx, gradient: gradient)


@pytest.mark.parametrize("method", ["auto", "loop"])
def test_an_operator_remembers_no_example_even_if_no_code_names_its_function(method):
    model = Net()

    def loss(m, x):
        return (m(x) * torch.ops.privet_tests.over_the_largest(x)[:, :2]).sum(1)

    covered = cover(model, loss, X, method)
    assert torch.allclose(covered.gradients["layer.bias"], (X / X.abs().amax(1, keepdim=True))[:, :2])
    assert SEEN == [0.0]


@library.custom_op("privet_tests::batched", mutates_args=())
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
