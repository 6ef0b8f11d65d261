import cases
import oracle
import pytest
import torch
from recording import assert_agrees, cover, record
from torch import nn
from torch.nn import functional as F

from privet.gradients.core.handlers import HANDLERS, register_handler
from privet.gradients.core.per_example import DenseGrad
from privet.gradients.core.randomness import Draws
from privet.gradients.core.recorder import Recorder, UntraceableError
from privet.gradients.layers.linear import follow_linear
from rounding import assert_equal_up_to_rounding


class Scaled(nn.Module):
    def __init__(self, *shape):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(shape) + 3)


@pytest.mark.parametrize("combine", [
    lambda x, p: x + p, lambda x, p: p + x, lambda x, p: x - p, lambda x, p: p - x, lambda x, p: x * p, lambda x, p: p * x,
    lambda x, p: x / p, lambda x, p: p / x, lambda x, p: torch.add(x, p, alpha=3), lambda x, p: torch.sub(x, p, alpha=3),
    lambda x, p: torch.mul(p, x), lambda x, p: torch.div(p, x), lambda x, p: x.add(p), lambda x, p: x.div(p),
    lambda x, p: torch.maximum(x, p), lambda x, p: torch.where(x > 1.5, x, p), lambda x, p: x.clone().mul_(p),
    lambda x, p: torch.stack([x, p.expand_as(x)]), lambda x, p: x.addcmul(p, x), lambda x, p: torch.atan2(x, p),
])  # fmt: skip
def test_every_operation_is_followed(combine):
    """As many examples as elements: sizes do not determine the example dimension."""
    for shape in ((6,), (), (6, 6), (1, 6), (6, 1)):
        assert_agrees(Scaled(*shape), lambda m, x: combine(x, m.scale).square().sum()[None], torch.rand(6, 6, 6) + 1)


@pytest.mark.parametrize("sizes", [lambda n: (n, -1), lambda n: (torch.Size((n, 6)),), lambda n: ([n, 6],)])
def test_expand_takes_sizes_in_every_spelling(sizes):
    assert_agrees(Scaled(6), lambda m, x: (m.scale.expand(*sizes(len(x))) * x).sum(1), torch.randn(3, 6))


def test_casts_to_low_precision_have_gradients_in_float32():
    def loss(m, x):
        return (x.bfloat16() @ m.scale.to(torch.bfloat16)).float().square().sum(1)

    torch.manual_seed(0)
    model, x = Scaled(4, 3), torch.randn(5, 4)
    tape = record(model, loss, x)
    assert tape.grads["scale"].dtype == torch.float32
    expected = cover(model, loss, x, "loop").gradients
    assert oracle.relative_error(tape.gradients(), expected) <= 2e-2


def test_foreign_tensors_get_no_gradient():
    model, other = Scaled(6), torch.ones(6, requires_grad=True)
    found = cover(model, lambda m, x: (x * m.scale * other).sum(1), x := torch.randn(3, 6))
    assert_equal_up_to_rounding(found.gradients["scale"], x)
    assert other.grad is None
    assert set(found.gradients) == {"scale"}


def doubled(x, weight):
    """A user-defined function."""
    if torch.overrides.has_torch_function((x, weight)) or torch._C._is_torch_function_mode_enabled():
        return torch.overrides.handle_torch_function(doubled, (x, weight), x, weight)
    return 2 * F.linear(x, weight)


@pytest.fixture
def rule():
    """Register a rule for the user's function that runs torch's own after something else."""

    def register(before):
        @register_handler(doubled)
        def follow(recorder, x, weight):
            before(recorder, x, weight)
            return 2 * follow_linear(recorder, x, weight, None, transposed=False)

        return cases.With(lambda m, x: doubled(x, m.weight), weight=(4, 6)), lambda m, x: m(x).square().sum(1), torch.randn(5, 6)

    yield register
    HANDLERS.pop(doubled)


def test_a_registered_rule_is_used(rule):
    calls = []
    assert_agrees(*rule(lambda recorder, x, weight: calls.append((len(x), recorder.follows(weight)))))
    assert calls == [(5, True)]


def test_a_rule_that_records_gradients_of_another_shape_is_not_used(rule):
    """Norms and sums would fail after the pass, where no example can be blamed: the examples are left to the loop."""
    program = rule(lambda recorder, x, weight: recorder.add(weight, DenseGrad(torch.zeros(len(x), *weight.shape[1:]))))
    with pytest.raises(UntraceableError, match="another shape"):
        record(*program)
    assert cover(*program).looped == 5


def test_gradients_of_another_shape_are_refused():
    weight = nn.Parameter(torch.zeros(2, 3))
    recorder = Recorder(4, {"weight": weight}, Draws(4, lambda: 0))
    with pytest.raises(UntraceableError, match="another shape"):
        recorder.add(weight, DenseGrad(torch.zeros(4, 3)))


def test_a_function_of_parameters_with_several_outputs_is_followed():
    def loss(m, x):
        weight, bias = torch._foreach_mul([m.weight, m.bias], 2.0)
        return F.linear(x, weight, bias).square().sum(1)

    assert_agrees(nn.Linear(3, 2), loss, torch.randn(4, 3))


def test_a_rule_that_records_in_low_precision_is_not_used(rule):
    """A sum of such gradients would be rounded after clipping: the examples are left to the loop."""
    low = torch.bfloat16
    program = rule(lambda recorder, x, weight: recorder.add(weight, DenseGrad(torch.zeros(len(x), *weight.shape, dtype=low))))
    assert cover(*program).looped == 5
