"""Published and independently computed reference values, corrections of published claims, and other libraries' accountants."""

import math

import dp_accounting
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from privet.accounting import Event, epsilon, noise_multiplier, rdp
from privet.accounting.queries import composed_epsilon
from privet.accounting.rdp import accountant

# q, σ, T, δ → ε by "pld" (the true value), "rdp" and "gdp" where known.
TABLE = {
    "one release": ((1.0, 1.0, 1, 1e-5), 4.37718, None, 4.37718),
    "wine, full batch": ((1.0, 35.0, 2000, 1 / 1406.9), 4.3959, 4.906, 4.396),
    "Abadi 2016": ((0.01, 4.0, 10_000, 1e-5), 0.94687, 1.03549, 0.94244),
    "strong noise": ((0.01, 1.0, 10_000, 1e-5), 6.18771, 6.71274, 6.00708),
    "MNIST, 15 epochs": ((256 / 60_000, 1.1, 3515, 1e-5), 1.13371, 1.281, 1.077),
    "MNIST, 60 epochs": ((256 / 60_000, 1.1, 14_062, 1e-5), 2.38160, 2.59656, 2.32427),
    "CIFAR-10, 15 epochs": ((0.02, 1.3, 750, 1e-5), 2.10470, 2.321, 1.95781),
    "housing": ((256 / 18_576, 1.0, 3650, 1 / (1.1 * 18_576)), 4.62386, 5.10, 4.42429),
    "SNLI": ((32 / 550_152, 0.4, 51_576, 1 / 550_152), 5.1307, 6.49, 1.2535),
    "many releases at a tiny rate": ((1e-4, 1.0, 10**7, 1e-6), 1.8384, None, None),
    "small noise": ((0.01, 0.3, 1000, 1e-5), 69.816, None, None),
}
cases = pytest.mark.parametrize(("setting", "pld", "by_rdp", "by_gdp"), TABLE.values(), ids=TABLE)


def ask(setting, accountant, adjacency="add-remove"):
    q, sigma, steps, delta = setting
    return epsilon(sampling_rate=q, noise_multiplier=sigma, steps=steps, delta=delta, adjacency=adjacency, accountant=accountant)


@cases
def test_pld_is_the_true_value_from_above(setting, pld, by_rdp, by_gdp):
    assert pld * (1 - 5e-4) <= ask(setting, "pld") <= pld * (1 + 2e-3)


@cases
def test_rdp_is_what_its_best_order_gives(setting, pld, by_rdp, by_gdp):
    found = ask(setting, "rdp")
    assert found >= pld
    if by_rdp is not None:
        assert found == pytest.approx(by_rdp, rel=1.5e-3)


@cases
def test_gdp_is_the_central_limit_and_below_the_truth_when_sampled(setting, pld, by_rdp, by_gdp):
    found = ask(setting, "gdp")
    if by_gdp is not None:
        assert found == pytest.approx(by_gdp, rel=1e-3)
        assert found < pld or setting[0] == 1


CLAIMS = {
    # what was published, what it is: (q, σ, T, δ), published ε, true ε
    "MNIST says 15 epochs and means 60": ((256 / 60_000, 1.1, 14_062, 1e-5), 2.32, 2.3816),
    "CIFAR-10, 15 epochs": ((0.02, 1.3, 750, 1e-5), 1.96, 2.1047),
    "housing, 50 epochs": ((256 / 18_576, 1.0, 3628, 1 / (1.1 * 18_576)), 4.41, 4.608),
    "wine, exact without sampling": ((1.0, 35.0, 2000, 1 / 1406.9), 4.40, 4.3959),
    "CIFAR-10, 1 epoch": ((0.02, 1.3, 50, 1e-5), 0.442, 0.600),
    "CIFAR-10, 10 epochs": ((0.02, 1.3, 500, 1e-5), 1.563, None),
    "SNLI, another number of steps": ((32 / 550_152, 0.4, 54_076, 1 / 550_152), 1.286, 5.163),
    "SNLI, four times too small": ((32 / 550_152, 0.4, 51_576, 1 / 550_152), 1.25, 5.131),
}


@pytest.mark.parametrize(("setting", "published", "truth"), CLAIMS.values(), ids=CLAIMS)
def test_published_numbers_are_central_limits_and_not_bounds(setting, published, truth):
    assert ask(setting, "gdp") == pytest.approx(published, abs=6e-3)
    if truth is not None:
        assert ask(setting, "pld") == pytest.approx(truth, rel=1e-3)
    assert ask(setting, "gdp") <= ask(setting, "pld") * (1 + 1e-9)


@pytest.mark.parametrize(("delta", "truth"), [(1e-9, 8.7654), (1e-12, 10.3467), (1e-20, 13.8798)])
def test_rdp_stays_above_the_truth_at_tiny_deltas(delta, truth):
    assert truth <= ask((0.01, 1.0, 10_000, delta), "rdp") <= truth * 1.1


def test_replacing_one_example_costs_more():
    setting = (256 / 60_000, 1.1, 3515, 1e-5)
    assert ask(setting, "pld", "replace-one") == pytest.approx(1.929, rel=1e-3)
    assert ask((1.0, 1.0, 1, 1e-5), "pld", "replace-one") == pytest.approx(9.99726, rel=1e-4)
    assert ask((1.0, 1.0, 1, 1e-5), "gdp", "replace-one") == pytest.approx(9.99726, rel=1e-4)
    assert 1.929 < ask(setting, "rdp", "replace-one") < 1.929 * 1.2
    assert ask(setting, "gdp", "replace-one") == pytest.approx(1.929, rel=0.06)


@pytest.mark.parametrize("accountant", ["pld", "rdp", "gdp"])
def test_zeroing_out_costs_as_much_as_removing(accountant):
    setting = (256 / 60_000, 1.1, 3515, 1e-5)
    assert ask(setting, accountant, "zero-out") == pytest.approx(ask(setting, accountant), rel=1e-6)


def gaussian_epsilon(sigma, steps, delta):
    """Return ε of the Gaussian mechanism by Balle and Wang 2018, Theorem 8."""
    mu = math.sqrt(steps) / sigma

    def excess(value):
        return ndtr(mu / 2 - value / mu) - math.exp(value + log_ndtr(-mu / 2 - value / mu)) - delta

    return brentq(excess, 0, mu**2 + 10 * mu, xtol=1e-13)


@pytest.mark.parametrize(("sigma", "steps", "delta"), [(2.3, 1, 1e-5), (2.3, 50, 1e-6), (35.0, 2000, 1e-4), (0.8, 3, 1e-7)])
def test_without_sampling_pld_and_gdp_are_the_analytic_gaussian(sigma, steps, delta):
    exact = gaussian_epsilon(sigma, steps, delta)
    assert exact * (1 - 1e-6) <= ask((1.0, sigma, steps, delta), "pld") <= exact * (1 + 1e-3)
    assert ask((1.0, sigma, steps, delta), "gdp") == pytest.approx(exact, rel=1e-8)
    assert exact <= ask((1.0, sigma, steps, delta), "rdp") <= exact * 1.25


@pytest.mark.parametrize("sigma", [1e-3, 0.01, 0.03])
def test_without_sampling_gdp_is_exact_however_little_noise(sigma):
    mu = 1 / sigma
    assert ask((1.0, sigma, 1, 1e-5), "gdp") == pytest.approx(mu**2 / 2 + 4.2649 * mu, rel=1e-2)


@pytest.mark.parametrize(
    ("setting", "target", "sigma"),
    [
        ((512 / 60_000, 2343, 1e-5), 3.0, 0.8917),
        ((256 / 9464, 1848, 1e-4), 8.0, 0.9113),
        ((0.01, 10_000, 1e-5), 3.0, 1.5650),
        ((1024 / 50_000, 1953, 1e-5), 2.0, 1.9687),
        ((512 / 40_000, 4687, 1e-5), 9.0, 0.7909),
        ((512 / 60_000, 7031, 1e-5), 9.0, 0.7219),
    ],
)
def test_calibrated_noise_for_known_experiments(setting, target, sigma):
    q, steps, delta = setting
    found = noise_multiplier(epsilon=target, sampling_rate=q, steps=steps, delta=delta)
    assert sigma - 1e-4 <= found <= sigma + 1e-3


@pytest.mark.parametrize(
    ("setting", "target", "by_rdp", "by_gdp"),
    [
        ((512 / 60_000, 2343, 1e-5), 3.0, 0.9376, 0.8470),
        ((512 / 40_000, 4687, 1e-5), 9.0, 0.8210, 0.7706),
        ((512 / 60_000, 7031, 1e-5), 9.0, 0.7476, 0.7026),
        ((1024 / 50_000, 1953, 1e-5), 2.0, 2.1078, 1.9324),
        ((256 / 9464, 1848, 1e-4), 8.0, 0.9575, 0.8927),
    ],
)
def test_what_other_accountants_would_have_calibrated(setting, target, by_rdp, by_gdp):
    """Too much noise by the one, too little by the other."""
    q, steps, delta = setting
    asked = {"epsilon": target, "sampling_rate": q, "steps": steps, "delta": delta}
    assert noise_multiplier(**asked, accountant="rdp") == pytest.approx(by_rdp, rel=1e-3)
    assert noise_multiplier(**asked, accountant="gdp") == pytest.approx(by_gdp, rel=1e-3)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ((0.02, 1.3, 750, 1e-5), 2.725),
        ((1.0, 35.0, 2000, 1 / 1406.9), 5.682),
        ((32 / 550_152, 0.4, 51_576, 1 / 550_152), 7.45),
    ],
)
def test_the_moments_accountant_on_published_settings(setting, value):
    assert ask(setting, "moments") == pytest.approx(value, abs=6e-3)


@pytest.mark.parametrize(("order", "value"), [(1.1, 0.00200103), (2.0, 0.00366624), (2.5, 0.00460253)])
def test_divergences_of_one_release(monkeypatch, order, value):
    monkeypatch.setattr(accountant, "ORDERS", np.array([order, 8.0]))
    assert rdp.divergences.__wrapped__(0.3, 5.0, "add-remove")[0] == pytest.approx(value, rel=3e-6)


@pytest.mark.parametrize("q", [0.003, 0.3, 1.0])
@pytest.mark.parametrize("sigma", [0.6, 2.3])
def test_divergences_agree_with_dp_accounting_at_whole_orders(monkeypatch, q, sigma):
    orders = np.array([2.0, 3.0, 5.0, 17.0, 40.0])
    monkeypatch.setattr(accountant, "ORDERS", orders)
    theirs = dp_accounting.rdp.RdpAccountant(orders=list(orders))
    theirs.compose(dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma)))
    np.testing.assert_allclose(rdp.divergences.__wrapped__(q, sigma, "add-remove"), theirs._rdp, rtol=1e-7)


HISTORY = [(2.3, 0.01, 400), (1.1, 0.004, 1000), (0.9, 0.01, 50)]
ALONE = [[one] for one in HISTORY]


@pytest.mark.parametrize("history", [HISTORY, *ALONE], ids=["together", *map(str, HISTORY)])
def test_opacus_agrees(history):
    accountants = pytest.importorskip("opacus.accountants")
    events = [Event(q, sigma, steps) for sigma, q, steps in history]
    prv, theirs = accountants.PRVAccountant(), accountants.RDPAccountant()
    prv.history = theirs.history = history
    estimate = prv.get_epsilon(1e-5, eps_error=0.02)  # an upper end: the truth lies within twice the error below it
    assert estimate - 0.05 <= composed_epsilon(events, delta=1e-5) <= estimate + 1e-3
    ours = composed_epsilon(events, delta=1e-5, accountant="rdp")
    assert ours == pytest.approx(
        theirs.get_epsilon(1e-5, alphas=[1 + x / 10 for x in range(1, 100)] + list(range(12, 64))), rel=2e-3
    )


def test_noise_that_doubles_over_the_training_starts_lower():
    """A multiplier σ·(1 + t/T) over 10,000 steps, each of 500 values taken for 20 of them."""
    factors = 1 + (np.arange(500) + 0.5) / 500
    for target, base in ((2.0, 1.525), (0.5, 5.006)):
        spent = composed_epsilon([Event(0.01, float(base * factor), 20) for factor in factors], delta=1e-5)
        assert spent == pytest.approx(target, rel=5e-3)
    assert ask((0.01, 2.129, 10_000, 1e-5), "pld") == pytest.approx(2.0, rel=1e-3)


def test_a_schedule_of_many_multipliers_agrees_with_dp_accounting():
    sigmas = np.geomspace(0.8, 1.6, 100)
    ours = composed_epsilon([Event(0.01, float(sigma), 100) for sigma in sigmas], delta=1e-5, accountant="rdp")
    theirs = dp_accounting.rdp.RdpAccountant(orders=[float(order) for order in range(2, 40)])
    for sigma in sigmas:
        theirs.compose(dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(float(sigma))), 100)
    assert 5.7225 < ours == pytest.approx(theirs.get_epsilon(1e-5), rel=0.02)
