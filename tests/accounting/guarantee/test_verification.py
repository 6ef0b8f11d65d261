import json
import sys
from dataclasses import replace

import pytest

from plans import plan
from privet.accounting import (
    BallsInBinsEvent,
    Event,
    FixedSizeEvent,
    LaplaceEvent,
    RandomizedResponseEvent,
    TruncatedPoissonEvent,
)
from privet.accounting.events import ADJACENCIES
from privet.accounting.guarantee.verification import TOLERANCE, verify_epsilon
from privet.accounting.queries import composed_epsilon
from privet.errors import InvalidArgumentError
from privet.sampling import Poisson
from privet.sampling import TruncatedPoisson as Truncated

TRUNCATED = plan(examples=5000, sampling=Truncated(50, cap=100), steps=20)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_ours_is_not_below_theirs(adjacency):
    events = [Event(0.01, 1.3, 400), Event(1.0, 30.0, 5), BallsInBinsEvent(20.0, 2)]
    ours = composed_epsilon(events, delta=1e-6, adjacency=adjacency)
    found = verify_epsilon(events, epsilon=ours, delta=1e-6, adjacency=adjacency)
    assert found.agrees
    assert found.theirs == pytest.approx(ours, rel=2e-3)
    assert json.loads(json.dumps(found.to_dict())) == {
        "dp_accounting_epsilon": found.theirs, "verified": True, "tolerance": TOLERANCE,
    }  # fmt: skip


def test_looser_bounds_are_above_and_the_approximation_is_caught():
    events = [Event(0.01, 0.7, 500)]
    found = {name: composed_epsilon(events, delta=1e-5, accountant=name) for name in ("rdp", "moments", "strong", "basic", "gdp")}
    caught = verify_epsilon(events, epsilon=found.pop("gdp"), delta=1e-5)
    assert caught.agrees is False
    assert "is more than 2% below" in str(caught)
    assert all(replace(caught, epsilon=bound).agrees for bound in found.values())


def test_tiny_noise_releases_are_asked_on_a_grid_as_fine_as_ours():
    events = [Event(0.01, 50.0, 100)]
    ours = composed_epsilon(events, delta=1e-5)
    assert verify_epsilon(events, epsilon=ours, delta=1e-5).theirs == pytest.approx(ours, rel=1e-3)


@pytest.mark.parametrize(
    ("event", "adjacency", "what"),
    [(FixedSizeEvent(0.01, 2.0, 10), "replace-one", "FixedSize"), (Event(0.01, 2.0, 10, 30), "add-remove", "norms estimated")],
)
def test_a_missing_answer_is_explained(event, adjacency, what):
    found = verify_epsilon([event], epsilon=1.0, delta=1e-5, adjacency=adjacency)
    assert (found.theirs, found.agrees) == (None, None)
    assert f"no privacy loss distribution for {what}" in str(found)
    assert "Nothing was verified" in str(found)


def test_without_noise_both_say_infinity():
    found = verify_epsilon([Event(0.1, 0.0)], epsilon=float("inf"), delta=1e-5)
    assert found.agrees
    assert found.to_dict()["dp_accounting_epsilon"] == "inf"


def test_a_delta_at_which_theirs_is_too_small_is_remarked_on():
    events = [Event(0.01, 1.0, 500)]
    assert "too small at this δ" in str(verify_epsilon(events, epsilon=9.0, delta=1e-10))
    assert "too small" not in str(verify_epsilon(events, epsilon=9.0, delta=1e-7))


@pytest.fixture
def without_dp_accounting(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)


@pytest.mark.usefixtures("without_dp_accounting")
def test_what_needs_it_says_how_to_install_it():
    for ask in (
        lambda: verify_epsilon([Event(0.1, 2.0)], epsilon=1.0, delta=1e-5),
        lambda: composed_epsilon([TruncatedPoissonEvent(0.011, 2.1, 5, 4999, 90)], delta=1e-5),
        TRUNCATED.check_covered,
    ):
        with pytest.raises(InvalidArgumentError, match=r"pip install 'privet\[verify\]'"):
            ask()


@pytest.mark.usefixtures("without_dp_accounting")
def test_nothing_else_needs_it():
    for event, adjacency in ((Event(0.013, 1.9, 7), "replace-one"), (FixedSizeEvent(0.013, 1.9, 7), "replace-one")):
        assert composed_epsilon([event], delta=1e-5, adjacency=adjacency) > 0


def test_the_statement_names_its_version_where_it_priced_something():
    assert "dp-accounting" in TRUNCATED.guarantee().versions
    assert set(replace(TRUNCATED, sampling=Poisson(50)).guarantee().versions) == {"privet", "torch", "numpy", "scipy"}


def test_laplace_noise_is_verified_where_dp_accounting_covers_it():
    events = [LaplaceEvent(0.1, 3.0, 50), LaplaceEvent(1.0, 9.0)]
    found = verify_epsilon(events, epsilon=composed_epsilon(events, delta=1e-5), delta=1e-5)
    assert found.agrees
    assert found.theirs == pytest.approx(found.epsilon, rel=2e-3)
    assert verify_epsilon(events, epsilon=0.9 * found.epsilon, delta=1e-5).agrees is False
    for event, adjacency in ((events[1], "replace-one"), (RandomizedResponseEvent(0.75), "replace-one")):
        assert verify_epsilon([event], epsilon=1.0, delta=1e-5, adjacency=adjacency).agrees is None
