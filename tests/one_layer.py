"""A model with one vector of parameters, whose gradients are its examples, and a plan to train it with."""

from itertools import islice

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


def setup(the_plan, x, directory=None, model=None, loss=linear_loss, dataset=None, **options):
    model = Probe(x.shape[1]) if model is None else model
    dataset = TensorDataset(x) if dataset is None else dataset
    return privet.Training(the_plan, model, loss, torch.optim.SGD(model.parameters(), lr=RATE), dataset, directory, **options)


def resume(directory, x, **options):
    """Resume a run of `setup`."""
    model = Probe(x.shape[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    return privet.Training.resume(directory, model, linear_loss, optimizer, TensorDataset(x), **options)


def stop_after(training, steps):
    """Take steps, and close the training."""
    for _ in islice(training, steps):
        pass
    training.close()
    return training


class Recording(torch.optim.SGD):
    """Changes nothing, and keeps the gradients that it was given."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.0)
        self.seen = []

    def step(self, closure=None):
        self.seen.append(torch.cat([p.grad.flatten() for group in self.param_groups for p in group["params"]]))
        return super().step(closure)


class Watched:
    """A training on unit vectors without noise: its parameters tell who took part in each step."""

    def __init__(self, training):
        self.training, self.taken = training, {}
        self.before = training.model.w.detach().clone()

    def note(self, step):
        now = self.training.model.w.detach().clone()
        sums = (self.before - now) / RATE * self.training.plan.divisor / BOUND
        assert torch.allclose(sums, sums.round(), atol=1e-3)
        assert step.number not in self.taken
        self.taken[step.number], self.before = sums.round(), now


def participants(training, steps=None):
    """Return who takes part in each of the next steps, by its number."""
    watched = Watched(training)
    for step in islice(training, steps):
        watched.note(step)
    return watched.taken


def released(training):
    """The mean gradient that the last step released, times the divisor: the noisy sum."""
    before = training.model.w.detach().clone()
    next(iter(training))
    return (before - training.model.w.detach()) / RATE * training.plan.divisor
