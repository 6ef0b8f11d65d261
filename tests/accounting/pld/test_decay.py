"""Bounds on transforms beyond the frequencies of a series, against the transforms themselves."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.accounting import Event, FixedSizeEvent, LaplaceEvent
from privet.accounting.pld import event_losses
from privet.accounting.pld.decay import edges, log_bounds, uniform_masses
from privet.accounting.pld.discrete_loss import nodes
from privet.accounting.pld.transforms import tilt_masses


def largest_in_intervals(weights, where, period, rng):
    """Return the largest log magnitude at random frequencies of every interval, (R, G)."""
    ends = edges(period)
    found = []
    for low, high in pairwise(ends):
        angular = np.append(rng.uniform(low, high, 40), [low, high * (1 - 1e-12)])
        found.append(np.abs(weights @ np.exp(1j * np.outer(where.values, angular))).max(axis=1))
    return np.log(np.stack(found, axis=1))


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.floats(-7, -2), st.floats(-1, 1.5), st.floats(0.5, 4.0))
def test_bounds_hold_for_any_masses(seed, log_width, log_reach, roughness):
    """Smooth, rough, empty, or all in one place."""
    rng = np.random.default_rng(seed)
    width = 2.0 ** round(log_width * 3.3)
    where = nodes(width, -width * 200 * rng.uniform(0, 3), width * 10**log_reach * 400)
    places = np.arange(len(where.values))
    weights = np.stack([
        np.exp(-(((places - rng.uniform(0, len(places))) / rng.uniform(1, 300)) ** 2)),
        rng.random(len(places)) ** roughness * (rng.random(len(places)) < rng.uniform(0.01, 1)),
        (places == rng.integers(len(places))).astype(float),
    ])  # fmt: skip
    weights /= np.maximum(weights.sum(axis=1), 1e-300)[:, None]
    period = where.width * 2.0 ** rng.uniform(8, 24)
    bounds = log_bounds(uniform_masses(weights, where), where, period)
    assert (bounds <= 0).all()
    assert (largest_in_intervals(weights, where, period, rng) <= bounds + 1e-9).all()


@pytest.mark.parametrize(("event", "adjacency"), [
    (Event(0.01, 1.0), "add-remove"),
    (Event(0.3, 5.0), "replace-one"),
    (FixedSizeEvent(0.1, 2.0), "replace-one"),
    (LaplaceEvent(0.1, 3.0), "add-remove"),
])  # fmt: skip
def test_bounds_of_releases_hold_and_soon_say_something(event, adjacency):
    ways = event_losses.single_losses(event, adjacency, 1e-20)
    period = 64 * float(ways[0].values[-1])
    weights, _ = tilt_masses(ways, 1.5, [0.0] * len(ways))
    for way, each in zip(ways, weights, strict=True):
        bounds = log_bounds(uniform_masses(each, way.nodes), way.nodes, period)[0]
        exact = largest_in_intervals(each, way.nodes, period, np.random.default_rng())[0]
        assert (exact <= bounds + 1e-9).all()
        # To the power of a thousand releases, the bound is next to nothing somewhere.
        assert 1000 * bounds.min() < -26
