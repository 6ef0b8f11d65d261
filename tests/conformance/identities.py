"""Autograd functions that return their input and change its gradient, as a user's program may define them."""

from collections.abc import Callable

import torch
from torch import Tensor


def identity_with_backward(backward: Callable[[Tensor], Tensor]) -> type[torch.autograd.Function]:
    """Return an autograd function that copies its input; its gradient is `backward` of the output's gradient."""

    class Identity(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x.clone()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, grad):
            return backward(grad)

    return Identity
