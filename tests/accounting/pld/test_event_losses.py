import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, SampledWithoutReplacementDpEvent, dp_event
from dp_accounting.rdp import RdpAccountant
from scipy import stats
from scipy.special import ndtr

from privet.accounting import BallsInBinsEvent, Event, FixedSizeEvent, ShuffledEvent, TruncatedPoissonEvent, combined
from privet.accounting.events import ADJACENCIES
from privet.accounting.guarantee import verification
from privet.accounting.pld import event_losses
from privet.accounting.queries import composed_delta, composed_epsilon, composed_multiplier
from privet.errors import InvalidArgumentError

TRUNCATED = TruncatedPoissonEvent(0.01, 1.3, 500, examples=20_000, largest_batch=260)
KINDS = {
    "poisson": (Event(0.01, 1.3, 500), ("pld", "rdp", "gdp"), ("add-remove", "replace-one", "zero-out")),
    "full batch": (Event(1.0, 20.0, 50), ("pld", "rdp", "gdp"), ("add-remove", "replace-one", "zero-out")),
    "projected": (Event(0.01, 1.3, 500, projections=100), ("pld",), ("add-remove", "zero-out")),
    "fixed size": (FixedSizeEvent(0.01, 1.3, 500), ("pld", "rdp"), ("replace-one",)),
    "truncated": (TRUNCATED, ("pld",), ("add-remove",)),
    "shuffled": (ShuffledEvent(3.0, 4), ("pld", "rdp", "gdp"), ("replace-one", "zero-out")),
    "balls in bins": (BallsInBinsEvent(3.0, 4), ("pld", "rdp", "gdp"), ("add-remove", "replace-one", "zero-out")),
}
every_kind = pytest.mark.parametrize(("event", "accountants", "adjacencies"), KINDS.values(), ids=KINDS)


@every_kind
def test_what_is_covered_has_an_answer_and_what_is_not_is_refused_by_name(event, accountants, adjacencies):
    for adjacency in ADJACENCIES:
        if adjacency not in adjacencies:
            with pytest.raises(InvalidArgumentError, match=rf"^adjacency is '{adjacency}'; it must be '{adjacencies[0]}'"):
                composed_epsilon([event], delta=1e-5, adjacency=adjacency)
            continue
        found = {}
        for accountant in ("pld", "rdp", "gdp"):
            if accountant in accountants:
                found[accountant] = composed_epsilon([event], delta=1e-5, adjacency=adjacency, accountant=accountant)
            else:
                with pytest.raises(InvalidArgumentError, match=rf"^accountant is '{accountant}'; it must be 'pld'"):
                    composed_epsilon([event], delta=1e-5, adjacency=adjacency, accountant=accountant)
        assert all(0 < value < math.inf for value in found.values())
        assert found["pld"] <= found.get("rdp", math.inf)


@every_kind
def test_every_kind_grows_with_steps_and_shrinks_with_noise(event, accountants, adjacencies):
    def ask(multiplier, number):
        changed = type(event)(**{**vars(event), "noise_multiplier": multiplier, "count": number})
        return composed_epsilon([changed], delta=1e-5, adjacency=adjacencies[0])

    base = ask(event.noise_multiplier, event.count)
    assert ask(event.noise_multiplier, 2 * event.count) > base > ask(2 * event.noise_multiplier, event.count)
    assert ask(event.noise_multiplier, 0) == 0
    assert ask(0, event.count) == math.inf


@every_kind
def test_every_kind_composes_with_a_full_batch(event, accountants, adjacencies):
    alone = composed_epsilon([event], delta=1e-5, adjacency=adjacencies[0])
    more = composed_epsilon([event, Event(1.0, 8.0)], delta=1e-5, adjacency=adjacencies[0])
    assert alone < more < alone + 2.0


def test_no_noise_at_any_kind_is_calibrated_below_its_target():
    for event, _, adjacencies in KINDS.values():
        if event is TRUNCATED:
            continue

        def made(sigma, event=event):
            return [replace(event, noise_multiplier=sigma, count=3)]

        setting = {"delta": 1e-5, "adjacency": adjacencies[0]}
        sigma = composed_multiplier(made, epsilon=0.7, **setting)
        assert composed_epsilon(made(sigma), **setting) <= 0.7 < composed_epsilon(made(sigma * 0.999), **setting)


def test_fixed_size_is_between_what_one_neighbour_costs_and_the_published_bound():
    event = FixedSizeEvent(256 / 60_000, 1.1, 3515)
    found = composed_epsilon([event], delta=1e-5, adjacency="replace-one")
    assert found == pytest.approx(8.91, abs=0.01)
    one_sided = composed_epsilon([Event(256 / 60_000, 0.55, 3515)], delta=1e-5)
    assert one_sided == pytest.approx(7.82, abs=0.01)
    assert one_sided < found < composed_epsilon([event], delta=1e-5, adjacency="replace-one", accountant="rdp")


@pytest.mark.parametrize(("q", "sigma"), [(0.02, 1.3), (0.2, 4.0)])
def test_fixed_size_rdp_is_the_published_bound(q, sigma):
    """dp-accounting's noise is over the sensitivity of replacing, twice the bound."""
    theirs = RdpAccountant([float(order) for order in range(2, 40)], NeighboringRelation.REPLACE_ONE)
    theirs.compose(SampledWithoutReplacementDpEvent(1000, int(1000 * q), dp_event.GaussianDpEvent(sigma / 2)), 50)
    ours = composed_epsilon([FixedSizeEvent(q, sigma, 50)], delta=1e-6, adjacency="replace-one", accountant="rdp")
    assert theirs.get_epsilon(1e-6) * (1 - 1e-3) <= ours <= theirs.get_epsilon(1e-6) * 1.15


@pytest.mark.parametrize(
    ("projections", "low", "high"), [(10, 13.19, 13.45), (30, 1.665, 1.70), (100, 1.217, 1.23), (3000, 1.1618, 1.17)]
)
def test_estimated_norms_cost_more_the_fewer_projections(projections, low, high):
    found = composed_epsilon([Event(0.004, 1.0, 3000, projections=projections)], delta=1e-5)
    assert low <= found <= high
    assert found > composed_epsilon([Event(0.004, 1.0, 3000)], delta=1e-5)


def test_estimated_norms_against_simulated_sensitivities():
    """The averaged profile of one full-batch release, drawn from its definition."""
    draws = np.sqrt(30 / np.random.default_rng().chisquare(30, 400_000))
    sigma, at = 2.0, 1.0
    mu = draws / sigma
    profile = ndtr(mu / 2 - at / mu) - math.exp(at) * ndtr(-mu / 2 - at / mu)
    truth, error = profile.mean(), 5.5 * profile.std() / math.sqrt(len(draws))
    found = composed_delta([Event(1.0, sigma, projections=30)], epsilon=at)
    assert truth - error <= found <= (truth + error) * 1.02


@pytest.mark.parametrize(("largest", "low", "high"), [(1100, 6.785, 6.80)])
def test_truncation_costs_little_well_above_the_mean(largest, low, high):
    event = TruncatedPoissonEvent(0.01, 1.0, 10_000, examples=100_000, largest_batch=largest)
    assert low <= composed_epsilon([event], delta=1e-5) <= high


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
def test_an_epoch_of_a_partition_costs_one_full_batch(adjacency):
    for kind in (ShuffledEvent, BallsInBinsEvent):
        found = composed_epsilon([kind(1.1, 60)], delta=1e-5, adjacency=adjacency)
        assert found == composed_epsilon([Event(1.0, 1.1, 60)], delta=1e-5, adjacency=adjacency)
    if adjacency == "zero-out":
        assert found == pytest.approx(54.0, abs=0.1)


@pytest.mark.parametrize(
    ("steps", "number", "sigma", "delta", "low", "high"),
    [(1000, 1, 0.5, 1e-6, 4.0, 4.11), (100, 1, 1.0, 1e-5, 0.60, 0.624), (100, 10, 1.0, 1e-5, 1.65, 1.705)],
)
def test_random_allocation_is_as_tight_as_others_know_it(steps, number, sigma, delta, low, high):
    """The upper ends are those of PLD_accounting 2.0; the lower ones are below every bound that is known."""
    assert low <= composed_epsilon([BallsInBinsEvent(sigma, number, steps=steps)], delta=delta) <= high


@pytest.mark.parametrize("direction", ["removed", "added"])
@pytest.mark.parametrize(("steps", "sigma", "epsilon"), [(2, 0.8, 0.7), (7, 0.6, 1.0)])
def test_no_sample_of_random_allocation_shows_more_loss_than_is_counted(steps, sigma, epsilon, direction, holds_twice):
    def experiment():
        drawn = np.random.default_rng().normal(0.0, sigma, (200_000, steps))
        if direction == "removed":  # losses with the example, which is in the first step as well as in any
            drawn[:, 0] += 1.0
        losses = np.log(np.exp((drawn - 0.5) / sigma**2).mean(axis=1)) * (1.0 if direction == "removed" else -1.0)
        shown = np.maximum(0.0, -np.expm1(epsilon - losses))
        counted = composed_delta([BallsInBinsEvent(sigma, steps=steps)], epsilon=epsilon)
        surplus = (shown.mean() - counted) / (shown.std() / math.sqrt(len(shown)))
        assert direction == "added" or counted <= shown.mean() * 1.05
        return {"not above what is counted": stats.norm.sf(surplus)}

    holds_twice(experiment)


def test_random_allocation_costs_no_more_than_full_batches_and_less_the_more_steps_there_are():
    found = [composed_epsilon([BallsInBinsEvent(1.0, 3, steps=steps)], delta=1e-6) for steps in (2, 3, 20)]
    assert found == sorted(found, reverse=True)
    assert found[0] < composed_epsilon([BallsInBinsEvent(1.0, 3)], delta=1e-6)
    assert composed_epsilon([BallsInBinsEvent(1.0, 3, steps=10)], delta=1e-6, adjacency="replace-one") == composed_epsilon(
        [Event(1.0, 1.0, 3)], delta=1e-6, adjacency="replace-one"
    )
    for accountant in ("rdp", "gdp"):
        assert composed_epsilon([BallsInBinsEvent(1.0, 3, steps=10)], delta=1e-6, accountant=accountant) == composed_epsilon(
            [Event(1.0, 1.0, 3)], delta=1e-6, accountant=accountant
        )


def test_releases_from_one_subsample_are_one_release():
    assert combined([2.0]) == 2.0
    assert combined([1.0] * 10) == pytest.approx(1 / math.sqrt(10))
    # The count of how many are clipped, centred, has sensitivity 1/2 and noise 5.
    assert 1 / math.sqrt(1 - 1 / (2 * 5.0) ** 2) == pytest.approx(1.005038, abs=1e-6)
    assert combined([1.005038, 10.0]) == pytest.approx(1.0, abs=1e-6)
    assert combined([1.0, 0.0]) == 0.0
    together = composed_epsilon([Event(0.01, combined([1.0] * 10), 1000)], delta=1e-5)
    assert together == pytest.approx(59.15, rel=2e-3)
    assert composed_epsilon([Event(0.01, 1.0, 10_000)], delta=1e-5) < together / 9
    with pytest.raises(InvalidArgumentError, match=r"^multipliers is"):
        combined([])


@pytest.mark.parametrize("event", [Event(0.02, 1.3, 40), Event(1.0, 9.0, 5), BallsInBinsEvent(9.0, 5), TRUNCATED])
def test_dp_accounting_gives_the_same_epsilon(event):
    ours = composed_epsilon([event], delta=1e-5)
    assert ours == pytest.approx(verification.dp_accounting_epsilon([event], delta=1e-5, width=5e-4), rel=1e-3)


def test_impossible_truncations_and_too_few_projections_are_refused():
    for changes in (
        {"largest_batch": 0}, {"largest_batch": 30_000}, {"examples": 1}, {"sampling_rate": 1.0}, {"sampling_rate": 0},
    ):  # fmt: skip
        with pytest.raises(InvalidArgumentError, match=f"^{next(iter(changes))} is"):
            TruncatedPoissonEvent(**{**vars(TRUNCATED), **changes})
    for number in (0, 1, 9, True, 30.0):
        with pytest.raises(InvalidArgumentError, match=r"^projections is"):
            Event(0.01, 1.0, projections=number)


@pytest.mark.parametrize(("kind", "adjacency"), [(Event, "add-remove"), (Event, "replace-one"), (FixedSizeEvent, "replace-one")])
def test_losses_of_a_release_do_not_depend_on_what_is_asked_with_it(kind, adjacency):
    """Similar ones shared their range, so that a far loss was infinite or not, and counting one more forgot which."""
    events = [
        kind(rate, multiplier) for rate, multiplier in ((1e-6, 0.32), (2e-6, 0.35), (2e-6, 0.36), (0.01, 1.0), (0.011, 1.0))
    ]
    together = dict[Any, Any]()
    for places, ways in event_losses.losses(events, adjacency, 1e-32):
        for row, place in enumerate(places):
            together[events[place]] = [(way.nodes, way.masses[row].tolist(), way.infinite[row]) for way in ways]
    for event in events:
        ((_, ways),) = event_losses.losses([event], adjacency, 1e-32)
        assert together[event] == [(way.nodes, way.masses[0].tolist(), way.infinite[0]) for way in ways]
