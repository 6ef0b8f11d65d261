"""Attacks by differences in precision between norms and sums, and by values at the ends of the range."""

import torch
from harness import Task, Verdict, attack, bounded, forward_pass, train, two_layers
from materials import CLASSES, WIDTH, classify, perceptron, points, without
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset


def line():
    """Return a linear model without bias, all weights one."""
    model = nn.Linear(6, 1, bias=False)
    nn.init.ones_(model.weight)
    return model


def product(model, batch):
    """An example's gradient is the example itself, times its factor."""
    return model(batch[0])[:, 0] * batch[1]


def lines(first: float, factor: float = 1.0) -> TensorDataset:
    """Return eight examples of which the first has equal numbers."""
    x, factors = torch.randn(8, 6, generator=torch.Generator().manual_seed(2)), torch.ones(8)
    x[0], factors[0] = first, factor
    return TensorDataset(x, factors)


def autocast(dtype: torch.dtype):
    """Return a loss that computes under autocast."""

    def computed(model, batch):
        with torch.autocast("cpu", dtype=dtype):
            return classify(model, batch).float()

    return computed


@two_layers("precision", points(outlier=20.0), remove=(0, 3), loss=autocast(torch.bfloat16))
def bfloat16_with_a_cancelling_sum(self, x):
    """Hidden units nearly cancel: their difference is pure rounding, different in every precision."""
    return self.outer(300 * ((self.inner(x) + 200) - 200))


@two_layers("precision", points(outlier=500.0), remove=(0, 3), loss=autocast(torch.float16))
def half_precision_that_overflows(self, x):
    """Squares of hidden units leave the range of fp16, and gradients are infinite."""
    return self.outer(self.inner(x).square() * 50)


@attack("precision")
def model_in_bfloat16():
    """The parameters themselves have eight bits."""
    data = points(outlier=20.0)
    data = TensorDataset(data.tensors[0].bfloat16(), data.tensors[1])
    make = lambda: perceptron().bfloat16()
    loss = lambda model, batch: classify(model, batch).float()

    # Changes of such parameters are rounded to eight bits: compare the release that the optimizer receives instead.
    def take(training):
        released = []
        training.optimizer.register_step_pre_hook(
            lambda *_: released.extend(p.grad.detach().double() * training.plan.divisor for p in training.model.parameters())
        )
        training.run()
        found.append(torch.cat([tensor.flatten() for tensor in released]))

    found: list[torch.Tensor] = []
    task = Task(make, loss, take=take)
    for which in (data, without(data, 0)):
        outcome = train(task, which)
        if outcome.change is None:
            return Verdict(outcome.refusal is not None, f"refused: {outcome.refusal or outcome.stop}")
    moved = float((found[0] - found[1]).norm())
    # Each of the two releases is rounded to eight bits, a relative error of 2⁻⁸.
    slack = 2**-8 * float(found[0].norm() + found[1].norm())
    return Verdict(moved <= 1 + slack, f"moved {moved:.4g} with {slack:.2g} for rounding", moved)


@forward_pass("precision", points(outlier=20.0), remove=(0, 3), inner=lambda: nn.Linear(WIDTH, 7).double())
def parameters_of_two_precisions(self, x):
    """One layer in float64 and one in float32."""
    return self.out(self.inner(x.double()).tanh().float())


@attack("precision", lambda take: bounded(Task(perceptron, classify, take=take), points(outlier=20.0), remove=(0, 3)))
def autocast_around_the_loop(training):
    """The user's loop runs under autocast, which would also apply to Privet's computations."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        training.run()


@attack("precision")
def gradient_whose_square_overflows():
    """A gradient of 10²⁵, whose square overflows float32."""
    return bounded(Task(line, product), lines(1e25), remove=(0, 1))


@attack("precision")
def infinite_loss_with_finite_gradients():
    """The loss overflows, its gradient does not."""
    loss = lambda model, batch: product(model, batch) + torch.where(batch[1] > 1, torch.inf, 0.0)
    return bounded(Task(line, loss), lines(1.0, 2.0), remove=(0, 1))


@attack("precision")
def many_small_and_one_large_gradient():
    """A sum over long sequences in float32, where a norm by factors could cancel."""
    source = torch.Generator().manual_seed(1)
    x = torch.randn(6, 64, WIDTH, generator=source)
    x[0, 32:] = -x[0, :32]  # its gradients nearly cancel over time
    x[0] *= 1e4

    make = lambda: nn.Linear(WIDTH, CLASSES)
    loss = lambda model, batch: F.cross_entropy(model(batch[0]).sum(1) * 1e-3, batch[1], reduction="none")
    return bounded(Task(make, loss), TensorDataset(x, torch.tensor([0, 1, 2, 3, 0, 1])), remove=(0, 1))
