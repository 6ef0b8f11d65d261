"""Following of parameters: unsupported uses are reported, supported ones leave results unchanged."""

import random

import cases
import oracle
import pytest
import torch
from recording import Seen, assert_agrees, cover, identity_with_backward, physical, record
from torch import library, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from privet.errors import UnsupportedModelError
from privet.gradients.combine.sums import SummedGrads
from privet.gradients.core.recorder import UntraceableError
from rounding import assert_equal_up_to_rounding


def test_functions_without_a_rule_use_per_example_copies():
    layers = {"a": nn.Linear(6, 4), "b": nn.Linear(6, 4)}
    model = cases.With(lambda m, x: m.a(x) + torch.lerp(m.b(x), m.a.bias, 0.3) + torch.logaddexp(m.a.bias, m.b(x)), **layers)
    tape = record(model, cases.energy, (x := torch.randn(4, 6),))
    assert oracle.relative_error_per_example(tape.gradients(), oracle.plain_gradients(model, cases.energy, (x,))) <= 1e-5
    assert isinstance(tape.grads["b.weight"], SummedGrads)


@pytest.mark.parametrize("case", cases.slow_unless_typical(cases.FOLLOWED), ids=str)
def test_the_losses_are_those_of_the_plain_model(case):
    model, batch, seen = case.model(), case.batch(5), Seen()

    def loss(m, b):
        losses = case.loss(m, b)
        seen(physical(losses).detach())
        return losses

    cover(model, loss, batch, "ghost")
    losses = case.loss(model, batch) if not case.grouped else None
    whole = [x for x in seen.items if len(x) == 5]
    assert case.grouped or torch.allclose(whole[-1], losses, rtol=1e-5, atol=1e-6)


def critic():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.LeakyReLU(0.2), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(64, 1),
    )  # fmt: skip


def interpolated(m, x):

    between = (0.3 * x + 0.7 * x.flip(-1)).requires_grad_()
    scores = m(between)
    (slope,) = torch.autograd.grad(scores, between, torch.ones_like(scores), create_graph=True, retain_graph=True)
    return (slope.flatten(1).norm(dim=1) - 1).square() + (m(x) - scores)[:, 0]


def adversarial(m, x):
    moved = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(m(moved).square().sum(), moved)
    return m(x + 0.1 * slope.sign()).square().sum(1)


def of_features(m, x):
    """By a hidden layer and by the input, of two outputs."""
    x = x.requires_grad_()
    hidden = m[:3](x)
    scores = m[3:](hidden)
    found = torch.autograd.grad([scores.sum(), hidden.square().sum()], [hidden, x], create_graph=True)
    return sum(each.square().sum() for each in found)[None]


@pytest.mark.parametrize("loss", [interpolated, adversarial, of_features])
def test_gradients_by_what_belongs_to_an_example_are_taken_in_the_pass(loss):
    """As for the gradient penalty of a critic, adversarial examples, and saliency."""
    torch.manual_seed(0)
    assert_agrees(critic().double(), loss, torch.randn(5, 1, 4, 4).double(), 1e-10)


class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 3 * x.square() * gradient


def test_what_has_no_gradient_of_its_gradient_is_left_to_the_loop():
    """A pass calls the function's own backward pass, which it does not differentiate."""
    torch.manual_seed(0)
    model = nn.Linear(4, 2).double()

    def penalty(m, x):
        x = x.requires_grad_()
        (slope,) = torch.autograd.grad(Cubed.apply(m(x)).sum(), x, create_graph=True)
        return slope.square().sum(1)

    assert_agrees(model, penalty, torch.randn(3, 4).double(), 1e-10, looped=3)


@pytest.mark.parametrize("inner", [
    lambda m, x: torch.func.vmap(torch.func.grad(lambda one: m(one[None]).sum()))(x),
    lambda m, x: torch.func.jacrev(lambda x: m(x).sum())(x),
], ids=["vmap of grad", "jacrev"])  # fmt: skip
def test_a_forward_pass_that_takes_gradients_itself_is_right(inner):
    """By any method, in the worst case the loop."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), torch.randn(5, 3)

    def penalty(m, x):
        return inner(m, x.clone().requires_grad_()).square().sum(1)

    assert_agrees(model, penalty, x, looped=None)


def filled(x):
    whole = torch.ones(len(x), 6)
    whole[:, 1:3] = x
    return whole


def test_examples_may_be_written_into_what_was_a_constant():
    model, x = cases.With(lambda m, x: F.cosine_similarity(filled(x), m.row, dim=-1), row=(6,)), torch.randn(5, 2)
    assert_agrees(model, lambda m, x: m(x), x)


def test_an_input_of_a_linear_map_that_is_written_to_afterwards_is_noticed():
    def forward(m, x):
        h = torch.tanh(x)
        y = m.a(h)
        h.mul_(2)
        return y

    with pytest.raises(UntraceableError, match="written to after"):
        record(cases.With(forward, a=nn.Linear(6, 4)), cases.energy, (torch.randn(4, 6),))


def test_draws_from_global_generators_are_noticed():
    def loss(m, x):
        return (m(x) * random.random()).sum(1)

    with pytest.raises(UntraceableError, match="generator that examples would share"):
        record(nn.Linear(3, 2), loss, torch.randn(4, 3))
    assert cover(nn.Linear(3, 2), loss, torch.ones(4, 3)).norms.unique().numel() == 4


def test_recorded_factors_do_not_change_afterwards():
    """Twice a parameter is multiplied in place between two uses that do not save it: each use has its own factor."""
    model, x = nn.Linear(3, 2).double(), torch.randn(4, 3, dtype=torch.float64)

    def loss(m, x):
        weight, bias = 2 * m.weight, 2 * m.bias
        first = F.linear(x, weight, bias)
        bias.mul_(3)
        return (first + F.linear(x, weight, bias)).sum(1)

    covered = cover(model, loss, x)
    assert_equal_up_to_rounding(covered.gradients["weight"], 4 * x[:, None, :].expand(4, 2, 3))
    assert_equal_up_to_rounding(covered.gradients["bias"], torch.full((4, 2), 8.0, dtype=torch.float64))


class Checkpointed(nn.Linear):
    def __init__(self, checkpointed):
        super().__init__(3, 3)
        self.checkpointed = checkpointed
        self.register_buffer("calls", torch.zeros(1))

    def part(self, x):
        self.calls += 1
        self.seen = x
        return torch.tanh(F.linear(F.dropout(x, 0.5), self.weight)) * torch.rand(3)

    def forward(self, x):
        h = checkpoint(self.part, x, use_reentrant=False) if self.checkpointed else self.part(x)
        return h * torch.rand(3)


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_checkpointed_parts_are_recomputed_with_the_same_numbers_and_leave_nothing_behind(method):
    torch.manual_seed(0)
    plain, x = Checkpointed(False), torch.randn(4, 3)
    model = Checkpointed(True)
    model.load_state_dict(plain.state_dict())
    found, expected = (cover(m, lambda m, x: m(x).square().sum(1), x, method, seeds=lambda: 7) for m in (model, plain))
    assert found.looped == expected.looped == (4 if method == "loop" else 0)
    assert oracle.relative_error_per_example(found.gradients, expected.gradients) <= 1e-6
    assert not model.calls
    assert not hasattr(model, "seen")


class Product(torch.autograd.Function):
    """A user-defined autograd function that receives a parameter without an intercepted torch call."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight):
        return x @ weight.t()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight, grad.t() @ x


def past_all_modes(m, x):
    with torch._C.DisableTorchFunction():
        return x @ m.weight.t() + m(x)


def limited(grad):
    """A non-linear change of a gradient, which must not receive a sum of gradients."""
    return grad.clamp(-0.1, 0.1)


Limited = identity_with_backward(limited)


def hooked(m, x):
    made = 2 * m.weight
    made.register_hook(limited)
    return F.linear(x, made)


def hooked_at_its_node(m, x):
    made = 2 * m.weight
    made.grad_fn.register_prehook(lambda grads: (limited(grads[0]),))
    return F.linear(x, made)


@library.custom_op("user_operators::copied", mutates_args=())
def copied(x: torch.Tensor) -> torch.Tensor:
    """A custom operator whose backward pass limits a gradient."""
    return x.clone()


copied.register_autograd(lambda ctx, grad: limited(grad))


LOOPED = {
    "a custom operator": lambda m, x: F.linear(x, copied(m.weight)),
    "a use in a function": lambda m, x: Product.apply(x, m.weight) + m(x),
    "a use that no mode sees": past_all_modes,
    "a function of a parameter": lambda m, x: F.linear(x, Limited.apply(m.weight)),
    "a function of a derived weight": lambda m, x: F.linear(x, Limited.apply(2 * m.weight)),
    "a hook": hooked,
    "a hook at a node": hooked_at_its_node,
}


@pytest.mark.parametrize("name", LOOPED)
def test_code_that_a_pass_cannot_follow_sees_one_examples_gradient(name):
    assert_agrees(nn.Linear(3, 2), lambda m, x: LOOPED[name](m, x).square().sum(1), torch.randn(4, 3), looped=4)


@pytest.mark.parametrize("method", ["auto", "loop"])
def test_a_tensor_that_was_made_of_parameters_before_is_refused(method):
    """The first example's backward pass would free the graph that all others need."""
    model = nn.Linear(3, 2)
    early = 2 * model.weight
    assert not cover(model, lambda m, x: F.linear(x, early).sum(1), torch.randn(4, 3), method, skip_errors=True).norms.any()
    with pytest.raises(UnsupportedModelError, match="computed from parameters before"):
        cover(model, lambda m, x: F.linear(x, early).sum(1), torch.randn(4, 3), method)


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_casts_of_an_autocast_around_all_passes_are_made_in_each(method):
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    with torch.autocast("cpu", torch.bfloat16):
        model(x)
        first, second = (cover(model, lambda m, x: m(x).float().square().sum(1), x, method) for _ in range(2))
    assert first.looped == second.looped == (4 if method == "loop" else 0)
    assert torch.equal(first.gradients["weight"], second.gradients["weight"])
