"""Privacy loss distributions, composed by dp-accounting: the tightest of the upper bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from privet.accounting import gdp, rdp
from privet.accounting.events import Event
from privet.errors import InvalidArgumentError

DIRECTION = "upper bound"

# Below this δ the round-off of dp-accounting's FFT can make its ε too small.
SMALLEST_DELTA = 1e-8


def _longest(sampling_rate: float, noise_multiplier: float) -> float:
    """Return about the largest loss of one release, ten standard deviations out."""
    whole = (0.5 / noise_multiplier + 10) / noise_multiplier
    return float(np.logaddexp(math.log1p(-sampling_rate), math.log(sampling_rate) + whole)) if sampling_rate < 1 else whole


def _grid(events: Sequence[Event], delta: float, adjacency: str) -> float:
    """Return the width of a loss bucket, a power of two.

    Buckets of width h add up to h²/4 to the variance of every release's loss: narrow enough to lose about a part in a thousand
    of ε. But losses grow like 1/σ², and neither one release nor all together are cut into more pieces than take seconds; and
    rounding adds some 1e-16/h to every bucket's mass.
    """
    longest = max(_longest(event.sampling_rate, event.noise_multiplier) for event in events)
    reach = rdp.epsilon(events, delta, adjacency)
    typical = min(reach, gdp.epsilon(events, delta, adjacency)) / math.sqrt(sum(event.count for event in events))
    return 2.0 ** math.floor(math.log2(max(min(2.0**-11, 0.014 * typical), 2.0**-16, longest / 10**5, reach / 10**7)))


@lru_cache(maxsize=64)
def _single(sampling_rate: float, noise_multiplier: float, adjacency: str, grid: float) -> Any:
    """Return the loss distribution of one release, by connecting the dots (pessimistic)."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution

    relation = {
        "add-remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
        "replace-one": NeighboringRelation.REPLACE_ONE,
        "zero-out": NeighboringRelation.REPLACE_SPECIAL,
    }[adjacency]
    return privacy_loss_distribution.from_gaussian_mechanism(
        standard_deviation=noise_multiplier,
        value_discretization_interval=grid,
        use_connect_dots=True,
        sampling_prob=sampling_rate,
        neighboring_relation=relation,
    )


def epsilon(events: Sequence[Event], delta: float, adjacency: str) -> float:
    """Return ε at δ for the composition of all events.

    Raises:
        InvalidArgumentError: δ is so small that rounding could make the result too small.

    Source:
        Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022, "Connect the Dots".
    """
    if delta < SMALLEST_DELTA:
        raise InvalidArgumentError(
            "delta",
            delta,
            f"at least {SMALLEST_DELTA:g} for the accountant 'pld'",
            "Use accountant='rdp' for a smaller one.",
        )
    grid = _grid(events, delta, adjacency)
    parts = [_single(event.sampling_rate, event.noise_multiplier, adjacency, grid).self_compose(event.count) for event in events]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.compose(part)
    return float(whole.get_epsilon_for_delta(delta))
