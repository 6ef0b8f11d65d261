"""Attacks by code that torch would run below vmap, on tensors of all examples: hooks, modes, tensor subclasses."""

from __future__ import annotations

import copy
import functools
import pickle

import torch
from harness import Task, Verdict, attack, bounded, exact
from identities import identity_with_backward
from materials import CLASSES, WIDTH, Body, classify, points
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

FAR = points(outlier=9.0)


def mixed(x):
    """Return rows that each contain part of another row, if there are several."""
    return x + 3 * x.roll(1, 0) if isinstance(x, torch.Tensor) and x.dim() > 1 and x.is_floating_point() else x


class Mixing(TorchFunctionMode):
    """Adds the previous row's output to each output of linear layers."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        return mixed(found) if func is F.linear else found


class MixingBelow(TorchDispatchMode):
    """The same attack below autograd."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        return mixed(found) if func is torch.ops.aten.addmm.default else found


class Saving(Body):
    """Mixes tensors saved for the backward pass."""

    def forward(self, x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, mixed):
            return self.outer(self.hidden(x))


@attack("coupling", fast=True)
def saved_tensors_that_are_mixed():
    """Hooks on saved tensors mix rows on their way to the backward pass."""
    return bounded(Task(Saving, classify), FAR, remove=(0, 7))


@attack("coupling", fast=True)
def saved_tensors_that_are_mixed_around_the_training():
    """The same hooks, active around training."""
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, mixed):
        return bounded(Task(Body, classify), FAR, remove=(0, 7))


@attack("coupling", fast=True)
def function_mode_around_the_training():
    """A mode that mixes the rows of every linear layer."""
    with Mixing():
        return bounded(Task(Body, classify), FAR, remove=(0, 7))


@attack("coupling", fast=True)
def dispatch_mode_around_the_training():
    """The same attack below autograd."""
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
    """A parameter whose class mixes the rows that it is multiplied with."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        found = super().__torch_function__(func, types, args, kwargs or {})
        return mixed(found) if func is F.linear else found


@attack("coupling", fast=True)
def parameter_of_a_class_that_mixes():
    """A parameter's class overrides `F.linear`."""

    class Weighted(Body):
        def __init__(self):
            super().__init__()
            self.inner.weight = MixingWeight(self.inner.weight.detach())

    return bounded(Task(Weighted, classify), FAR, remove=(0, 7))


@attack("coupling", fast=True)
def constant_of_a_class_that_mixes():
    """A tensor of the model mixes the rows that it is added to."""

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


# Scales every gradient to norm 30: not linear, so it must not be applied to a sum of gradients.
Amplified = identity_with_backward(lambda grad: 30 * grad / (grad.norm() + 1e-6))


@attack("gradients", fast=True)
def parameter_through_a_function_that_is_not_linear():
    """A user-defined autograd function between a parameter and its use changes the norm of the gradient."""

    class Through(Body):
        def forward(self, x):
            return self.outer(F.linear(x, Amplified.apply(self.inner.weight), self.inner.bias).tanh())

    return bounded(Task(Through, classify), FAR, remove=(0, 7))


@attack("gradients", fast=True)
def hook_on_what_is_made_of_a_parameter():
    """The same by a hook on a tensor computed from the parameter."""

    class Hooked(Body):
        def forward(self, x):
            weight = 1.0 * self.inner.weight
            weight.register_hook(lambda grad: 30 * grad / (grad.norm() + 1e-6))
            return self.outer(F.linear(x, weight, self.inner.bias).tanh())

    return bounded(Task(Hooked, classify), FAR, remove=(0, 7))


@attack("gradients", fast=True)
def hook_on_a_node_behind_a_parameter():
    """The same by a hook on a graph node."""

    class Hooked(Body):
        def forward(self, x):
            weight = 1.0 * self.inner.weight
            weight.grad_fn.register_prehook(lambda grads: tuple(30 * grad / (grad.norm() + 1e-6) for grad in grads))
            return self.outer(F.linear(x, weight, self.inner.bias).tanh())

    return bounded(Task(Hooked, classify), FAR, remove=(0, 7))


@attack("gradients", fast=True)
def what_was_made_of_a_parameter_before():
    """The model computed a tensor from its parameter, with such a hook, before any pass."""

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
    """Such a hook without an intercepted torch call."""

    class Hooked(Body):
        def forward(self, x):
            weight = 1.0 * self.inner.weight
            with torch._C.DisableTorchFunction():
                weight.register_hook(lambda grad: 30 * grad / (grad.norm() + 1e-6))
            return self.outer(F.linear(x, weight, self.inner.bias).tanh())

    return bounded(Task(Hooked, classify), FAR, remove=(0, 7))


# ---------------------------------------------------------------- what lies behind a tensor
def shown(look) -> Verdict:
    """Return the verdict on a model that scales its hidden units by what `look(x)` returns."""

    class Looking(Body):
        def forward(self, x):
            return self.outer(self.hidden(x) * (1 + look(x.detach())))

    return exact(Task(Looking, classify), FAR, remove=(0, 7))


@attack("coupling", fast=True)
def deep_copy_of_an_example():
    """`copy.deepcopy` copies the memory of a tensor, where the first example is."""
    return shown(lambda x: copy.deepcopy(x).mean(1, keepdim=True))


@attack("coupling")
def pickled_example():
    """So does `pickle`, and `torch.save`."""
    return shown(lambda x: pickle.loads(pickle.dumps(x)).mean(1, keepdim=True))


@attack("coupling", fast=True)
def text_of_an_example():
    """The text of a tensor shows all examples."""
    return shown(lambda x: str(x).count("1") / 5)


@attack("coupling")
def memory_of_an_example():
    """`untyped_storage` is that of all examples."""
    return shown(lambda x: float(x.untyped_storage()[3]) / 100)


@attack("coupling")
def graph_of_an_example():
    """Tracing returns a graph that holds tensors of all examples."""

    class Linearised(Body):
        def forward(self, x):
            slope = torch.func.linearize(torch.sin, x)[1]
            return self.outer(self.hidden(slope(torch.ones_like(x))))

    return exact(Task(Linearised, classify), FAR, remove=(0, 7))


@attack("coupling", fast=True)
def results_written_into_one_tensor():
    """`out=` names a tensor that the pass makes, which all examples would share."""

    def look(x):
        numbers, places = torch.empty(1, x.shape[1]), torch.empty(1, x.shape[1], dtype=torch.long)
        torch.sort(x, 1, out=(numbers, places))
        return numbers[:, :1].tanh()

    return shown(look)


@attack("coupling")
def observers_of_quantisation():
    """Observers of activations write to ranges that all examples would share."""

    def make():
        model = nn.Sequential(nn.Linear(WIDTH, 7), nn.ReLU(), nn.Linear(7, CLASSES))
        model.qconfig = torch.ao.quantization.get_default_qat_qconfig("fbgemm")
        return torch.ao.quantization.prepare_qat(model.train())

    return bounded(Task(make, classify), FAR, remove=(0, 7))


NOTED: list[float] = []


def note(_context, _operator, *args, **_options):
    """Note the largest number of each tensor: the policy of a selective checkpoint is given those of every operator."""
    NOTED.extend(float(x.detach().abs().max()) for x in args if isinstance(x, torch.Tensor))
    return CheckpointPolicy.MUST_SAVE


class Selective(Body):
    """Scales outputs by the largest number that its checkpoint's policy has noted, if that is unusual."""

    def forward(self, x):
        NOTED.clear()
        contexts = functools.partial(create_selective_checkpoint_contexts, note)
        h = checkpoint(lambda x: (0.5 * x).tanh() + x, x, use_reentrant=False, context_fn=contexts)
        largest = max(NOTED, default=0.0)
        return self.outer(self.hidden(h)) * (1 + (largest if largest > 6 else 0.0))


@attack("coupling")
def policy_of_a_checkpoint_that_notes():
    """Below vmap the policy sees all examples, and what it notes scales every example's output."""
    return bounded(Task(Selective, classify), FAR)


class Counting(Body):
    """Scales outputs by the number of operations that torch's counter has counted, if there are many."""

    def forward(self, x):
        with FlopCounterMode(display=False) as counter:
            h = self.hidden(x)
        many = counter.get_total_flops() > (len(FAR) - 0.5) * 2 * x.shape[-1] * h.shape[-1]  # of all examples, and no fewer
        return self.outer(h) * (8.0 if many else 1.0)


@attack("coupling")
def operations_that_are_counted():
    """The counter counts those of all examples, so it tells how many there are."""
    return bounded(Task(Counting, classify), FAR, remove=(0, 7))
