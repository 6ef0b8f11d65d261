"""Attacks by unclipped gradients, in `.grad` of tensors other than the followed parameters."""

import torch
from harness import Outcome, Task, Verdict, attack, bounded, train
from materials import CLASSES, Body, classify, perceptron, points
from torch import nn
from torch.nn import functional as F

DATA = points(outlier=5.0)


def untouched(task: Task, **foreign: torch.Tensor) -> Verdict:
    """Return the verdict on a program with tensors outside the model: they must not change or hold raw gradients.

    It passes if it is refused before the first step, or if they are unchanged and the program is bounded.
    """
    values = {name: tensor.detach().clone() for name, tensor in foreign.items()}
    outcome: Outcome = train(task, DATA)
    holding = [name for name, tensor in foreign.items() if tensor.grad is not None and bool(tensor.grad.abs().sum() > 0)]
    changed = [name for name, tensor in foreign.items() if not torch.equal(tensor.detach(), values[name])]
    if outcome.stop is not None:
        return Verdict(False, f"stopped in the middle: {outcome.stop[:120]}")
    if holding or changed:
        return Verdict(False, f"raw gradient in {', '.join(holding)}; changed {', '.join(changed)}")
    return bounded(task, DATA, remove=(0, 3))


@attack("gradients")
def centres_in_a_closure():
    """A center loss: each class's centre is a parameter of the loss alone."""
    centres = nn.Parameter(torch.zeros(CLASSES, CLASSES))
    loss = lambda model, batch: classify(model, batch) + (model(batch[0]) - centres[batch[1]]).square().sum(1)
    return untouched(Task(perceptron, loss), centres=centres)


@attack("gradients")
def criterion_with_parameters():
    """The criterion is a module with a weight for every class."""

    class Criterion(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(CLASSES))

        def forward(self, model, batch):
            return F.cross_entropy(model(batch[0]) * self.scale, batch[1], reduction="none")

    criterion = Criterion()
    return untouched(Task(perceptron, criterion), scale=criterion.scale)


@attack("gradients")
def teacher_that_is_not_frozen():
    """Distillation from an external model, without `no_grad`: autograd goes through it."""
    torch.manual_seed(1)
    teacher = perceptron()

    def loss(model, batch):
        return F.mse_loss(model(batch[0]), teacher(batch[0]), reduction="none").sum(1)

    return untouched(Task(perceptron, loss), **{f"teacher {name}": p for name, p in enumerate(teacher.parameters())})


@attack("gradients")
def second_model_with_an_optimizer_of_its_own():
    """The loss trains an external adversary on raw gradients in every pass."""
    torch.manual_seed(1)
    adversary = nn.Linear(CLASSES, 1)
    optimizer = torch.optim.SGD(adversary.parameters(), lr=0.5)

    def loss(model, batch):
        wrong = adversary(model(batch[0]).detach()).square().mean()
        optimizer.zero_grad()
        wrong.backward()
        optimizer.step()
        return classify(model, batch)

    return untouched(Task(perceptron, loss), weight=adversary.weight, bias=adversary.bias)


@attack("gradients", lambda loss: bounded(Task(perceptron, loss), DATA, remove=(0, 3)))
def loss_that_calls_backward(model, batch):
    """The loss calls `backward()` itself: raw gradients accumulate in the parameters."""
    losses = classify(model, batch)
    losses.sum().backward(retain_graph=True)
    return losses


@attack("gradients")
def buffer_that_asks_for_gradients():
    """A buffer requires a gradient."""
    scale = torch.ones(7, requires_grad=True)

    class Scaled(Body):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", scale)

        def forward(self, x):
            return self.outer(self.hidden(x) * self.scale)

    return untouched(Task(Scaled, classify), scale=scale)


@attack("gradients", lambda before: bounded(Task(perceptron, classify, before=before), DATA, remove=(0, 3)))
def gradients_of_the_model_before_the_first_step(model):
    """`.grad` holds an earlier gradient, which must not be released with the first step."""
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 100.0)
