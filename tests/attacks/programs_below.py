"""Programs whose code torch would run below vmap, where tensors hold all examples: hooks, modes, classes of tensors."""

from __future__ import annotations

import torch
from harness import Task, attack, bounded
from materials import Body, classify, points
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

FAR = points(outlier=9.0)


def mixed(x):
    """Rows that hold something of each other, where there are several."""
    return x + 3 * x.roll(1, 0) if isinstance(x, torch.Tensor) and x.dim() > 1 and x.is_floating_point() else x


class Mixing(TorchFunctionMode):
    """Adds to the outputs of linear layers those of the row before."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        return mixed(found) if func is F.linear else found


class MixingBelow(TorchDispatchMode):
    """The same below autograd."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        return mixed(found) if func is torch.ops.aten.addmm.default else found


class Saving(Body):
    """What is kept for the backward pass is mixed."""

    def forward(self, x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, mixed):
            return self.outer(self.hidden(x))


@attack("coupling", fast=True)
def saved_tensors_that_are_mixed():
    """Hooks on saved tensors mix rows on their way to the backward pass."""
    return bounded(Task(Saving, classify), FAR, remove=(0, 7))


@attack("coupling", fast=True)
def saved_tensors_that_are_mixed_around_the_training():
    """The same hooks in force from outside."""
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, mixed):
        return bounded(Task(Body, classify), FAR, remove=(0, 7))


@attack("coupling", fast=True)
def function_mode_around_the_training():
    """A mode that mixes the rows of every linear layer."""
    with Mixing():
        return bounded(Task(Body, classify), FAR, remove=(0, 7))


@attack("coupling", fast=True)
def dispatch_mode_around_the_training():
    """The same below autograd."""
    with MixingBelow():
        return bounded(Task(Body, classify), FAR, remove=(0, 7))


@attack("coupling", fast=True)
def dispatch_mode_in_the_model():
    """The same mode, entered by the model."""

    class Dispatching(Body):
        def forward(self, x):
            with MixingBelow():
                return super().forward(x)

    return bounded(Task(Dispatching, classify), FAR, remove=(0, 7))


class MixingWeight(nn.Parameter):
    """A parameter whose class mixes the rows of what it is multiplied with."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        found = super().__torch_function__(func, types, args, kwargs or {})
        return mixed(found) if func is F.linear else found


@attack("coupling", fast=True)
def parameter_of_a_class_that_mixes():
    """A parameter's own class decides what `F.linear` is."""

    class Weighted(Body):
        def __init__(self):
            super().__init__()
            self.inner.weight = MixingWeight(self.inner.weight.detach())

    return bounded(Task(Weighted, classify), FAR, remove=(0, 7))


@attack("coupling", fast=True)
def constant_of_a_class_that_mixes():
    """A tensor that the model holds mixes the rows of what it is added to."""

    class Added(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            plain = [x.as_subclass(torch.Tensor) if isinstance(x, Added) else x for x in args]
            return mixed(func(*plain, **(kwargs or {})))

    class Shifted(Body):
        def __init__(self):
            super().__init__()
            self.shift = torch.zeros(1).as_subclass(Added)

        def forward(self, x):
            return self.outer((self.hidden(x) * self.inner.bias.sum()) + self.shift)

    return bounded(Task(Shifted, classify), FAR, remove=(0, 7))


class Amplified(torch.autograd.Function):
    """Gives every gradient a length of 30: not linear, so that a sum's is not the sum of those of its terms."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return 30 * grad / (grad.norm() + 1e-6)


@attack("gradients", fast=True)
def parameter_through_a_function_that_is_not_linear():
    """A user's autograd function between a parameter and its use changes the length of what comes back."""

    class Through(Body):
        def forward(self, x):
            return self.outer(F.linear(x, Amplified.apply(self.inner.weight), self.inner.bias).tanh())

    return bounded(Task(Through, classify), FAR, remove=(0, 7))


@attack("gradients", fast=True)
def hook_on_what_is_made_of_a_parameter():
    """The same by a hook on a tensor that is computed from the parameter."""

    class Hooked(Body):
        def forward(self, x):
            weight = 1.0 * self.inner.weight
            weight.register_hook(lambda grad: 30 * grad / (grad.norm() + 1e-6))
            return self.outer(F.linear(x, weight, self.inner.bias).tanh())

    return bounded(Task(Hooked, classify), FAR, remove=(0, 7))


@attack("gradients", fast=True)
def hook_on_a_node_behind_a_parameter():
    """The same by a hook on a node of the graph."""

    class Hooked(Body):
        def forward(self, x):
            weight = 1.0 * self.inner.weight
            weight.grad_fn.register_prehook(lambda grads: tuple(30 * grad / (grad.norm() + 1e-6) for grad in grads))
            return self.outer(F.linear(x, weight, self.inner.bias).tanh())

    return bounded(Task(Hooked, classify), FAR, remove=(0, 7))


@attack("gradients", fast=True)
def what_was_made_of_a_parameter_before():
    """The model made a tensor of its parameter, with such a hook, before any pass."""

    class Early(Body):
        def __init__(self):
            super().__init__()
            self.early = 1.0 * self.inner.weight
            self.early.register_hook(lambda grad: 30 * grad / (grad.norm() + 1e-6))

        def forward(self, x):
            return self.outer(F.linear(x, self.early, self.inner.bias).tanh())

    return bounded(Task(Early, classify), FAR, remove=(0, 7))


@attack("gradients", fast=True)
def hook_past_all_modes():
    """Such a hook where no call of torch shows."""

    class Hooked(Body):
        def forward(self, x):
            weight = 1.0 * self.inner.weight
            with torch._C.DisableTorchFunction():
                weight.register_hook(lambda grad: 30 * grad / (grad.norm() + 1e-6))
            return self.outer(F.linear(x, weight, self.inner.bias).tanh())

    return bounded(Task(Hooked, classify), FAR, remove=(0, 7))
