"""Reentrant checkpoints need a backward pass that fills `.grad`, whose calls cannot be intercepted: its effects are undone."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from privet.gradients import per_example_norms

pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")


class Halving(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        return x * 1.0

    @staticmethod
    def backward(ctx, grad):
        ctx.weight.data.mul_(0.5)
        return grad, None


class Net(nn.Module):
    def __init__(self, where):
        super().__init__()
        self.first, self.second, self.where = nn.Linear(3, 4), nn.Linear(4, 1), where
        self.second.bias.requires_grad_(False)

    def forward(self, x):
        h = checkpoint(self.first, x.clone().requires_grad_(), use_reentrant=True)
        if self.where == "function":
            h = Halving.apply(h, self.first.weight)
        if self.where == "tensor":
            h.register_hook(lambda grad: (self.first.weight.data.mul_(0.5), self.second.bias.data.add_(1.0), grad)[2])
        return self.second(h.tanh())


def losses(model, batch):
    return model(batch).square().sum(1)


@pytest.mark.parametrize("method", ["auto", "loop"])
def test_hooks_that_wait_for_a_gradient_do_not_run_and_stay(method):
    model, seen = Net("nowhere"), []
    model.first.weight.register_post_accumulate_grad_hook(lambda parameter: pytest.fail("the gradient of an example is seen"))
    per_example_norms(model, losses, torch.randn(3, 3), method=method)
    model.second.weight.register_post_accumulate_grad_hook(lambda parameter: seen.append(parameter.grad.norm()))
    model.first.weight._post_accumulate_grad_hooks.clear()
    losses(model, torch.randn(3, 3)).sum().backward()
    assert len(seen) == 1
