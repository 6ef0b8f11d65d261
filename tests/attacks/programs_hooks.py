"""Attacks by hooks and other external access to the model: they write, mix or scale values without noise."""

from __future__ import annotations

import torch
from harness import Task, Verdict, attack, bounded, compared, train
from materials import Body, classify, perceptron, points, without

FAR = points(outlier=9.0)


# ---------------------------------------------------------------- hooks
@attack("state", fast=True)
def forward_hook_that_keeps():
    """A forward hook stores the output of a layer on it."""

    def make():
        model = Body()
        model.inner.register_forward_hook(lambda module, inputs, output: setattr(module, "output", output.detach().sum(0)))
        return model

    return bounded(Task(make, classify), FAR)


@attack("state")
def pre_hook_that_centres():
    """A hook before a layer subtracts the mean of the batch."""

    def make():
        model = Body()
        model.inner.register_forward_pre_hook(lambda module, inputs: (inputs[0] - inputs[0].mean(0),))
        return model

    return bounded(Task(make, classify), FAR)


@attack("state")
def hook_on_the_gradient_of_a_parameter():
    """A parameter's hook keeps the raw gradient and writes to a buffer."""

    def make():
        model = Body()
        model.register_buffer("raw", torch.zeros(7))

        def keep(gradient):
            model.raw.add_(gradient.reshape(-1, 7).sum(0))

        model.inner.bias.register_hook(keep)
        return model

    return bounded(Task(make, classify), FAR)


@attack("state")
def hook_after_accumulation():
    """`register_post_accumulate_grad_hook` takes a step with the raw `.grad`."""

    def make():
        model = Body()

        def step(parameter):
            parameter.data.sub_(parameter.grad)

        model.outer.weight.register_post_accumulate_grad_hook(step)
        return model

    return bounded(Task(make, classify, public_change=True), FAR)


@attack("state")
def backward_hook_that_mixes():
    """A full backward hook gives every row the mean gradient of the batch."""

    def make():
        model = Body()
        model.outer.register_full_backward_hook(lambda module, ins, outs: (ins[0].mean(0, keepdim=True).expand_as(ins[0]),))
        return model

    return bounded(Task(make, classify), FAR)


@attack("state")
def backward_hook_that_keeps():
    """A full backward hook stores the gradient of the outputs on the module."""

    def make():
        model = Body()

        def hook(module, ins, outs):
            module.raw = outs[0].detach().sum(0)

        model.outer.register_full_backward_hook(hook)
        return model

    return bounded(Task(make, classify), FAR)


@attack("state")
def loss_that_writes_to_the_model():
    """The loss stores statistics on the model."""

    def loss(model, batch):
        losses = classify(model, batch)
        model.total = getattr(model, "total", 0.0) + float(losses.detach().sum())
        return losses

    return bounded(Task(perceptron, loss), FAR)


def prepared(make_optimizer) -> Verdict:
    """Return the verdict on an optimizer that received the raw gradients of its data set before the first step.

    Args:
        make_optimizer: (parameters, their raw gradients) → optimizer.
    """

    def task(data):
        def optimizer(parameters):
            model = Body()
            with torch.no_grad():
                for own, given in zip(model.parameters(), parameters, strict=True):
                    own.copy_(given)
            loss = classify(model, data.tensors).sum()
            return make_optimizer(parameters, torch.autograd.grad(loss, list(model.parameters())))

        return Task(Body, classify, optimizer=optimizer)

    ends = [train(task(data), data) for data in (FAR, without(FAR, 0))]
    return compared(task(FAR), None, None, ends=ends)


@attack("state", fast=True)
def momentum_from_raw_gradients():
    """SGD's momentum is set to the sum of raw gradients: the first step would apply it."""

    def make(parameters, gradients):
        optimizer = torch.optim.SGD(parameters, lr=1.0, momentum=0.9)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            optimizer.state[parameter]["momentum_buffer"] = gradient.clone()
        return optimizer

    return prepared(make)
