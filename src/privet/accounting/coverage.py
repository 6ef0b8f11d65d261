"""Coverage: the accountants and adjacencies that support each kind of release, and the fix where they do not."""

from __future__ import annotations

__all__ = ["accountants_of", "as_accounted", "check_covered"]

from collections.abc import Iterable, Sequence

from privet.accounting import pld, rdp
from privet.accounting.classic.shuffle_lower_bound import epsilon_lower_bound
from privet.accounting.events import (
    BallsInBinsEvent,
    Event,
    FixedSizeEvent,
    Release,
    ShuffledEvent,
    TruncatedPoissonEvent,
    as_if_poisson,
    merge,
    merge_equal,
)
from privet.accounting.mechanism_events import EpsilonDeltaEvent, LaplaceEvent, RandomizedResponseEvent
from privet.errors import InvalidArgumentError

_NEIGHBOURS_FIX = {
    Event: "Both norms of a replaced example are estimated from the same projections, and no bound for that case is known; use "
    "exact norms (projections=None).",
    FixedSizeEvent: "The inclusion probability depends on the number of examples; use Poisson sampling to protect membership.",
    TruncatedPoissonEvent: "Whether an example is dropped depends on the others; use Poisson sampling, without truncation.",
    LaplaceEvent: "No bound for replacing is known if samples get Laplace noise; use sampling_rate=1, or another adjacency.",
    RandomizedResponseEvent: "It hides what an example answers, not that it answers.",
    ShuffledEvent: "Removing one example changes the batches of all others. Use BallsInBins, in which no example's step depends "
    "on the others, or Poisson sampling.",
}
_ONLY_PLD_FIX = {
    Event: "Rényi divergences under estimated norms are infinite at every order.",
    FixedSizeEvent: "No other accountant has a bound for samples of fixed size.",
    TruncatedPoissonEvent: "No other accountant has a bound for truncated samples.",
    LaplaceEvent: "Other accountants have bounds for Laplace noise without sampling only, or for Gaussian noise only.",
    RandomizedResponseEvent: "The other accountants have bounds for Gaussian noise only.",
    EpsilonDeltaEvent: "Rényi divergences are infinite unless δ = 0; other accountants have bounds for Gaussian noise only.",
}


def check_covered(events: Sequence[Release], adjacency: str, accountant: str, delta: float | None = None) -> None:
    """Refuse adjacencies and accountants without a known bound for these events.

    Args:
        events: the releases.
        adjacency: how neighbouring data sets differ.
        accountant: name of the accountant.
        delta: δ at which the error message compares with (wrong) accounting as Poisson sampling.

    Raises:
        InvalidArgumentError: an event is not covered; names the fix.
    """
    for event in events:
        name = _name(event)
        if adjacency not in event.adjacencies:
            allowed = " or ".join(repr(word) for word in event.adjacencies)
            comparison = "" if delta is None else _poisson_claim(events, delta)
            raise InvalidArgumentError("adjacency", adjacency, f"{allowed} for {name}", _NEIGHBOURS_FIX[type(event)] + comparison)
        if accountant not in accountants_of(event):
            allowed = " or ".join(repr(word) for word in accountants_of(event))
            raise InvalidArgumentError("accountant", accountant, f"{allowed} for {name}", _ONLY_PLD_FIX[type(event)])


def as_accounted(events: Iterable[Release], adjacency: str, accountant: str) -> tuple[Release, ...]:
    """Return the events in the form that the accountant takes, equal ones merged.

    Only "pld" accounts for amplification by random allocation, and not for replacing: that changes two examples, and the proof
    that the density ratio is an average of independent ratios holds for one.
    """
    return merge(events, amplified=accountant == "pld" and adjacency != "replace-one")


def _poisson_claim(events: Sequence[Release], delta: float) -> str:
    """Return a sentence on the error of accounting for these events as Poisson sampling; empty where it does not apply."""
    together = [event for event in merge_equal(events) if event.noise_multiplier > 0]
    shuffled = [event for event in together if isinstance(event, ShuffledEvent) and event.steps is not None]
    if not together or len(together) < len(merge_equal(events)):
        return ""
    if len(shuffled) == len(together):
        claimed = pld.epsilon(merge(as_if_poisson(together)), delta, "add-remove")
        least = max(
            epsilon_lower_bound(noise_multiplier=event.noise_multiplier, steps=event.steps or 1, delta=delta)
            for event in shuffled
        )
        most = pld.epsilon(merge(together), delta, "zero-out")
        number = sum(event.count for event in together)
        return (
            f" Poisson accounting would claim ε = {claimed:.3g} for {number} epoch{'s' * (number > 1)}, but an attack can reach "
            f"{least:.3g} in one epoch, and all epochs together cost up to {most:.3g}, even for zero-out neighbours."
        )
    if all(isinstance(event, FixedSizeEvent) for event in together):
        claimed = pld.epsilon(merge(as_if_poisson(together)), delta, "add-remove")
        replacing = pld.epsilon(together, delta, "replace-one")
        return f" Poisson accounting would claim ε = {claimed:.3g}; the proven ε for replace-one is {replacing:.3g}."
    return ""


def accountants_of(event: Release) -> tuple[str, ...]:
    """Return the accountants that cover this kind of release."""
    if isinstance(event, (ShuffledEvent, BallsInBinsEvent)) or (isinstance(event, Event) and event.projections is None):
        return _ALL
    if rdp.covers(event):
        return ("pld", "rdp") if isinstance(event, FixedSizeEvent) else ("pld", "rdp", "moments")
    return ("pld",)


_ALL = ("pld", "rdp", "moments", "strong", "basic", "edgeworth", "gdp")


def _name(event: Release) -> str:
    projected = isinstance(event, Event) and event.projections is not None
    return "norms estimated by projections" if projected else type(event).__name__.removesuffix("Event") or "Poisson"
