"""Made-up clients of two clinics, and the plan of three rounds with a fixed source: the same numbers in every process."""

import torch
from torch import nn
from torch.nn import functional as F

import privet
from privet.federated import LocalSteps, Simulation

CLIENTS, FEATURES, CLASSES, ROUNDS = 12, 4000, 10, 3
LOCAL = LocalSteps(learning_rate=0.1, steps=3, batch_size=4)
PLAN = privet.Plan(
    examples=CLIENTS, unit="one user", sampling=privet.sampling.Poisson(batch_size=8), steps=ROUNDS, delta=1e-3,
    clipping=privet.clipping.AdaptiveQuantile(privet.clipping.Layerwise(privet.clipping.Flat(0.5)), share=0.05),
    noise=privet.noise.Gaussian(0.5, source="fixed"), sparsification=privet.sparsification.Random(final_rate=0.9, refresh=2),
)  # fmt: skip


def make_model():
    torch.manual_seed(0)
    return nn.Linear(FEATURES, CLASSES)


def loss_fn(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


def make_client(number):
    generator = torch.Generator().manual_seed(number)
    size = 3 + number % 4
    return torch.randn(size, FEATURES, generator=generator), torch.randint(CLASSES, (size,), generator=generator)


def simulate(numbers):
    return Simulation(make_model(), loss_fn, [make_client(number) for number in numbers], LOCAL, vectorise=False)
