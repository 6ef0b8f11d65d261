import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import nn
from torch.utils.data import TensorDataset

from privet.errors import InvalidArgumentError
from privet.evaluation import HeldOutEstimate, noisy_interval, wilson_interval
from privet.evaluation.held_out import classification_scores, estimate, regression_scores, score_entries
from privet.ledger.answers import bounded_sum
from privet.tables import Regression
from privet.units import Users

ANY = st.floats(width=32)
SCORES = {"classification": classification_scores(), "regression": regression_scores(Regression(0.0, 10.0).decode, 10.0)}


def contributions(task, outputs, targets):
    data = TensorDataset(torch.tensor(outputs), torch.tensor(targets))
    return score_entries(nn.Identity(), data, SCORES[task])


@given(st.lists(st.tuples(ANY, ANY, st.sampled_from([0, 1, -100])), min_size=1, max_size=8))
def test_no_value_breaks_the_bound_of_a_classification(rows):
    found = contributions("classification", [[a, b] for a, b, _ in rows], [label for *_, label in rows])
    assert found.shape == (len(rows), 1)
    assert (found.norm(dim=1) <= SCORES["classification"].bound).all()


@given(st.lists(st.tuples(ANY, ANY), min_size=1, max_size=8))
def test_no_value_breaks_the_bound_of_a_regression(rows):
    found = contributions("regression", [[output] for output, _ in rows], [target for _, target in rows])
    assert found.shape == (len(rows), 2)
    assert (found.norm(dim=1) <= SCORES["regression"].bound).all()


def test_unusable_targets_count_as_the_worst():
    assert contributions("classification", [[9.0, 0.0]], [-100]).tolist() == [[-0.5]]
    assert contributions("regression", [[0.0]], [math.nan]).tolist() == [[0.5, 0.5]]
    assert contributions("regression", [[math.nan]], [0.0]).tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize("task", SCORES)
def test_the_sum_moves_by_no_more_than_its_sensitivity(task):
    """Measured on neighbours: a row added or removed moves it by at most C, a replaced row by at most 2C."""
    generator = torch.Generator().manual_seed(1)
    outputs = 3 * torch.randn(300, 2 if task == "classification" else 1, generator=generator)
    targets = torch.randint(0, 2, (300,), generator=generator) if task == "classification" else outputs[:, 0].roll(1)
    rows = score_entries(nn.Identity(), TensorDataset(outputs, targets), SCORES[task])
    scores = SCORES[task]
    whole = bounded_sum(rows, scores.bound)
    others = [bounded_sum(rows[torch.arange(300) != row], scores.bound) for row in range(300)]
    moves = [whole.tensors["sum"] - other.tensors["sum"] for other in others]
    assert whole.sensitivity == scores.bound
    largest = max(float(move.norm()) for move in moves)
    assert largest <= scores.bound
    assert largest > 0.99 * scores.bound if task == "classification" else largest > 0.5 * scores.bound
    # Exactly: what a row adds does not depend on the others, so that no rounding error adds to the sensitivity.
    for row in (0, 17, 299):
        assert torch.equal(moves[row], bounded_sum(rows[[row]], scores.bound).tensors["sum"])


@given(st.lists(st.tuples(ANY, ANY), min_size=1, max_size=6), st.floats(1e-3, 1e3))
def test_any_rows_are_shortened_to_the_bound(rows, bound):
    total = bounded_sum(torch.tensor(rows, dtype=torch.float64), bound).tensors["sum"]
    assert total.isfinite().all()
    assert float(total.norm()) <= len(rows) * bound * (1 + 1e-12)


def test_a_user_counts_once_however_many_examples_they_have():
    outputs = torch.tensor([[1.0, 0.0]] * 3 + [[0.0, 1.0]])
    labels = torch.tensor([0, 0, 1, 0])
    users = Users(TensorDataset(outputs, labels), ["ann", "ann", "ann", "bob"], cap=3)
    found = score_entries(nn.Identity(), users, SCORES["classification"])
    assert found[:, 0].tolist() == pytest.approx([2 / 3 - 0.5, -0.5])


def test_units_that_cannot_be_scored_are_refused():
    with pytest.raises(InvalidArgumentError, match="entries"):
        score_entries(nn.Identity(), [1, 2], SCORES["classification"])


def test_without_noise_the_estimate_is_the_accuracy_and_the_interval_is_wilsons():
    metrics, intervals = estimate("classification", [30.0], examples=100, noise_multiplier=1e-12)
    assert metrics["accuracy"] == pytest.approx(0.8)
    assert intervals["accuracy"] == pytest.approx(wilson_interval(0.8, 100))


def test_a_regression_is_estimated_in_the_unit_of_its_target():
    targets = torch.linspace(-1, 1, 500)
    outputs = (targets + 0.1)[:, None].clamp(-1, 1)
    rows = contributions("regression", outputs.tolist(), targets.tolist())
    total = bounded_sum(rows, SCORES["regression"].bound).tensors["sum"]
    metrics, intervals = estimate("regression", total.tolist(), examples=500, noise_multiplier=1e-9, width=10.0)
    error = 5 * (outputs[:, 0] - targets)
    assert metrics["mean_absolute_error"] == pytest.approx(float(error.abs().mean()), abs=1e-4)
    assert metrics["root_mean_squared_error"] == pytest.approx(float(error.square().mean().sqrt()), abs=1e-3)
    for name, (low, high) in intervals.items():
        assert low <= metrics[name] <= high


@pytest.mark.parametrize("noised", [[1e9], [-1e9]])
def test_any_release_has_an_estimate_within_its_range(noised):
    metrics, intervals = estimate("classification", noised, examples=50, noise_multiplier=30.0)
    low, high = intervals["accuracy"]
    assert 0 <= low <= metrics["accuracy"] <= high <= 1


@pytest.mark.parametrize("share", [0.02, 0.5, 0.9])
@pytest.mark.parametrize("multiplier", [0.5, 30.0])
def test_intervals_cover(share, multiplier, holds_twice):
    """At 95 %: not fewer hits than a binomial law with 93 % allows, for which the normal approximation leaves room."""

    def experiment():
        generator = np.random.default_rng()
        counts = generator.binomial(300, share, 3000) - 150 + generator.normal(0, multiplier / 2, 3000)
        ends = [estimate("classification", [count], examples=300, noise_multiplier=multiplier)[1]["accuracy"] for count in counts]
        hits = sum(low <= share <= high for low, high in ends)
        return {"coverage": stats.binom.cdf(hits, 3000, 0.93)}

    holds_twice(experiment)


def test_the_interval_is_refused_out_of_its_range():
    for arguments in ((1.1, 10, 0.1), (0.5, 0, 0.1), (0.5, 10, -0.1)):
        with pytest.raises(InvalidArgumentError):
            noisy_interval(*arguments)


def test_an_estimate_survives_its_file():
    found = HeldOutEstimate(
        task="classification", metrics={"accuracy": 0.8}, intervals={"accuracy": (0.7, 0.9)}, examples=100, unit="example",
        epsilon=0.1, delta=1e-5, noise_multiplier=30.0,
    )  # fmt: skip
    assert HeldOutEstimate.from_dict(found.to_dict()) == found


@pytest.mark.parametrize("noised", [[-159.0, -170.0], [-120.0, -90.0], [40.0, -170.0], [500.0, 500.0], [-500.0, -500.0]])
def test_noise_never_gives_a_root_mean_squared_error_below_the_absolute_one(noised):
    metrics, intervals = estimate("regression", noised, examples=320, noise_multiplier=8.0, width=10.0)
    assert metrics["mean_absolute_error"] <= metrics["root_mean_squared_error"] + 1e-12
    assert metrics["root_mean_squared_error"] <= 10 * math.sqrt(metrics["mean_absolute_error"] / 10) + 1e-12
    for name, (low, high) in intervals.items():
        assert 0 <= low <= metrics[name] <= high <= 10
