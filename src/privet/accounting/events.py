"""What is accounted: sampled Gaussian releases, and whose data may differ between neighbours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from privet.errors import InvalidArgumentError, between, choice, count, real
from privet.noise.gaussian import MULTIPLIER_RANGE

# Neighbouring data sets differ in one example, which is …
ADJACENCIES = {
    "add-remove": "added or removed",
    "replace-one": "replaced by another",
    "zero-out": "replaced by a placeholder that contributes nothing",
}


@dataclass(frozen=True)
class Event:
    """`count` independent releases of a Gaussian mechanism, each on a fresh Poisson sample.

    Args:
        sampling_rate: q in (0, 1].
        noise_multiplier: σ, 0 or in [1e-3, 1e6]: noise standard deviation over the norm bound C of one example's contribution.
            C, not 2C, also for replace-one neighbours: the accountant knows that those can move the sum by twice the bound.
        count: number of releases.
    """

    sampling_rate: float
    noise_multiplier: float
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 < real("sampling_rate", self.sampling_rate) <= 1:
            raise InvalidArgumentError("sampling_rate", self.sampling_rate, "greater than 0 and at most 1")
        low, high = MULTIPLIER_RANGE
        if real("noise_multiplier", self.noise_multiplier) != 0 and not low <= self.noise_multiplier <= high:
            raise InvalidArgumentError("noise_multiplier", self.noise_multiplier, f"0 or between {low:g} and {high:g}")
        count("steps", self.count, minimum=0)


def merged(events: Iterable[Event]) -> tuple[Event, ...]:
    """Return the events with equal mechanisms counted together; composition does not depend on order."""
    counts: dict[tuple[float, float], int] = {}
    for event in events:
        key = (event.sampling_rate, event.noise_multiplier)
        counts[key] = counts.get(key, 0) + event.count
    return tuple(Event(*key, count=number) for key, number in counts.items() if number)


def check_query(delta: float, adjacency: str) -> None:
    """Refuse a δ outside (0, 1) and unknown neighbours."""
    between("delta", delta, 0.0, 1.0, "It is usually well below 1 / examples, such as 1e-5.")
    choice("adjacency", adjacency, ADJACENCIES)
