"""Attacks by differences in precision between norms and sums, and by values at the ends of the range."""

from __future__ import annotations

import torch
from harness import Task, Verdict, attack, bounded, exact, train
from materials import CLASSES, WIDTH, Body, classify, perceptron, points, without
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import privet


def line(width: int = 6, dtype: torch.dtype = torch.float32):
    """Return a linear model without bias, all weights one."""

    def make():
        model = nn.Linear(width, 1, bias=False, dtype=dtype)
        nn.init.ones_(model.weight)
        return model

    return make


def product(model, batch):
    """An example's gradient is the example itself, times its factor."""
    return model(batch[0])[:, 0] * batch[1]


def lines(first, factor: float = 1.0, dtype: torch.dtype = torch.float32) -> TensorDataset:
    """Return eight examples of which the first is given."""
    source = torch.Generator().manual_seed(2)
    x = torch.randn(8, 6, generator=source).to(dtype)
    x[0] = torch.as_tensor(first, dtype=dtype)
    factors = torch.ones(8, dtype=dtype)
    factors[0] = factor
    return TensorDataset(x, factors)


def autocast(dtype: torch.dtype, loss=classify):
    """Return a loss that computes under autocast."""

    def computed(model, batch):
        with torch.autocast("cpu", dtype=dtype):
            return loss(model, batch).float()

    return computed


@attack("precision", fast=True)
def rounding_of_bfloat16():
    """Under autocast, inputs are rounded to eight bits: the norm must be that of the rounded values."""
    x = torch.full((6,), 1 + 2**-8 + 2**-10)  # rounds up
    return bounded(Task(line(), autocast(torch.bfloat16, product)), lines(x, 100.0), remove=(0, 1))


@attack("precision")
def bfloat16_with_a_cancelling_sum():
    """Hidden units nearly cancel: their difference is pure rounding, different in every precision."""

    class Cancelling(Body):
        def forward(self, x):
            h = self.inner(x)
            return self.outer(300 * ((h + 200) - 200))

    return bounded(Task(Cancelling, autocast(torch.bfloat16)), points(outlier=20.0), remove=(0, 3))


@attack("precision")
def half_precision_that_overflows():
    """Squares of hidden units leave the range of fp16, and gradients are infinite."""

    class Squaring(Body):
        def forward(self, x):
            return self.outer(self.inner(x).square() * 50)

    return bounded(Task(Squaring, autocast(torch.float16)), points(outlier=500.0), remove=(0, 3))


@attack("precision")
def half_precision_that_underflows():
    """Gradients below the range of fp16 become zero or denormal."""
    loss = lambda model, batch: classify(model, batch) * 1e-7
    return bounded(Task(perceptron, autocast(torch.float16, loss)), points(outlier=20.0), remove=(0, 3))


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


@attack("precision")
def model_in_float64():
    """Everything in double precision."""
    data = points(outlier=20.0)
    data = TensorDataset(data.tensors[0].double(), data.tensors[1])
    return exact(Task(lambda: perceptron().double(), classify), data, remove=(0, 3), tolerance=1e-6)


@attack("precision")
def parameters_of_two_precisions():
    """One layer in float64 and one in float32."""

    class Mixed(Body):
        def __init__(self):
            super().__init__()
            self.inner.double()

        def forward(self, x):
            return self.outer(self.inner(x.double()).tanh().float())

    return exact(Task(Mixed, classify), points(outlier=20.0), remove=(0, 3))


@attack("precision")
def autocast_that_leaves_out_a_block():
    """A part of the model disables autocast."""

    class Partly(Body):
        def forward(self, x):
            h = self.inner(x)
            with torch.autocast("cpu", enabled=False):
                h = h.float().exp()
            return self.outer(h)

    return bounded(Task(Partly, autocast(torch.bfloat16)), points(outlier=3.0), remove=(0, 3))


@attack("precision")
def autocast_within_the_model():
    """The model enters autocast itself."""

    class Inside(Body):
        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return super().forward(x).float()

    return bounded(Task(Inside, classify), points(outlier=20.0), remove=(0, 3))


@attack("precision")
def autocast_around_the_loop():
    """The user's loop runs under autocast, which would also apply to Privet's computations."""

    def take(training):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            training.run()

    return bounded(Task(perceptron, classify, take=take), points(outlier=20.0), remove=(0, 3))


@attack("precision")
def loop_without_gradients():
    """The user's loop runs under `no_grad` or `inference_mode`."""

    def take(training):
        with torch.no_grad():
            training.run()

    return bounded(Task(perceptron, classify, take=take, public_change=True), points(outlier=20.0), remove=(0, 3))


@attack("precision", fast=True)
def gradient_whose_square_overflows():
    """A gradient of 10²⁵, whose square overflows float32."""
    return bounded(Task(line(), product), lines([1e25] * 6), remove=(0, 1))


@attack("precision")
def factors_whose_product_overflows():
    """Input and output gradient are 10²⁵ each: both are finite, but their product is not."""
    return bounded(Task(line(), product), lines([1e25] * 6, 1e25), remove=(0, 1))


@attack("precision")
def gradients_at_the_end_of_float64():
    """10²⁰⁰ and 10⁻²⁰⁰ in double precision."""
    tasks = [(1e200, 1.0), (1e-200, 1.0), (1e200, 1e200), (1e-200, 1e-200)]
    verdicts = [
        bounded(Task(line(dtype=torch.float64), product), lines([value] * 6, factor, torch.float64), remove=(0, 1))
        for value, factor in tasks
    ]
    return min(verdicts, key=lambda verdict: verdict.passed)


@attack("precision")
def tiny_gradients_that_are_normalised():
    """A normalising rule, and a gradient whose square is zero in float32."""
    rule = privet.clipping.Normalize(bound=1.0)
    return bounded(Task(line(), product, clipping=rule), lines([1e-30] * 6), remove=(0, 1))


@attack("precision")
def denormal_gradients_that_are_normalised():
    """The gradient itself is denormal."""
    rule = privet.clipping.Normalize(bound=1.0)
    return bounded(Task(line(), product, clipping=rule), lines([1e-42] * 6), remove=(0, 1))


@attack("precision")
def not_a_number():
    """One example is NaN: it must not corrupt the sum."""
    return bounded(Task(perceptron, classify), points(outlier=float("nan")), remove=(0, 3))


@attack("precision")
def infinity_in_one_place():
    """One input is infinite; other entries of its gradient are NaN."""
    data = points()
    data.tensors[0][0, 1] = torch.inf
    return bounded(Task(perceptron, classify), data, remove=(0, 3))


@attack("precision")
def infinite_loss_with_finite_gradients():
    """The loss overflows, its gradient does not."""
    loss = lambda model, batch: product(model, batch) + torch.where(batch[1] > 1, torch.inf, 0.0)
    return bounded(Task(line(), loss), lines([1.0] * 6, 2.0), remove=(0, 1))


@attack("precision")
def not_a_number_in_one_parameter_only():
    """The square root has no derivative at zero: one parameter's gradient is NaN, the others' are finite."""

    class Root(Body):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x):
            return super().forward(x) + (self.scale.detach() * 0 + (self.scale * x.abs().amin(1, keepdim=True)).sqrt())

    data = points()
    data.tensors[0][0, 1] = 0.0
    return bounded(Task(Root, classify), data, remove=(0, 3))


@attack("precision")
def many_small_and_one_large_gradient():
    """A sum over long sequences in float32, where a norm by factors could cancel."""
    source = torch.Generator().manual_seed(1)
    x = torch.randn(6, 64, WIDTH, generator=source)
    x[0, 32:] = -x[0, :32]  # its gradients nearly cancel over time
    x[0] *= 1e4

    def make():
        return nn.Linear(WIDTH, CLASSES)

    loss = lambda model, batch: F.cross_entropy(model(batch[0]).sum(1) * 1e-3, batch[1], reduction="none")
    return bounded(Task(make, loss), TensorDataset(x, torch.tensor([0, 1, 2, 3, 0, 1])), remove=(0, 1))


@attack("precision")
def gradients_that_cancel_over_time():
    """Gram matrices of a sequence whose gradients cancel to a millionth: the norm must not be underestimated."""
    source = torch.Generator().manual_seed(1)
    half = torch.randn(6, 40, WIDTH, generator=source)
    sign = torch.cat([torch.ones(40), -torch.ones(40)])
    x = torch.cat([half, half * (1 + 1e-6)], 1)
    x[0] *= 1e5
    loss = lambda model, batch: (model(batch[0])[..., 0] * sign).sum(1) * batch[1]
    return bounded(Task(lambda: nn.Linear(WIDTH, 1), loss), TensorDataset(x, torch.full((6,), 1e3)), remove=(0, 1))


@attack("precision")
def complex_parameters():
    """Complex weights, with real and imaginary parts."""

    class Spectral(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(WIDTH // 2 + 1, dtype=torch.complex64))
            self.out = nn.Linear(WIDTH, CLASSES)

        def forward(self, x):
            return self.out(torch.fft.irfft(torch.fft.rfft(x) * self.weight, n=WIDTH))

    return bounded(Task(Spectral, classify), points(outlier=20.0), remove=(0, 3))


@attack("precision")
def losses_in_double_precision():
    """A float32 model whose loss is computed in float64."""
    loss = lambda model, batch: F.cross_entropy(model(batch[0]).double(), batch[1], reduction="none")
    return exact(Task(perceptron, loss), points(outlier=20.0), remove=(0, 3))
