import math

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from privet.convex import Huber, Logistic, minimiser
from privet.convex.minimiser import PerturbedObjective, minimise, rounding_error
from rounding import assert_equal_up_to_rounding


def make(loss, examples=400, width=5, regularisation=1.0, perturbation=0.0, kind="random"):
    rows = torch.nn.functional.normalize(torch.randn(examples, width, dtype=torch.float64))
    if kind == "equal":
        rows = rows[:1].expand(examples, width).clone()
    elif kind == "zero":
        rows = torch.zeros(examples, width, dtype=torch.float64)
    scores = rows @ torch.randn(width, loss.outputs, dtype=torch.float64)
    targets = scores.argmax(1) if isinstance(loss, Logistic) else scores[:, 0].clamp(-1, 1)
    if kind == "one class":
        targets = torch.zeros_like(targets)
    linear = perturbation * torch.randn(loss.outputs, width, dtype=torch.float64)
    return PerturbedObjective(loss, rows, targets, regularisation, linear)


KINDS = ("random", "equal", "zero", "one class")
# Any two of loss, regularisation and kind, and any of them with and without a perturbation.
PAIRS = [
    (loss, (1e-2, 1.0, 1e4)[(i + j) % 3], 1e4 * ((i + j // 2) % 2), kind)
    for i, loss in enumerate((Logistic(2), Logistic(4), Huber(0.3)))
    for j, kind in enumerate(KINDS)
] + [(Logistic(2 if k % 2 else 4), regularisation, 1e4 * (k % 2), "random") for k, regularisation in enumerate((1.0, 1e4, 1e-2))]


@pytest.mark.parametrize(("loss", "regularisation", "perturbation", "kind"), PAIRS, ids=str)
def test_the_gradient_is_as_short_as_promised_for_any_data(loss, regularisation, perturbation, kind):
    objective = make(loss, regularisation=regularisation, perturbation=perturbation, kind=kind)
    largest = (perturbation * 10 + math.sqrt(2 * regularisation * 400 * loss.at_zero)) / regularisation
    tolerance = max(1e-6, 2 * rounding_error(loss, 400, 5, largest))
    weights = minimise(objective, tolerance)
    value, gradient = objective.evaluate(weights)
    assert gradient.norm() <= tolerance
    other = objective.evaluate(weights + 1e-2 * torch.randn_like(weights))[0]
    assert value <= other + 1e-12 * abs(other)


@pytest.mark.parametrize("loss", [Logistic(2), Logistic(4), Huber(0.3)], ids=str)
def test_the_method_with_a_known_number_of_iterations_suffices_alone(loss, monkeypatch):
    monkeypatch.setattr(minimiser, "_newton", lambda objective, weights, tolerance: weights + math.nan)
    for kind in ("random", "one class"):
        objective = make(loss, regularisation=0.5, perturbation=3.0, kind=kind)
        assert objective.evaluate(minimise(objective, 1e-6))[1].norm() <= 1e-6


def test_the_minimum_is_that_of_scikit_learn():
    objective = make(Logistic(3), regularisation=2.0)
    theirs = LogisticRegression(C=0.5, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(objective.rows, objective.targets)
    torch.testing.assert_close(minimise(objective, 1e-8), torch.from_numpy(theirs.coef_), rtol=1e-4, atol=1e-4)


def test_least_squares_where_no_residual_is_clipped():
    objective = make(Huber(50.0), regularisation=3.0)
    gram = objective.rows.T @ objective.rows + 3.0 * torch.eye(5)
    expected = torch.linalg.solve(gram, objective.rows.T @ objective.targets)
    assert_equal_up_to_rounding(minimise(objective, 1e-9)[0], expected)


def test_a_search_that_starts_on_a_sample_ends_at_the_same_minimum(monkeypatch):
    objective = make(Logistic(3), examples=900)
    whole = minimise(objective, 1e-8)
    monkeypatch.setattr(minimiser, "_SAMPLE", 100)
    torch.testing.assert_close(minimise(objective, 1e-8), whole, rtol=1e-6, atol=1e-6)


def test_rounding_errors_stay_within_their_bound():
    """The gradient in single precision, against double precision, as its unit is 2²⁹ times as large."""
    loss = Logistic(4)
    objective = make(loss, examples=5000, width=20)
    weights = 3 * torch.randn(4, 20, dtype=torch.float64)
    exact = objective.evaluate(weights)[1]
    slopes = loss.evaluate(objective.rows.float() @ weights.float().T, objective.targets)[1]
    rough = slopes.T @ objective.rows.float() + (objective.regularisation * weights).float()
    assert (rough - exact).norm() <= 2.0**29 * rounding_error(loss, 5000, 20, float(weights.norm()))
