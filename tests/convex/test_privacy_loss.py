import math

import numpy as np
import pytest
from scipy import stats

from privet.accounting.classic import gaussian
from privet.convex import Huber, Logistic
from privet.convex.privacy_loss import composed_delta, composed_epsilon

GRID = np.linspace(-400, 400, 400_001)


def masses(slope, deviation, regularisation, others):
    """Return the probabilities of cells of θ for `others` copies of an example and for one more, of a model with one weight.

    b is a decreasing function of θ: minus the gradient of the rest. So the cells of θ are cells of b, which is Gaussian.
    """
    found = []
    for copies in (others, others + 1):
        b = -(copies * slope(GRID) + regularisation * GRID) / deviation
        lower, upper = b[1:], b[:-1]  # the tail with fewer digits lost
        found.append(
            np.where(lower > 0, stats.norm.sf(lower) - stats.norm.sf(upper), stats.norm.cdf(upper) - stats.norm.cdf(lower))
        )
        assert abs(found[-1].sum() - 1) < 1e-9
    return found


def least_delta(epsilon, p, q):
    """Return δ at ε of an attacker who sees the cell alone, a lower bound on that of the release."""
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def logistic(z):
    return 1 / (1 + np.exp(-z))


def largest_share(loss, pair, regularisation, multiplier):
    """Return the largest δ of an attacker over the bound, which no attacker exceeds."""
    largest, numbers = 0.0, {"tails": loss.tails, "log_determinant": loss.log_determinant(regularisation)}
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        bound = composed_delta(epsilon, mu=1 / multiplier, **numbers)
        for p, q in (pair, pair[::-1]):
            found = least_delta(epsilon, p, q)
            assert found <= bound * (1 + 1e-9) + 1e-12
            largest = max(largest, found / bound)
    return largest


# Both neighbours' scores differ by w = θ₁ − θ₀ alone: a model of one weight with the loss log(1 + e^−w). The bound for two
# classes has L = √2 and Λ per class, which is L = 1, and Λ/2 for w.
@pytest.mark.parametrize("others", [0, 1, 10])
@pytest.mark.parametrize(("regularisation", "multiplier"), [(1.0, 3.0), (0.5, 5.0), (4.0, 1.5)])
def test_the_bound_holds_for_logistic_regression_of_one_weight(others, regularisation, multiplier):
    pair = masses(lambda w: -logistic(-w), multiplier, regularisation / 2, others)
    share = largest_share(Logistic(2), pair, regularisation, multiplier)
    assert share > (0.1 if others == 0 else 1e-3)  # the bound is close for the first example


@pytest.mark.parametrize("others", [0, 3])
@pytest.mark.parametrize(("threshold", "regularisation", "multiplier"), [(0.5, 1.0, 3.0), (1.0, 4.0, 2.0), (0.3, 2.0, 1.0)])
def test_the_bound_holds_for_linear_regression_of_one_weight(others, threshold, regularisation, multiplier):
    pair = masses(lambda w: np.clip(w - 0.7, -threshold, threshold), multiplier * threshold, regularisation, others)
    largest_share(Huber(threshold), pair, regularisation, multiplier)


@pytest.mark.parametrize("output_mu", [0.0, 0.05])
@pytest.mark.parametrize(("mu", "tails"), [(0.1, 1), (0.7, 2), (2.0, 6)])
def test_above_the_middle_the_profile_is_that_of_gaussian_mechanisms_added_up(mu, tails, output_mu):
    together = math.hypot(mu, output_mu)
    for epsilon in (3 * mu + mu**2, 5 * mu + mu**2, 8 * mu + mu**2):
        expected = tails * math.exp(gaussian.log_delta(together, epsilon))
        found = composed_delta(epsilon + 0.3, mu=mu, tails=tails, log_determinant=0.3, output_mu=output_mu)
        assert expected * (1 - 1e-6) <= min(found, 1) or found == 1
        if expected < 0.1 and not output_mu:
            assert found <= expected * 1.02


def test_the_profile_of_two_tails_is_the_published_one():
    """Redberg, Koskela, Wang 2023, in both of its cases."""
    mu, log_determinant = 0.4, 0.2
    for epsilon in (0.0, 0.1, 0.25, 0.3, 1.0, 3.0):
        left = epsilon - log_determinant
        room = left - mu**2 / 2
        if room >= 0:
            expected = 2 * math.exp(gaussian.log_delta(mu, left))
        else:
            expected = -math.expm1(room) + math.exp(room) * 2 * math.exp(gaussian.log_delta(mu, mu**2 / 2))
        found = composed_delta(epsilon, mu=mu, tails=2, log_determinant=log_determinant)
        assert min(expected, 1) * (1 - 1e-9) <= found <= expected * 1.01 + 1e-12


def test_epsilon_is_the_inverse_of_delta_and_never_below_it():
    for delta in (1e-3, 1e-5, 1e-12):
        numbers = {"mu": 0.3, "tails": 3, "log_determinant": 0.1, "output_mu": 0.03}
        epsilon = composed_epsilon(delta, **numbers)
        assert composed_delta(epsilon, **numbers) <= delta <= composed_delta(epsilon * (1 - 1e-6), **numbers)
    assert composed_epsilon(0.9, mu=0.01, tails=1, log_determinant=0.0) == 0.0


def test_more_noise_fewer_directions_and_less_curvature_cost_less():
    base = {"mu": 0.5, "tails": 2, "log_determinant": 0.2, "output_mu": 0.05}
    delta = composed_delta(1.0, **base)
    for name, less in (("mu", 0.4), ("tails", 1), ("log_determinant", 0.1), ("output_mu", 0.01)):
        assert composed_delta(1.0, **{**base, name: less}) < delta
