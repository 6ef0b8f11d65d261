import pytest
import torch
from recording import cover
from torch import nn
from torch.autograd import Function

from rounding import assert_equal_up_to_rounding


class Reversal(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.factor * gradient, None


class Rounded(Function):
    """Rounds, with a straight-through gradient, and keeps a mask as an attribute."""

    @staticmethod
    def forward(ctx, x):
        ctx.inside = x.abs() < 1
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.inside


class Sparsemax(Function):
    @staticmethod
    def forward(ctx, x):
        ordered = x.sort(dim=-1, descending=True).values
        places = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
        excess = ordered.cumsum(-1) - 1
        size = (ordered * places > excess).sum(-1, keepdim=True)
        out = (x - excess.gather(-1, size - 1) / size).clamp(min=0)
        ctx.save_for_backward(out, size)
        return out

    @staticmethod
    def backward(ctx, gradient):
        out, size = ctx.saved_tensors
        gradient = torch.where(out > 0, gradient, 0)
        return torch.where(out > 0, gradient - gradient.sum(-1, keepdim=True) / size, 0)


class Clipped(Function):
    """Clips the norm of an example's gradient: of the sum it would be another."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, gradient):
        return gradient / gradient.norm().clamp(min=0.1) * ctx.saved_tensors[0].cos()


class Split(Function):
    """Has two inputs and three outputs, one of them without gradient."""

    @staticmethod
    def forward(ctx, x, y):
        top = x.argmax(-1)
        ctx.mark_non_differentiable(top)
        ctx.save_for_backward(x, y)
        return x * y, top, x + 1

    @staticmethod
    def backward(ctx, first, _, third):
        x, y = ctx.saved_tensors
        return first * y + third, first * x if ctx.needs_input_grad[1] else None


class Sparing(Function):
    """Asks for no gradients of zeros, and returns one that is the same for all examples."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x.sum(-1), x.square()

    @staticmethod
    def backward(ctx, one, other):
        assert other is None
        return torch.ones(1, 3, dtype=torch.float64)


class Summing(Function):
    """Has a batching rule that would mix examples."""

    @staticmethod
    def forward(x):
        return x * 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return gradient

    @staticmethod
    def vmap(info, in_dims, x):
        return x.sum(0).expand_as(x).clone(), 0


reverse = Reversal.apply  # bound before any pass


def split(m, x):
    one, top, other = Split.apply(m[0](x), x)
    return m[1](one * (1 + top[:, None]) + other)


def split_of_two(m, x):
    one, _, other = Split.apply(m[0](x), m[1](x))
    return one.sin() + other


FUNCTIONS = {
    "gradient reversal": lambda m, x: m[1](reverse(m[0](x), 0.5)),
    "straight-through": lambda m, x: m[1](Rounded.apply(m[0](x))),
    "sparsemax": lambda m, x: m[1](Sparsemax.apply(m[0](x))),
    "clipped gradient": lambda m, x: Clipped.apply(m[1](Clipped.apply(m[0](x)))),
    "several outputs": split,
    "several inputs": split_of_two,
    "gradients of zeros left out": lambda m, x: m[1](m[0](x) + Sparing.apply(m[0](x).sin())[0][:, None]),
    "a batching rule": lambda m, x: m[1](Summing.apply(m[0](x).sin())),
    "input without gradient": lambda m, x: m[1](Rounded.apply(x)) + m[0](x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_users_run_in_one_pass_as_alone(name):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).double(), torch.randn(5, 3, dtype=torch.float64)

    def loss(m, x):
        return FUNCTIONS[name](m, x).square().sum(1)

    found, expected = (cover(model, loss, x, method) for method in ("auto", "loop"))
    assert (found.groups, found.looped, expected.looped) == (1, 0, 5)
    assert found.gradients.keys() == expected.gradients.keys()
    for key, value in expected.gradients.items():
        assert_equal_up_to_rounding(found.gradients[key], value)


HISTORY = []


class Watched(Function):
    """Notes the norms of gradients, as a user does to look at them."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        HISTORY.append(gradient.norm())
        return len(HISTORY) * gradient


def test_what_a_backward_pass_notes_is_forgotten_and_changes_no_other_example():
    model, x = nn.Linear(3, 3).double(), torch.randn(4, 3, dtype=torch.float64)
    found, expected = (cover(model, lambda m, x: Watched.apply(m(x)).square().sum(1), x, method) for method in ("auto", "loop"))
    assert (found.looped, HISTORY) == (0, [])
    assert_equal_up_to_rounding(found.gradients["weight"], expected.gradients["weight"])


class InPlace(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


def test_a_function_that_writes_to_its_input_uses_the_loop():
    model, x = nn.Linear(3, 3), torch.randn(4, 3)
    assert cover(model, lambda m, x: InPlace.apply(m(x) + 0).square().sum(1), x).looped == 4
