"""Examples whose computation raises: they contribute nothing, and the run continues without revealing it."""

from __future__ import annotations

import torch
from harness import Task, Verdict, attack, train, training_of
from materials import CLASSES, WIDTH, Body, classify, model_of, perceptron, points, sentences
from overhearing import SECRET, is_odd, odd, overheard, passes_over, told
from torch import nn

from privet.errors import PrivetError


class Checking(Body):
    """A model that calls `fail` when it sees the odd number."""

    def __init__(self, fail):
        super().__init__()
        self.fail = fail

    def forward(self, x):
        if is_odd(x):
            self.fail(x)
        return super().forward(x)


def raising(kind, *arguments):
    def fail(x):
        raise kind(*arguments)

    return lambda: Checking(fail)


@attack("exceptions", fast=True)
def assertion_that_inputs_are_finite():
    """The model asserts that its inputs are finite; one is not."""

    class Finite(Body):
        def forward(self, x):
            assert torch.isfinite(x).all(), f"not finite: {x}"
            return super().forward(x)

    data = points()
    data.tensors[0][7, 2] = torch.nan
    return passes_over(Task(Finite, classify), data, 7)


@attack("exceptions", fast=True)
def private_text_in_an_error():
    """The model's own error names the person."""
    return passes_over(Task(raising(ValueError, f"cannot be {SECRET}"), classify), odd(), 7)


@attack("exceptions")
def stop_iteration_in_the_model():
    """StopIteration would silently end a generator."""
    return passes_over(Task(raising(StopIteration), classify), odd(), 7)


@attack("exceptions")
def recursion_without_end():
    """RecursionError: the stack is full when it is caught."""

    def fail(x):
        fail(x)

    return passes_over(Task(lambda: Checking(fail), classify), odd(), 7)


@attack("exceptions")
def word_beyond_the_table():
    """torch itself raises, and names the index."""
    data = sentences()
    data.tensors[0][7, 3] = 88417
    make = lambda: nn.Sequential(nn.Embedding(13, 6), nn.Flatten(), nn.Linear(42, CLASSES))
    return passes_over(Task(make, classify), data, 7)


@attack("exceptions")
def error_in_the_loss():
    """The loss checks a label."""

    def loss(model, batch):
        if (batch[1] == 77).any():
            raise ValueError(f"label {batch[1]} of {SECRET}")
        return classify(model, batch)

    data = points()
    data.tensors[1][7] = 77
    return passes_over(Task(perceptron, loss), data, 7)


@attack("exceptions")
def loss_of_another_shape():
    """For one example the loss has two entries."""

    def loss(model, batch):
        losses = classify(model, batch)
        return torch.cat([losses, losses]) if is_odd(batch[0]) else losses

    return passes_over(Task(perceptron, loss), odd(), 7)


@attack("exceptions")
def error_in_the_backward_pass():
    """A user-defined autograd function raises in its backward pass."""

    class Fussy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            if is_odd(ctx.saved_tensors[0]):
                raise ValueError(SECRET)
            return grad

    def forward(self, x):
        return self.outer(Fussy.apply(x + 0 * self.scale))

    make = lambda: model_of(forward, outer=nn.Linear(WIDTH, CLASSES), scale=nn.Parameter(torch.ones(())))
    return passes_over(Task(make, classify), odd(), 7)


@attack("exceptions")
def state_written_before_the_error():
    """The pass writes to a buffer, a list and the mode, then raises: all must be restored."""

    class Leaving(Body):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", torch.zeros(WIDTH))
            self.seen = []

        def forward(self, x):
            if is_odd(x):
                self.last.copy_(x.detach()[0])
                self.seen.append(SECRET)
                self.inner.eval()
                raise ValueError(SECRET)
            return super().forward(x + self.last)

    return passes_over(Task(Leaving, classify), odd(), 7)


@attack("exceptions")
def gradients_left_switched_off():
    """The pass disables gradients and raises, so that later examples would have none."""

    def fail(x):
        torch.set_grad_enabled(False)
        raise ValueError(SECRET)

    try:
        return passes_over(Task(lambda: Checking(fail), classify), odd(0), 0)
    finally:
        torch.set_grad_enabled(True)


@attack("exceptions")
def context_left_open():
    """The pass enters autocast and raises before it leaves."""

    def fail(x):
        torch.autocast("cpu", dtype=torch.bfloat16).__enter__()
        raise ValueError(SECRET)

    try:
        return passes_over(Task(lambda: Checking(fail), classify), odd(0), 0)
    finally:
        torch.set_autocast_enabled("cpu", False)


@attack("exceptions")
def every_example_raises():
    """A failure on all examples is found before the first step, without revealing their text."""

    def loss(model, batch):
        raise ValueError(f"{SECRET}: {batch[0].flatten()[:3]}")

    with overheard() as heard:
        one = train(Task(perceptron, loss), odd(0))
    message = f"{one.refusal} {one.stop} {heard.getvalue()}"
    return Verdict(one.refusal is not None and "88417." not in message, f"refused: {message[:150]}")


@attack("exceptions")
def programming_error_and_a_private_value():
    """A bug in the loss raises an error with the batch: the refusal must not contain private values."""
    loss = lambda model, batch: model(batch[0]).no_such_method(repr(batch))
    try:
        training_of(Task(perceptron, loss), odd(0))
    except PrivetError as error:
        return Verdict("88417" not in told(error), f"refused: {told(error)[:150]}")
    return Verdict(False, "a loss that cannot be computed was accepted")
