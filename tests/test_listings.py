"""Listings of the papers that combine several features, as loops compared with `Training`.

Rules and styles: tests/clipping/test_step_by_step.py; masks: tests/sparsification/test_masked_training.py; momentum of examples:
tests/test_momentum.py; estimated norms: tests/gradients/projection/test_projections.py; optimizers: tests/optim.
"""

import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import TensorDataset

import one_layer
import privet
from privet.clipping import Flat, Global
from privet.noise import FixedSource
from privet.optim import SGLD, GaussianPrior, sgld_noise
from privet.units import Groups, Users, averaged, grouped

N, BATCH, RATE, BOUND, SIGMA = 40, 11.0, 0.37, 0.6, 1.7


def network():
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()


def squared_error(model, batch):
    return (model(batch[0])[:, 0] - batch[1]).square()


def data():
    torch.manual_seed(9)
    return 2 * torch.randn(N, 3, dtype=torch.float64), torch.randn(N, dtype=torch.float64)


def gradient(w, x, y):
    """Of one example, at w."""
    model = network()
    vector_to_parameters(w, model.parameters())
    loss = squared_error(model, (x[None], y[None]))[0]
    return parameters_to_vector(torch.autograd.grad(loss, list(model.parameters())))


def plan(sigma, **options):
    values = {"batch_size": BATCH, "steps": 6, "examples": N, "source": "fixed", "clipping": Flat(BOUND)}
    return one_layer.plan(multiplier=sigma, **values | options)


def trained(the_plan, dataset=None, loss=squared_error, momentum=0.0, physical_batch_size=4):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=momentum)
    dataset = TensorDataset(*data()) if dataset is None else dataset
    privet.Training(the_plan, model, loss, optimizer, dataset, physical_batch_size=physical_batch_size).run()
    return parameters_to_vector(model.parameters()).detach()


def same(found, expected):
    start = parameters_to_vector(network().parameters()).detach()
    assert (expected - start).norm() > 0.01
    assert (found - expected).norm() <= 2e-6 * (expected - start).norm()


@pytest.mark.parametrize("rule", [Flat(BOUND), Global(BOUND, cutoff=2.4)], ids=["local", "global"])
@pytest.mark.parametrize("rates", [0.3, (0.3, 0.2, 0.1, 0.05)], ids=["one rate", "falling rates"])
def test_langevin_dynamics(rule, rates):
    """DP-SGLD (Bu et al. 2023, Appendix C, Algorithm 3); |Bₜ| made public."""
    prior, batch = GaussianPrior(std=0.7), BATCH
    noise = sgld_noise(rates, batch_size=batch, sensitivity=BOUND, source="fixed")
    the_plan = plan(1.0, steps=4, clipping=rule, noise=noise)
    (x, y), source = data(), FixedSource()
    w, samples = parameters_to_vector(network().parameters()).detach(), []
    for t in range(4):
        eta, total = rates if isinstance(rates, float) else rates[t], 0
        for i in next(the_plan.sampling.draws(N, source.words)):
            v = gradient(w, x[i], y[i])
            factor = min(1, BOUND / v.norm()) if isinstance(rule, Flat) else 0.25 * float(v.norm() <= 2.4)
            total = total + factor * v
        drawn = source.normal(len(w))
        w = w - eta * (total / batch + w / prior.std**2 / N) - math.sqrt(eta) * drawn  # N(0, η) whatever its sign
        samples.append(w)
    model = network()
    optimizer = SGLD(model.parameters(), rates, N, prior=prior)
    optimizer.check(the_plan)
    privet.Training(the_plan, model, squared_error, optimizer, TensorDataset(*data()), physical_batch_size=4).run()
    for found, expected in zip(optimizer.samples, samples, strict=True):
        same(parameters_to_vector(found), expected)


FACTORS = (1.0, 0.8, -0.3)
USERS = [number % 7 if number < 30 else 3 for number in range(N)]
UNITS = {
    "examples": (lambda examples: examples, [[i] for i in range(N)], "add-remove"),
    "users": (
        lambda examples: Users(examples, USERS, cap=N), [[i for i in range(N) if USERS[i] == u] for u in range(7)], "add-remove"
    ),
    "groups": (lambda examples: Groups(examples, 3), [list(range(i, min(i + 3, N))) for i in range(0, N, 3)], "replace-one"),
}  # fmt: skip


@pytest.mark.parametrize(("units", "views", "sigma"), [
    ("examples", 3, 0.0), ("users", 1, SIGMA), ("users", 3, SIGMA), ("groups", 3, SIGMA),
])  # fmt: skip
def test_units_and_views(views, units, sigma):
    """DP-SGD on users or microbatches (McMahan et al. 2018), with augmentation multiplicity (De et al. 2022, section 3.2): the
    gradients of all views of all examples of a unit are averaged, then clipped."""
    arrange, members, adjacency = UNITS[units]
    dataset, calls = arrange(TensorDataset(*data())), itertools.cycle(FACTORS[:views])
    size = 4.0 if units != "examples" else BATCH
    unit = getattr(dataset, "privacy_unit", "one example")
    the_plan = plan(sigma, examples=len(members), sampling=privet.sampling.Poisson(size), adjacency=adjacency, unit=unit)
    (x, y), source = data(), FixedSource()
    w = parameters_to_vector(network().parameters()).detach()
    for _ in range(6):
        total = 0
        for u in next(the_plan.sampling.draws(len(members), source.words)):
            each = [gradient(w, factor * x[i], y[i]) for i in members[u] for factor in FACTORS[:views]]
            g = sum(each) / len(each)
            total = total + g * min(1, BOUND / g.norm())
        w = w - RATE * (total + (sigma * BOUND * source.normal(len(w)) if sigma else 0)) / size
    loss = averaged(squared_error, lambda batch: (next(calls) * batch[0], batch[1]), views)
    loss = loss if units == "examples" else grouped(loss)
    same(trained(the_plan, dataset, loss), w)
