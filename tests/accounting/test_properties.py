import itertools
import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from privet.accounting import Event, epsilon, noise_multiplier, steps
from privet.accounting.events import ADJACENCIES
from privet.accounting.queries import ACCOUNTANTS, DEFAULT_ACCOUNTANT, DIRECTIONS, composed_epsilon
from privet.errors import InvalidArgumentError

# An expansion is an estimate, with none of these properties; test_edgeworth says what it has.
PROVEN = [name for name in ACCOUNTANTS if name != "edgeworth"]
EVERY = pytest.mark.parametrize("accountant", PROVEN)
PLAIN = {"sampling_rate": 0.01, "noise_multiplier": 2.3, "steps": 500, "delta": 1e-5}
QUIET = settings(max_examples=8)
# Rounding of quadratures and formulas; "pld" has none (test_monotone).
SLACK = {name: 1.0 if name == "pld" else 1 + 1e-9 for name in PROVEN}


def varied(**changes):
    return epsilon(**{**PLAIN, **changes})


@EVERY
@QUIET
@given(
    q=st.floats(1e-3, 1.0), sigma=st.floats(0.7, 20.0), number=st.integers(1, 2000), delta=st.floats(1e-8, 1e-2),
    by=st.floats(1.05, 3),
)  # fmt: skip
def test_epsilon_grows_with_everything_that_is_released(accountant, q, sigma, number, delta, by):
    def ask(rate=q, multiplier=sigma, times=number, at=delta):
        return epsilon(sampling_rate=rate, noise_multiplier=multiplier, steps=times, delta=at, accountant=accountant)

    base, slack = ask(), SLACK[accountant]
    assert 0 <= base < math.inf
    assert ask(times=math.ceil(number * by)) * slack >= base
    assert ask(multiplier=sigma / by) * slack >= base
    assert ask(at=delta / by) * slack >= base if delta / by >= 1e-8 else True
    # The approximation of q < 1 need not meet the exact value of q = 1.
    if accountant != "gdp" or q * by < 1:
        assert ask(rate=min(1.0, q * by)) * slack >= base


@EVERY
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_composition_does_not_depend_on_order(accountant, adjacency):
    history = [Event(0.01, 2.3, 30), Event(0.01, 1.1, 20), Event(0.02, 2.3, 5)]
    found = {
        composed_epsilon(order, delta=1e-5, adjacency=adjacency, accountant=accountant)
        for order in itertools.permutations(history)
    }
    assert max(found) == pytest.approx(min(found), rel=1e-9)


@EVERY
def test_a_release_n_times_is_n_releases(accountant):
    together = composed_epsilon([Event(0.01, 2.3, 60)], delta=1e-5, accountant=accountant)
    assert composed_epsilon([Event(0.01, 2.3)] * 60, delta=1e-5, accountant=accountant) == together
    assert composed_epsilon((Event(0.01, 2.3, 20) for _ in range(3)), delta=1e-5, accountant=accountant) == together


@EVERY
def test_nothing_released_costs_nothing_and_no_noise_costs_everything(accountant):
    assert varied(steps=0, accountant=accountant) == 0
    assert composed_epsilon([], delta=1e-5, accountant=accountant) == 0
    assert varied(noise_multiplier=0, accountant=accountant) == math.inf
    assert varied(noise_multiplier=0, steps=0, accountant=accountant) == 0
    assert composed_epsilon([Event(0.01, 2.3, 5), Event(0.01, 0.0)], delta=1e-5, accountant=accountant) == math.inf


@EVERY
@pytest.mark.parametrize(
    ("adjacency", "sigma", "q"),
    [("add-remove", 1e-3, 1e-6), ("replace-one", 0.05, 1e-6), ("zero-out", 1e6, 1e-6), ("replace-one", 1e-3, 1.0)],
)
def test_every_allowed_noise_has_an_answer(accountant, adjacency, sigma, q):
    assert 0 <= varied(noise_multiplier=sigma, sampling_rate=q, accountant=accountant, adjacency=adjacency) <= math.inf


@EVERY
def test_a_bad_delta_is_refused_by_name(accountant):
    for delta in (0, 1, -1e-5, math.nan, math.inf, True, "1e-5", None):
        with pytest.raises(InvalidArgumentError, match=r"^delta is"):
            varied(delta=delta, accountant=accountant)


@pytest.mark.parametrize("word", ["add", "", None, 1, "Add-Remove"])
def test_unknown_words_are_refused_with_the_known_ones(word):
    with pytest.raises(InvalidArgumentError, match=r"^adjacency is .*'add-remove', 'replace-one', 'zero-out'"):
        varied(adjacency=word)
    with pytest.raises(InvalidArgumentError, match=r"^accountant is .*'pld', 'rdp', .*'gdp'"):
        varied(accountant=word)
    with pytest.raises(InvalidArgumentError, match=r"^accountant is .*'pld', 'rdp', .*'gdp'"):
        noise_multiplier(epsilon=3, sampling_rate=0.01, steps=500, delta=1e-5, accountant=word)


def test_the_default_accountant_is_the_tightest_that_is_sound():
    for delta in (1e-3, 1e-9, 1e-30, 1e-200):
        assert varied(delta=delta) <= varied(delta=delta, accountant="rdp")
    assert next(iter(ACCOUNTANTS)) == DEFAULT_ACCOUNTANT == "pld"
    assert DIRECTIONS["pld"] == DIRECTIONS["rdp"] == "upper bound"
    assert "too small" in DIRECTIONS["gdp"]


@EVERY
@pytest.mark.parametrize(("adjacency", "target"), [("add-remove", 0.05), ("replace-one", 1.7)])
def test_calibrated_noise_never_overshoots_and_is_no_more_than_needed(accountant, adjacency, target):
    # 32 moments prove nothing below log(1/δ)/32.
    target = max(target, 0.6) if accountant == "moments" else target
    setting = {"sampling_rate": 0.01, "steps": 200, "delta": 1e-5, "adjacency": adjacency, "accountant": accountant}
    sigma = noise_multiplier(epsilon=target, **setting)
    assert epsilon(noise_multiplier=sigma, **setting) <= target < epsilon(noise_multiplier=sigma * (1 - 1e-4), **setting)


@EVERY
@settings(max_examples=5)
@given(target=st.floats(0.3, 3.0), sigma=st.floats(1.0, 5.0), q=st.floats(1e-3, 0.05))
def test_solved_steps_are_as_many_as_fit(accountant, target, sigma, q):
    setting = {"sampling_rate": q, "noise_multiplier": sigma, "delta": 1e-5, "accountant": accountant}
    assume(epsilon(steps=1, **setting) <= target < epsilon(steps=2000, **setting))
    number = steps(epsilon=target, **setting)
    assert epsilon(steps=number, **setting) <= target < epsilon(steps=number + 1, **setting)


@pytest.mark.parametrize("target", [0, -1, math.nan, math.inf, True, "3", None])
def test_a_bad_target_is_refused_by_name(target):
    with pytest.raises(InvalidArgumentError, match=r"^epsilon is"):
        noise_multiplier(epsilon=target, sampling_rate=0.01, steps=500, delta=1e-5)
    with pytest.raises(InvalidArgumentError, match=r"^epsilon is"):
        steps(epsilon=target, sampling_rate=0.01, noise_multiplier=2.3, delta=1e-5)
