import math
import threading
from itertools import pairwise

import pytest
import torch
from scipy import stats
from torch import nn

import privet
from one_layer import BOUND, RATE, SIGMA, D, N, Probe, plan, released, setup


def drawing_threads():
    return [thread for thread in threading.enumerate() if thread.name == "privet-noise"]


@pytest.mark.parametrize(("width", "multiplier", "expected"), [(60_000, SIGMA, 1), (D, SIGMA, 0), (60_000, 0.0, 0)])
@pytest.mark.parametrize("steps", [2, 3])
def test_noise_is_drawn_ahead_for_large_models_and_only_while_training_runs(monkeypatch, width, multiplier, expected, steps):
    monkeypatch.setattr(privet.noise.sources, "_cores", lambda: 2)
    training = setup(plan(multiplier=multiplier), torch.zeros(N, width))
    for step in training:
        assert len(drawing_threads()) == expected
        if step.number == steps:
            break
    assert drawing_threads() == []


def test_noise_is_drawn_ahead_until_the_last_loop_ends(monkeypatch):
    monkeypatch.setattr(privet.noise.sources, "_cores", lambda: 2)
    training = setup(plan(steps=9), torch.zeros(N, 60_000))
    one, other = iter(training), iter(training)
    next(one), next(other)
    assert len(drawing_threads()) == 1
    one.close()
    assert len(drawing_threads()) == 1
    next(other)
    other.close()
    assert drawing_threads() == []
    next(iter(training))
    assert drawing_threads() == []


def test_noise_drawn_ahead_is_what_the_plan_says_at_every_step(monkeypatch, holds_twice):
    monkeypatch.setattr(privet.noise.sources, "_cores", lambda: 2)
    width, steps = 70_001, 4

    def experiment():
        training = setup(plan(steps=steps), torch.zeros(N, width))
        start = training.model.w.detach().clone()
        values = [start, *(training.model.w.detach().clone() for _ in training)]
        noise = (
            torch.stack([before - after for before, after in pairwise(values)]) / RATE * training.plan.divisor / (SIGMA * BOUND)
        )
        correlation = (noise[1:] * noise[:-1]).sum().item() / math.sqrt((steps - 1) * width)
        return {
            "steps": 2 * stats.norm.sf(abs(correlation)),
            **{f"step {i}": stats.kstest(step.numpy(), "norm").pvalue for i, step in enumerate(noise)},
        }

    holds_twice(experiment)


def test_noise_has_the_plans_standard_deviation_on_every_step():
    """Chi-square and KS on untouched coordinates; empty, small and full batches alike."""

    def p_values():
        found = []
        for batch_size in (1e-3, 3.0, float(N)):
            training = setup(plan(batch_size, steps=4), torch.zeros(N, 50_000))
            for _ in range(2):
                z = (released(training) / (SIGMA * BOUND)).double()
                statistic = float(z.square().sum())
                found.append(2 * min(stats.chi2.sf(statistic, z.numel()), stats.chi2.cdf(statistic, z.numel())))
                found.append(stats.kstest(z.numpy(), "norm").pvalue)
        return min(found)

    assert p_values() > 1e-6 or p_values() > 1e-6


def test_every_trainable_parameter_is_noised_also_when_unused():
    model = Probe()
    model.unused = nn.Parameter(torch.zeros(100))
    training = setup(plan(), torch.randn(N, D), model=model)
    next(iter(training))
    assert float(training.model.unused.detach().abs().min()) > 0


def test_seeding_torch_does_not_repeat_the_noise():
    runs = []
    for _ in range(2):
        torch.manual_seed(0)
        training = setup(plan(), torch.zeros(N, D))
        training.run()
        runs.append(training.model.w.detach().clone())
    assert not torch.allclose(runs[0], runs[1], rtol=1e-3)


@pytest.mark.parametrize(("deviation", "expected"), [("relative", (1.0, 0.5, 0.75)), ("fixed", (1.0, 1.0, 3.0))])
def test_every_step_has_its_own_noise(deviation, expected):
    """Data of zeros: what is released is the noise; the deviations' ratio to σ·C is the schedules'."""
    noise = privet.noise.Gaussian(SIGMA, schedule=privet.schedules.Table((1.0, 1.0, 3.0)), deviation=deviation)
    made = plan(noise=noise, bound_schedule=privet.schedules.Table((1.0, 0.5, 0.25)))
    width = 5000
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], width) / width
    for _ in range(3):  # fresh randomness before failing
        training = setup(made, torch.zeros(N, width), reading=privet.Reading(probe=False))
        ratios = [float(released(training).square().mean()) / (factor * SIGMA * BOUND) ** 2 for factor in expected]
        if all(low < ratio < high for ratio in ratios):
            return
    pytest.fail(f"variances {ratios} outside [{low}, {high}]")
