"""Which accountants and neighbours go with which kind of release, and what to do where they do not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from privet.accounting import pld, rdp
from privet.accounting.classic.shuffle_lower_bound import epsilon_lower_bound
from privet.accounting.events import (
    BallsInBins,
    Event,
    FixedSize,
    Release,
    Shuffled,
    TruncatedPoisson,
    as_if_poisson,
    counted,
    merged,
)
from privet.errors import InvalidArgumentError

_NEIGHBOURS_FIX = {
    Event: "When an example is replaced, its old and its new norm are estimated from the same projections, and no bound on both "
    "is known; use exact norms (projections=None).",
    FixedSize: "Who else takes part depends on how many examples there are; sample by Poisson(...) to protect membership.",
    TruncatedPoisson: "Whether others are dropped depends on who else there is; sample by Poisson(...), without truncation.",
    Shuffled: "Without one example all others are dealt differently. Deal by BallsInBins, where nobody's "
    "step depends on anybody else, or sample by Poisson(...).",
}
_ONLY_PLD_FIX = {
    Event: "Rényi divergences under estimated norms are infinite at every order.",
    FixedSize: "No other accountant has a bound for samples of fixed size.",
    TruncatedPoisson: "No other accountant has a bound for truncated samples.",
}


def check_covered(events: Sequence[Release], adjacency: str, accountant: str, delta: float | None = None) -> None:
    """Refuse neighbours and accountants that no bound is known for.

    Args:
        events: what is to be accounted.
        adjacency: whose data differ between neighbours.
        accountant: who is to account it.
        delta: at which δ to say what accounting it as Poisson sampling would have claimed.

    Raises:
        InvalidArgumentError: with the fix.
    """
    for event in events:
        name = _name(event)
        if adjacency not in event.adjacencies:
            allowed = " or ".join(repr(word) for word in event.adjacencies)
            pretence = "" if delta is None else _pretence(events, delta)
            raise InvalidArgumentError("adjacency", adjacency, f"{allowed} for {name}", _NEIGHBOURS_FIX[type(event)] + pretence)
        if accountant not in accountants_of(event):
            allowed = " or ".join(repr(word) for word in accountants_of(event))
            raise InvalidArgumentError("accountant", accountant, f"{allowed} for {name}", _ONLY_PLD_FIX[type(event)])


def as_accounted(events: Iterable[Release], adjacency: str, accountant: str) -> tuple[Release, ...]:
    """Return the events as the accountant takes them, equal ones together.

    Only "pld" knows how random allocation amplifies. Replacing moves two examples, and that the ratio of densities is an average
    of independent ones is not known of both.
    """
    return merged(events, amplified=accountant == "pld" and adjacency != "replace-one")


def _pretence(events: Sequence[Release], delta: float) -> str:
    """Return what it would mean to account the events as Poisson sampling, or nothing where that is not the question."""
    together = [event for event in counted(events) if event.noise_multiplier > 0]
    shuffled = [event for event in together if isinstance(event, Shuffled) and event.steps is not None]
    if not together or len(together) < len(counted(events)):
        return ""
    if len(shuffled) == len(together):
        claimed = pld.epsilon(merged(as_if_poisson(together)), delta, "add-remove")
        least = max(
            epsilon_lower_bound(noise_multiplier=event.noise_multiplier, steps=event.steps or 1, delta=delta)
            for event in shuffled
        )
        most = pld.epsilon(merged(together), delta, "zero-out")
        number = sum(event.count for event in together)
        return (
            f" Accounted as Poisson sampling, {number} epoch{'s' * (number > 1)} would claim ε = {claimed:.3g}, where an "
            f"attacker may reach {least:.3g} in one, and up to {most:.3g} in all, by zeroing out alone."
        )
    if all(isinstance(event, FixedSize) for event in together):
        claimed = pld.epsilon(merged(as_if_poisson(together)), delta, "add-remove")
        replacing = pld.epsilon(together, delta, "replace-one")
        return f" Accounted as Poisson sampling it would claim ε = {claimed:.3g}; for replacing, {replacing:.3g} is proven."
    return ""


def accountants_of(event: Release) -> tuple[str, ...]:
    """Return the accountants that have an answer for this kind of release."""
    if isinstance(event, (Shuffled, BallsInBins)) or (isinstance(event, Event) and event.projections is None):
        return _ALL
    return ("pld", "rdp") if rdp.covers(event) else ("pld",)


_ALL = ("pld", "rdp", "moments", "strong", "basic", "gdp")


def _name(event: Release) -> str:
    projected = isinstance(event, Event) and event.projections is not None
    return "norms estimated by projections" if projected else type(event).__name__
