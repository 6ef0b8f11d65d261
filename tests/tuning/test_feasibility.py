"""What is said of a plan before its first step follows from public numbers, and warns where training cannot work."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import privet
from privet.accounting.classic import gaussian
from privet.accounting.privacy_unit import group_unit
from privet.clipping import Flat
from privet.errors import InvalidArgumentError
from privet.noise import Gaussian
from privet.sampling import FixedSize, FullBatch, Poisson, Shuffle
from privet.schedules import Geometric
from privet.tuning.feasibility import HOPELESS, WEAK, assess, find_simpler_model


def plan(examples=1437, batch_size=None, steps=50, delta=1e-5, **options):
    options = {"sampling": FullBatch() if batch_size is None else Poisson(batch_size)} | options
    return privet.Plan(examples=examples, steps=steps, clipping=Flat(0.1), delta=delta, **options)


def test_the_signal_is_the_drift_of_the_sum_of_all_releases_in_standard_deviations():
    """Measured: examples that all have the same gradient, summed and noised by training itself."""
    examples, steps, multiplier, runs = 40, 9, 8.0, 60

    def walk():
        model = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(model.weight)
        data = TensorDataset(torch.ones(examples, 1))
        training = privet.Training(
            plan(examples, steps=steps, noise=Gaussian(multiplier)), model, lambda model, batch: -model(batch[0])[:, 0],
            torch.optim.SGD(model.parameters(), lr=1.0), data, reading=privet.Reading(probe=False),
        )  # fmt: skip
        training.run()
        return float(model.weight.detach())

    ends = np.array([walk() for _ in range(runs)])
    predicted = assess(plan(examples, steps=steps, noise=Gaussian(multiplier)), 1).signal
    assert predicted == pytest.approx(15.0)
    # The mean of 60 ends errs by 5 of its standard deviations, and their deviation by half, with probability below 1e-6 each.
    deviation = steps * 0.1 / predicted
    assert abs(ends.mean() - steps * 0.1) < 5 * deviation / math.sqrt(runs)
    assert 0.5 < ends.std() / deviation < 1.6


@pytest.mark.parametrize(("steps", "adjacency"), [(1, "add-remove"), (30, "zero-out"), (1000, "replace-one")])
def test_full_batches_use_all_of_the_signal_that_epsilon_pays_for(steps, adjacency):
    found = assess(plan(steps=steps, adjacency=adjacency).calibrate(2.0), 10)
    assert found.efficiency == pytest.approx(1.0, abs=1e-3)
    assert found.signal == pytest.approx(1437 * gaussian.mu(2.0, 1e-5) / (2 if adjacency == "replace-one" else 1), rel=1e-3)


def test_the_signal_does_not_depend_on_the_bound_nor_on_the_unit_of_time():
    one = assess(plan(400, 40, noise=Gaussian(2.0)), 10)
    assert assess(replace(plan(400, 40, noise=Gaussian(2.0)), clipping=Flat(7.0)), 10) == one


def test_steps_of_different_noise_count_by_their_precision():
    assert assess(plan(400, 40, noise=Gaussian(2.0)), 10_000).noise_norm == pytest.approx(math.sqrt(10_000) * 2.0 / 40)
    scheduled = plan(400, 40, steps=2, bound_schedule=Geometric(), noise=Gaussian(2.0, deviation="fixed"))
    multipliers = scheduled.multipliers()
    assert assess(scheduled, 10).signal == pytest.approx(40 * math.sqrt(sum(1 / multipliers**2)))


def test_digits_at_a_ten_thousandth_are_called_hopeless_with_what_it_takes():
    (hopeless,) = assess(plan(batch_size=143, steps=100).calibrate(1e-4), 650).warnings
    assert "hopeless for 1,437 examples" in hopeless
    needed = float(hopeless.partition("with these examples ε = ")[2])
    examples = int(hopeless.partition("it takes ")[2].partition(" examples")[0].replace(",", ""))
    assert assess(plan(batch_size=143, steps=100).calibrate(needed), 650).warnings == ()
    assert assess(plan(examples, batch_size=examples / 10, steps=100, delta=1e-7).calibrate(1e-4), 650).signal < WEAK
    assert (
        assess(plan(examples, batch_size=examples / 10, steps=100, accept_large_delta=True).calibrate(1e-4), 650).signal >= WEAK
    )


def test_a_weak_plan_is_not_called_hopeless():
    (weak,) = assess(plan(steps=100).calibrate(0.1), 650).warnings
    assert HOPELESS < assess(plan(steps=100).calibrate(0.1), 650).signal < WEAK
    assert "is little" in weak


def test_an_epsilon_that_protects_nobody_is_no_remedy():
    warning = assess(plan(3, steps=100, delta=0.01).calibrate(0.1), 650).warnings[0]
    assert "with these examples" not in warning
    assert "it takes" in warning


def test_a_small_batch_is_told_a_better_one_at_the_same_cost():
    small = plan(60_000, 64, steps=18_750).calibrate(3.0)
    (warning,) = assess(small, 26_000, epsilon=3.0).warnings
    steps, size = (int(word.replace(",", "")) for word in warning.partition(": ")[2].split()[:4:3])
    assert steps * size == pytest.approx(18_750 * 64, rel=0.01)
    better = assess(plan(60_000, size, steps=steps).calibrate(3.0), 26_000, epsilon=3.0)
    assert better.efficiency == pytest.approx(float(warning.rpartition(" ")[2].rstrip("%")) / 100, abs=0.006)
    assert better.warnings == ()


@pytest.mark.parametrize("scheme", [FixedSize(40), Shuffle(40)])
def test_other_samplings_are_judged_too(scheme):
    found = assess(plan(4000, sampling=scheme, steps=200, adjacency="replace-one").calibrate(3.0), 100)
    assert 0 < found.efficiency < 1


@pytest.mark.parametrize(("share", "warned"), [(0.6, 0), (0.69, 0), (0.7, 1), (0.99, 1)])
def test_delta_near_one_over_n_is_warned_of(share, warned):
    found = assess(plan(delta=share / 1437).calibrate(3.0), 650)
    assert len(found.warnings) == warned
    if warned:
        assert f"{-math.expm1(1437 * math.log1p(-share / 1437)):.0%}" in found.warnings[0]


def test_delta_counts_people_and_not_groups():
    grouped = plan(400, delta=1e-3, unit=group_unit(4), adjacency="replace-one", accept_large_delta=True)
    assert any("1,600 records" in warning for warning in assess(grouped.calibrate(8.0), 10).warnings)


def test_without_privacy_there_is_nothing_to_warn_of():
    found = assess(plan(noise=Gaussian(0.0, non_private=True)), 650, simpler="logistic")
    assert (found.signal, found.warnings) == (math.inf, ())
    assert "without privacy" in str(found)


def test_a_model_with_hidden_layers_is_advised_against_where_a_linear_one_does_better():
    facts = {"task": "classification", "schema": False, "delta": 1e-5}
    assert find_simpler_model("mlp", 1437, (1, 8, 8), epsilon=0.5, **facts) == "logistic"
    assert find_simpler_model("logistic", 1437, (1, 8, 8), epsilon=0.5, **facts) is None
    assert find_simpler_model("mlp", 60_000, (1, 8, 8), epsilon=3.0, **facts) is None
    found = assess(plan().calibrate(0.5), 85_000, simpler="logistic")
    assert "'logistic' is likely to do better" in found.warnings[-1]


@pytest.mark.parametrize("parameters", [0, -1, 1.5])
def test_a_model_has_parameters(parameters):
    with pytest.raises(InvalidArgumentError, match="parameters is"):
        assess(plan(noise=Gaussian(1.0)), parameters)
