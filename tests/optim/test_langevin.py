"""SGLD samples from the distribution of its diffusion, with the plan's noise and no other."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.utils.data import TensorDataset

import privet
from privet.errors import InvalidArgumentError
from privet.optim import SGLD, GaussianPrior, sgld_learning_rates, sgld_noise

N, WIDTH, BOUND, SPREAD, PRIOR = 30, 3000, 5e3, 0.7, 0.4
POSTERIOR = 2 / N


class Mean(nn.Module):
    """Observations are N(w, SPREAD²), coordinate by coordinate; the loss is their negative log density."""

    def __init__(self, width=WIDTH):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(width, dtype=torch.float64))


def loss_fn(model, batch):
    return (batch[0] - model.w).square().sum(1) / (2 * SPREAD**2)


def plan(noise, steps=60, **options):
    options = {"clipping": privet.clipping.Flat(BOUND), "sampling": privet.sampling.Poisson(N), **options}
    return privet.Plan(examples=N, steps=steps, delta=1e-5, noise=noise, **options)


def two_sided(low):
    return 2 * min(low, 1 - low)


@pytest.mark.parametrize(("diffusion", "schedule"), [(POSTERIOR, True), (0.9, False)], ids=["the posterior", "heated"])
def test_the_posterior_of_a_gaussian_mean_is_recovered(diffusion, schedule, holds_twice):
    """Conjugate model: the posterior is N(m, v), by the book; a heated one has variance v·D·n/2, and a step of finite length
    adds a known part to it (the recursion is linear, so its variance is followed exactly)."""
    precision = (1 / SPREAD**2 + 1 / (N * PRIOR**2)) * N
    rates = [0.3 * N / precision] * 60
    if schedule:
        rates = [rate / (1 + t / 10) for t, rate in enumerate(rates)]
    variance, left = 0.0, 1.0
    for rate in rates:
        shrink = 1 - rate * precision / N
        variance, left = shrink**2 * variance + diffusion * rate, left * shrink
    assert variance == pytest.approx(diffusion * N / 2 / precision, rel=0.2)

    def experiment():
        x = SPREAD * torch.randn(N, WIDTH, dtype=torch.float64) + PRIOR * torch.randn(WIDTH, dtype=torch.float64)
        model = Mean()
        lr = rates if schedule else rates[0]
        noise = sgld_noise(lr, batch_size=N, sensitivity=BOUND, diffusion=diffusion)
        optimizer = SGLD(model.parameters(), lr, N, prior=GaussianPrior(PRIOR), diffusion=diffusion, burn_in=59)
        optimizer.check(plan(noise))
        privet.Training(
            plan(noise), model, loss_fn, optimizer, TensorDataset(x), method="ghost", reading=privet.Reading(probe=False)
        ).run()
        ((sample,),) = optimizer.samples
        mean = x.sum(0) / SPREAD**2 / precision
        z = (sample - (1 - left) * mean).numpy() / math.sqrt(variance)
        return {
            "mean": 2 * stats.norm.sf(abs(z.sum()) / math.sqrt(WIDTH)),
            "variance": two_sided(stats.chi2.cdf((z**2).sum(), WIDTH)),
            "law": stats.kstest(z, "norm").pvalue,
        }

    holds_twice(experiment)


def test_the_multiplier_is_the_formula():
    """Standard deviation |B|/√η on the sum, for the published diffusion 1."""
    found = sgld_noise(0.09, batch_size=24, sensitivity=0.8)
    assert found.multiplier == pytest.approx(24 / (0.3 * 0.8), rel=1e-15)
    # Learning rate η·n/2 and diffusion 2/n are SGLD as Welling and Teh write it: drift n/2·η·ḡ, noise of variance η.
    theirs = sgld_noise(0.09 * 1000 / 2, batch_size=24, sensitivity=0.8, diffusion=2 / 1000)
    assert 0.09 * 1000 / 2 * theirs.multiplier * 0.8 / 24 == pytest.approx(0.3, rel=1e-12)


def test_one_rate_a_step_is_accounted_step_by_step():
    rates = (0.5, 0.4, 0.1)
    found = plan(sgld_noise(rates, batch_size=N, sensitivity=BOUND, diffusion=1e6), steps=3)
    np.testing.assert_allclose(found.multipliers(), N * np.sqrt(1e6 / np.array(rates)) / BOUND, rtol=1e-12)
    assert privet.Plan.from_json(found.to_json()) == found
    assert len(found.events()) == 3


def test_a_shrinking_bound_keeps_the_noise():
    bounds = privet.schedules.Geometric(rate=0.2)
    found = plan(sgld_noise(0.4, batch_size=N, sensitivity=BOUND, diffusion=1e6), steps=5, bound_schedule=bounds)
    SGLD([nn.Parameter(torch.zeros(2))], 0.4, N, diffusion=1e6).check(found)
    assert found.multipliers()[-1] == pytest.approx(2 * found.multipliers()[0])


def test_rates_follow_from_a_calibrated_plan():
    found = plan(privet.noise.Gaussian(), bound_schedule=privet.schedules.Linear()).calibrate(epsilon=2.0)
    rates = sgld_learning_rates(found, POSTERIOR)
    optimizer = SGLD([nn.Parameter(torch.zeros(2))], rates, N, diffusion=POSTERIOR)
    optimizer.check(found)
    optimizer.check(privet.Plan.from_json(found.to_json()))


NOISE = sgld_noise(0.4, batch_size=N, sensitivity=BOUND, diffusion=1e6)


@pytest.mark.parametrize(
    ("options", "changes", "says"),
    [
        ({"lr": 0.41}, {}, r"noise\.multiplier"),
        ({"lr": [0.4, 0.4, 0.3]}, {}, "at step 3"),
        ({"diffusion": 2e6}, {}, "sgld_noise"),
        ({"examples": N + 1}, {}, "examples"),
        ({}, {"noise": privet.noise.Gaussian(0.0, non_private=True)}, "greater than 0"),
        ({}, {"sampling": privet.sampling.Poisson(N / 2)}, "standard deviation"),
        ({}, {"clipping": privet.clipping.Flat(BOUND * 2)}, "standard deviation"),
    ],
)
def test_noise_that_does_not_fit_is_refused(options, changes, says):
    optimizer = SGLD([nn.Parameter(torch.zeros(2))], **{"lr": 0.4, "examples": N, "diffusion": 1e6, **options})
    with pytest.raises(InvalidArgumentError, match=says):
        optimizer.check(plan(**{"noise": NOISE, "steps": 4, **changes}))


def test_a_learning_rate_changed_from_outside_is_refused():
    weight = nn.Parameter(torch.zeros(2))
    with pytest.raises(InvalidArgumentError, match="lr"):
        SGLD([{"params": [weight], "lr": 0.2}], 0.4, N)
    optimizer = SGLD([weight], 0.4, N)
    optimizer.param_groups[0]["lr"] = 0.2
    with pytest.raises(InvalidArgumentError, match="scheduler"):
        optimizer.step()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lr", {"lr": 0.0}), ("lr", {"lr": []}), ("examples", {"examples": 1}), ("prior", {"prior": 2.0}),
        ("diffusion", {"diffusion": -1.0}), ("burn_in", {"burn_in": -1}), ("thinning", {"thinning": 0}), ("keep", {"keep": 0}),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(name, options):
    with pytest.raises(InvalidArgumentError, match=name):
        SGLD([nn.Parameter(torch.zeros(2))], **{"lr": 0.4, "examples": N, **options})


def test_samples_come_after_the_burn_in_thinned_and_the_latest_are_kept():
    weights = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1, 3))]
    optimizer = SGLD(weights, 0.5, N, burn_in=3, thinning=2, keep=3)
    assert optimizer.samples == ()
    for _ in range(12):
        for weight in weights:
            weight.grad = -torch.ones_like(weight)
        optimizer.step()
    assert [float(sample[0][0]) / 0.5 for sample in optimizer.samples] == [7, 9, 11]
    assert [tuple(one.shape) for one in optimizer.samples[0]] == [(2,), (1, 3)]
    twin = SGLD([nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1, 3))], 0.5, N, burn_in=3, thinning=2, keep=3)
    twin.load_state_dict(optimizer.state_dict())
    for one, other in zip(twin.samples, optimizer.samples, strict=True):
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


def test_the_predictive_mean_is_over_the_samples_and_leaves_the_parameters():
    weight = nn.Parameter(torch.zeros(2))
    optimizer = SGLD([weight], 1.0, N, burn_in=1)
    with pytest.raises(InvalidArgumentError, match="burn_in"):
        optimizer.predictive(lambda: weight)
    for _ in range(4):
        weight.grad = -torch.ones_like(weight)
        optimizer.step()
    assert torch.equal(optimizer.predictive(lambda: weight.square()), torch.full((2,), (4 + 9 + 16) / 3))
    assert torch.equal(weight.detach(), torch.full((2,), 4.0))

    def broken():
        raise RuntimeError("shape")

    with pytest.raises(RuntimeError, match="shape"):
        optimizer.predictive(broken)
    assert torch.equal(weight.detach(), torch.full((2,), 4.0))


@pytest.mark.parametrize(("changes", "says"), [
    ({"clipping": privet.clipping.Layerwise((privet.clipping.Flat(BOUND / 2), privet.clipping.Flat(BOUND * 0.75**0.5)),
                                            by="parameter", noise="per group")}, "noise.multiplier"),
    ({"momentum": privet.momentum.InnerOuter(0.9, 0.1, 2)}, "momentum carries noise"),
    ({"sparsification": privet.sparsification.Random(0.5)}, "sparsification"),
])  # fmt: skip
def test_noise_that_does_not_reach_every_parameter_alike_is_refused(changes, says):
    """The plan's own noise is right; what the parameters are moved by is not."""
    model, the_plan = nn.Linear(3, 1), plan(NOISE, steps=4, **changes)
    with pytest.raises(InvalidArgumentError, match=says):
        privet.Training(
            the_plan, model, lambda m, batch: m(batch[0])[:, 0], SGLD(model.parameters(), 0.4, N, diffusion=1e6),
            TensorDataset(torch.randn(N, 3)),
        )  # fmt: skip
