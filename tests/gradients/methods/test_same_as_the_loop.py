"""Programs for which torch's batching rules, or what batched tensors say of themselves, differ from those of one example."""

import pytest
import torch
from recording import assert_same_as_the_loop
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.table = nn.Linear(3, 4), nn.Linear(4, 4), nn.Embedding(6, 4)


def _index_fill(m, x):
    h = m.first(x)
    return m.second(torch.arange(4.0).expand(len(x), 4).clone().index_fill(1, torch.tensor([2]), h.sum())) + h


def _padded(m, x):
    h = m.first(x)
    tokens = 1 + 4 * (x > 0).long()  # 1 or the index of padding
    return F.embedding(tokens, m.table.weight * h.sum(), padding_idx=5).sum(1)


def _terms(m, x):
    h = m.first(x)
    return sum(term for term in (h, m.second(h), x.sum(1, keepdim=True)) if term.requires_grad)


def _leaf(m, x):
    h = m.first(x)
    return h * (2.0 if h.is_leaf else 1.0) + (0.0 if x.is_leaf else 1.0) * h.square()


def _node(m, x):
    h = m.first(x)
    return h.square() if h.grad_fn is None else h


def _adversarial(m, x):
    z = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(m.first(z).square().sum(), z, allow_unused=True)
    return m.second(m.first(x + 0.1 * grad.sign()))


def _adapted(m, x):
    lost = m.first(x).square().sum()
    grads = torch.autograd.grad(lost, list(m.first.parameters()), create_graph=True, allow_unused=True)
    weight, bias = (p - 0.1 * g for p, g in zip(m.first.parameters(), grads, strict=True))
    return m.second(F.linear(x, weight, bias))


def _jacobian(m, x):
    h = m.first(x)
    return m.second(h) * torch.autograd.functional.jacobian(lambda z: z.square().sum(), h, create_graph=True).sum()


def _scattered(m, x):
    h = m.first(x)
    return torch.select_scatter(m.second(h), h[:, 0] * h[:, 1], 1, 2)


def _strided(m, x):
    h = m.first(x).clone()
    h.as_strided_((1, 2), (4, 2))
    return h


def _several_outputs(m, x):
    weight, bias = torch._foreach_mul([m.first.weight, m.first.bias], 2.0)
    return F.linear(x, weight, bias)


PROGRAMS = {
    "index_fill": _index_fill, "padded table per example": _padded, "reads requires_grad": _terms, "reads is_leaf": _leaf,
    "reads grad_fn": _node, "adversarial": _adversarial, "adapted parameters": _adapted, "jacobian": _jacobian,
    "select_scatter": _scattered, "as_strided_": _strided, "several outputs of parameters": _several_outputs,
}  # fmt: skip


@pytest.mark.parametrize("name", [*PROGRAMS, "hook of a module in a list"])
def test_a_pass_computes_what_the_loop_computes(name):
    torch.manual_seed(3)
    model, x = Net(), torch.randn(4, 3)
    program = PROGRAMS.get(name)
    if program is None:
        model.held = [nn.Tanh()]
        model.held[0].register_full_backward_hook(lambda module, into, out: (into[0].clamp(-0.01, 0.01),))
        program = lambda m, x: m.second(m.held[0](m.first(x)))  # noqa: E731

    def loss(m, batch):
        return program(m, batch).square().flatten(1).sum(1)

    try:
        assert_same_as_the_loop(model, loss, x)
    except RuntimeError as error:
        pytest.fail(f"only the loop computes it: {error}")
