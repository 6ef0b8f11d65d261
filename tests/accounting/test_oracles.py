"""Other accountants on random plans: permitted direction and size of the difference from ours.

| oracle | what must hold |
|---|---|
| prv-accountant | its lower and upper bound enclose the truth: ours is above the one, and not above the other |
| Opacus' PRV | its ε is an upper end: the truth, and ours, lie within its error below |
| Opacus' RDP | the same divergences: ours by "rdp" is equal at the same orders; ours by "pld" is not above |
| riskcal | trade-off numbers of dp-accounting's distributions, upper bounds too: ours grant attackers as much, and hardly more |

Each fails somewhere (small δ, large ε, little noise), so plans are drawn from where all of them work.
"""

import warnings

import numpy as np
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st
from opacus.accountants import PRVAccountant as OpacusPRV
from opacus.accountants import RDPAccountant as OpacusRDP
from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant
from riskcal.accountants import CTDAccountant
from riskcal.analysis import get_advantage_from_pld, get_bayes_risk_from_pld, get_beta_from_pld

from privet.accounting import Event, rdp
from privet.accounting.guarantee import tradeoff
from privet.accounting.queries import composed_epsilon

FEW = settings(max_examples=3)
# Ours is above the truth by less than this share of ε, and what a composition adds to every release: a hair.
OURS, HAIR = 1e-3, 1e-5

releases = st.builds(Event, st.floats(-4, -0.3).map(lambda power: 10**power), st.floats(0.6, 6.0), st.integers(1, 1500))
plans = st.lists(releases, min_size=1, max_size=3)
deltas = st.floats(-7, -3).map(lambda power: 10**power)


def history(events):
    return [(event.noise_multiplier, event.sampling_rate, event.count) for event in events]


def asked(events, delta, accountant="pld"):
    """Return our ε, where it is one that all can compute."""
    found = composed_epsilon(events, delta=delta, accountant=accountant)
    assume(0.05 < composed_epsilon(events, delta=delta) < 15)
    return found


@FEW
@given(plans, deltas)
def test_prv_bounds_enclose_ours(events, delta):
    ours, error = asked(events, delta), 0.03
    mechanisms = [
        PoissonSubsampledGaussianMechanism(sampling_probability=event.sampling_rate, noise_multiplier=event.noise_multiplier)
        for event in events
    ]
    counts = [event.count for event in events]
    try:
        theirs = PRVAccountant(prvs=mechanisms, max_self_compositions=counts, eps_error=error, delta_error=delta / 1000)
    except RuntimeError:  # its discretisation is not what it asks of itself: it gives no bounds here
        reject()
    lower, _, upper = theirs.compute_epsilon(delta=delta, num_self_compositions=counts)
    # It knows the direction "remove" alone, which decides unless ε is small.
    assert lower <= ours
    assert ours <= upper * (1 + OURS) + HAIR or ours < 0.1


@FEW
@given(plans, deltas)
def test_opacus_prv_is_an_error_above(events, delta):
    ours, theirs, error = asked(events, delta), OpacusPRV(), 0.03
    theirs.history = history(events)
    found = theirs.get_epsilon(delta, eps_error=error)
    assert found - 2.5 * error <= ours <= found * (1 + OURS) + HAIR


@FEW
@given(plans, deltas)
def test_opacus_rdp_has_our_divergences_and_bounds_our_distributions(events, delta):
    ours, theirs = asked(events, delta, "rdp"), OpacusRDP()
    for event in history(events):
        theirs.history.append(event)
    # Its sums have as many terms as the order.
    orders = [float(order) for order in rdp.ORDERS if order <= 256]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # at an end of the orders
        found, order = theirs.get_privacy_spent(delta=delta, alphas=orders)
    assert ours <= found * (1 + 1e-9)
    assert found <= ours * (1 + 1e-9) or order == orders[-1]
    assert composed_epsilon(events, delta=delta) <= found


@FEW
@given(st.floats(0.01, 0.4), st.floats(0.7, 2.0), st.integers(1, 300))
def test_riskcal_leaves_an_attacker_as_much(q, sigma, steps):
    theirs, events = CTDAccountant(), [Event(q, sigma, steps)]
    asked(events, 1e-5)
    theirs.history = history(events)
    distribution = theirs.get_pld(grid_step=5e-4)
    rates = np.array([0.001, 0.01, 0.1, 0.5])
    missed = np.asarray(get_beta_from_pld(distribution, rates))
    privacy = tradeoff.profile(events)
    ours = tradeoff.false_negative_rate(privacy, rates)
    # Ours are from forty points of the curve, theirs from the whole of a coarser one.
    assert (ours <= missed + 2e-3).all()
    np.testing.assert_allclose(ours, missed, atol=0.015)
    advantage = float(get_advantage_from_pld(distribution))
    assert advantage * 0.99 <= tradeoff.advantage(privacy) <= advantage * 1.01
    for prior in (0.5, 0.1):
        risk = float(get_bayes_risk_from_pld(distribution, prior))
        assert risk - 0.015 <= tradeoff.bayes_risk(privacy, prior) <= risk + 2e-3
