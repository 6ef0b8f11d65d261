import math

import pytest
import torch
from scipy import stats

import privet
from one_layer import BOUND, D, N, plan, released, setup
from privet.training.checks import choose_physical_batch_size
from rounding import assert_equal_up_to_rounding


def test_full_batch_without_noise_releases_the_clipped_sum():
    x = torch.randn(N, D) * torch.logspace(-2, 2, N)[:, None]
    training = setup(plan(batch_size=N, multiplier=0.0), x)
    norms = x.norm(dim=1, keepdim=True)
    expected = (x * (BOUND / norms).clamp(max=1)).sum(0)
    torch.testing.assert_close(released(training), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("rule", "size"), [(privet.clipping.Flat(BOUND), 7), (privet.clipping.Automatic(BOUND, 0.05), N)])
def test_one_example_moves_the_release_by_at_most_the_bound(rule, size):
    """Neighbours: the same data with one example set to contribute nothing; full batch, no noise."""
    x = torch.randn(N, D) * 100
    without = x.clone()
    without[13] = 0.0
    sums = [released(setup(plan(N, multiplier=0.0, clipping=rule), data, physical_batch_size=size)) for data in (x, without)]
    assert float((sums[0] - sums[1]).norm()) <= BOUND * (1 + 1e-4)  # float32 rounding of two parameters of this size


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 3e38])
def test_an_example_that_is_not_finite_changes_nothing_and_raises_nothing(bad):
    x = torch.randn(N, D)
    x[5] = 0.0
    clean = released(setup(plan(N, multiplier=0.0), x))
    x[5] = bad
    spoilt = released(setup(plan(N, multiplier=0.0), x))
    limit = BOUND * (1 + 1e-4) if bad == 3e38 else 1e-5
    assert float((clean - spoilt).norm()) <= limit


@pytest.mark.parametrize("size", [1, 7, N])
def test_the_release_does_not_depend_on_the_physical_batch_size(size):
    x, runs = torch.randn(N, D, generator=torch.Generator().manual_seed(1)), []
    for physical in (N, size):
        training = setup(plan(source="fixed"), x, physical_batch_size=physical)
        training.run()
        runs.append(training.model.w.detach().clone())
    torch.testing.assert_close(runs[0], runs[1], rtol=1e-5, atol=1e-6)


def test_workers_and_collate_release_the_same():
    x, runs = torch.randn(N, D, generator=torch.Generator().manual_seed(1)), []
    listed = [(row,) for row in x]
    in_workers = {"reading": privet.Reading(workers=2), "physical_batch_size": 5}
    for options in ({}, {"dataset": listed}, {"dataset": listed, **in_workers}):
        training = setup(plan(source="fixed"), x, **options)
        training.run()
        runs.append(training.model.w.detach().clone())
    assert_equal_up_to_rounding(runs[0], runs[1])
    torch.testing.assert_close(runs[0], runs[2], rtol=1e-5, atol=1e-6)


def test_empty_draws_are_steps_like_any_other():
    training = setup(plan(1e-6, steps=5), torch.randn(N, D))
    for _ in training:
        assert float(training.model.w.detach().norm()) > 0
    assert training.steps_spent == 5
    assert training.epsilon() == training.plan.epsilon()


def test_a_gradient_that_lies_around_is_not_mixed_in():
    training = setup(plan(N, multiplier=0.0), torch.zeros(N, D))
    training.model.w.grad = torch.full((D,), 1e6)
    assert float(released(training).abs().max()) == 0.0
    assert training.model.w.grad is None


def test_every_step_clips_to_its_own_bound():
    x = torch.randn(N, D) * torch.logspace(-2, 2, N)[:, None]
    scheduled = plan(N, steps=3, multiplier=0.0, bound_schedule=privet.schedules.Table((1.0, 0.6, 0.1)))
    training = setup(scheduled, x)
    norms = x.norm(dim=1, keepdim=True)
    for factor in (1.0, 0.6, 0.1):
        expected = (x * (factor * BOUND / norms).clamp(max=1)).sum(0)
        torch.testing.assert_close(released(training), expected, rtol=1e-4, atol=1e-4)


def test_by_default_nearly_every_draw_of_at_most_256_examples_is_one_pass():
    chosen = {size: choose_physical_batch_size(plan(size, examples=100_000, delta=1e-6)) for size in (1, 200, 240, 256)}
    assert all(stats.poisson.sf(found, size) < 1e-4 for size, found in chosen.items())
    assert chosen[256] < 1.3 * 256
    others = [choose_physical_batch_size(plan(size, examples=100_000, delta=1e-6)) for size in (1, 100, 257, 10_000)]
    assert others == [256] * 4
