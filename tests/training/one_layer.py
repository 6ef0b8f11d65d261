"""A model with one vector of parameters, whose gradients are its examples, and a plan to train it with."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import privet

N, D, SIGMA, BOUND, RATE = 60, 40, 2.3, 0.7, 0.31


class Probe(nn.Module):
    """Loss ⟨w, x⟩: an example's gradient is the example itself."""

    def __init__(self, width=D):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return (x * self.w).sum(1)


def linear_loss(model, batch):
    return model(batch[0])


def plan(batch_size=20.0, steps=3, multiplier=SIGMA, source="secure", examples=N, **options):
    noise = privet.noise.Gaussian(multiplier, source=source, non_private=multiplier == 0)
    kinds = {"sampling": privet.sampling.Poisson(batch_size), "clipping": privet.clipping.Flat(BOUND), "noise": noise}
    return privet.Plan(examples=examples, steps=steps, **{"delta": 1e-5, **kinds, **options})


def setup(the_plan, x, directory=None, model=None, **options):
    model = model or Probe(x.shape[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    return privet.Training(the_plan, model, linear_loss, optimizer, TensorDataset(x), directory, **options)


def resume(directory, x):
    """Resume a run of `setup`."""
    model = Probe(x.shape[1])
    return privet.Training.resume(directory, model, linear_loss, torch.optim.SGD(model.parameters(), lr=RATE), TensorDataset(x))


def released(training):
    """The mean gradient that the last step released, times the divisor: the noisy sum."""
    before = training.model.w.detach().clone()
    next(iter(training))
    return (before - training.model.w.detach()) / RATE * training.plan.divisor
