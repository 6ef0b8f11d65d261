"""Coverage: the accountants and adjacencies that support each kind of release, and the fix where they do not."""

from __future__ import annotations

__all__ = ["accountants_of", "as_accounted", "check_covered"]

from collections.abc import Iterable, Sequence

from privet.accounting import rdp
from privet.accounting.events import (
    BallsInBinsEvent,
    EpsilonDeltaEvent,
    Event,
    FixedSizeEvent,
    LaplaceEvent,
    RandomizedResponseEvent,
    Release,
    ShuffledEvent,
    TruncatedPoissonEvent,
    merge,
)
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


def check_covered(events: Sequence[Release], adjacency: str, accountant: str) -> None:
    """Refuse adjacencies and accountants without a known bound for these events; the error names the fix."""
    for event in events:
        name = _name(event)
        if adjacency not in event.adjacencies:
            allowed = " or ".join(repr(word) for word in event.adjacencies)
            raise InvalidArgumentError("adjacency", adjacency, f"{allowed} for {name}", _NEIGHBOURS_FIX[type(event)])
        if accountant not in accountants_of(event):
            allowed = " or ".join(repr(word) for word in accountants_of(event))
            raise InvalidArgumentError("accountant", accountant, f"{allowed} for {name}", _ONLY_PLD_FIX[type(event)])


def as_accounted(events: Iterable[Release], adjacency: str, accountant: str) -> tuple[Release, ...]:
    """Return the events in the form that the accountant takes, equal ones merged.

    Only "pld" accounts for amplification by random allocation, and not for replacing: that changes two examples, and the proof
    that the density ratio is an average of independent ratios holds for one.
    """
    return merge(events, amplified=accountant == "pld" and adjacency != "replace-one")


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
