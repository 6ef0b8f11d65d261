"""Pure functions that convert between events, ε, δ, noise multipliers and step counts; they touch no data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privet.accounting import pld, rdp
from privet.accounting.classic import composition_theorems, edgeworth, gaussian
from privet.accounting.events import (
    ADJACENCIES,
    BallsInBinsEvent,
    EpsilonDeltaEvent,
    Event,
    FixedSizeEvent,
    LaplaceEvent,
    RandomizedResponseEvent,
    Release,
    ShuffledEvent,
    TruncatedPoissonEvent,
    as_if_poisson,
    check_query,
    merge,
    round_multipliers_down,
)
from privet.accounting.root_finding import HIGHEST, largest_count, smallest_multiplier
from privet.errors import InvalidArgumentError, choice, positive, real

# Name → (merged events with noise, δ, adjacency) → ε; the tightest bound first, then other bounds, then the approximations.
ACCOUNTANTS: dict[str, Callable[[Sequence[Any], float, str], float]] = {
    "pld": pld.epsilon,
    "rdp": rdp.epsilon,
    "moments": rdp.moments_epsilon,
    "strong": composition_theorems.strong,
    "basic": composition_theorems.basic,
    "edgeworth": edgeworth.epsilon,
    "gdp": gaussian.limit_epsilon,
}
_ESTIMATE, _ESTIMATES = "approximation that can be too small", ("edgeworth", "gdp")
# The direction of each accountant's error.
DIRECTIONS: dict[str, str] = {name: _ESTIMATE if name in _ESTIMATES else "upper bound" for name in ACCOUNTANTS}
# The tightest bound that is sound at every δ.
DEFAULT_ACCOUNTANT = "pld"
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
# Schedules with more distinct multipliers than the first are solved with multipliers rounded down to this many per factor of two.
_SOLVED_EXACTLY, _SOLVED_PER_OCTAVE, _GUESSED_PER_OCTAVE = 48, 32, 8
_PRECISION_OF_MANY, _PRECISION_OF_GUESSES = 2e-4, 1e-3


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
        return tuple(ACCOUNTANTS)
    if rdp.covers(event):
        return ("pld", "rdp") if isinstance(event, FixedSizeEvent) else ("pld", "rdp", "moments")
    return ("pld",)


def _name(event: Release) -> str:
    projected = isinstance(event, Event) and event.projections is not None
    return "norms estimated by projections" if projected else type(event).__name__.removesuffix("Event") or "Poisson"


def composed_epsilon(events: Iterable[Release], *, delta: float, adjacency: str = "add-remove", accountant: str = "pld") -> float:
    """Return ε at δ of any sequence of events; infinity if any release has no noise.

    Args:
        events: the releases, of any kinds, in any order.
        delta: δ in (0, 1).
        adjacency: how neighbouring data sets differ: "add-remove", "replace-one" or "zero-out".
        accountant: "pld" (tightest upper bound), "rdp", "moments", "strong" or "basic" (upper bounds), or "edgeworth" or "gdp"
            (approximations that can be too small).
    """
    check_query(delta, adjacency)
    choice("accountant", accountant, ACCOUNTANTS)
    together = _check_events(events, adjacency, accountant)
    if not together:
        return 0.0
    if any(event.noise_multiplier == 0 for event in together):
        return math.inf
    return float(ACCOUNTANTS[accountant](together, delta, adjacency))


def composed_delta(events: Iterable[Release], *, epsilon: float, adjacency: str = "add-remove") -> float:
    """Return an upper bound on δ at ε ≥ 0 of any sequence of events, by the accountant "pld"; 1 if any release has no noise."""
    if real("epsilon", epsilon) < 0:
        raise InvalidArgumentError("epsilon", epsilon, "at least 0")
    choice("adjacency", adjacency, ADJACENCIES)
    together = _check_events(events, adjacency, "pld")
    if not together:
        return 0.0
    if any(event.noise_multiplier == 0 for event in together):
        return 1.0
    return float(pld.delta(together, epsilon, adjacency))


def composed_deltas(
    events: Iterable[Release], *, epsilons: ArrayLike, likely: float, adjacency: str = "add-remove"
) -> NDArray[np.float64]:
    """Return upper bounds on δ (E,) at increasing ε ≥ 0 from one composition by "pld", tightest near δ = `likely`."""
    check_query(likely, adjacency)
    asked = np.asarray(epsilons, dtype=np.float64)
    if not (np.isfinite(asked).all() and (asked >= 0).all() and (np.diff(asked) >= 0).all()):
        raise InvalidArgumentError("epsilons", epsilons, "finite, at least 0 and increasing")
    together = _check_events(events, adjacency, "pld")
    if not together:
        return np.zeros(len(asked))
    if any(event.noise_multiplier == 0 for event in together):
        return np.ones(len(asked))
    return pld.deltas(together, asked, adjacency, likely)


def _check_events(events: Iterable[Release], adjacency: str, accountant: str) -> tuple[Release, ...]:
    given = tuple(events)
    check_covered(given, adjacency, accountant)
    return as_accounted(given, adjacency, accountant)


def epsilon(
    *,
    sampling_rate: float,
    noise_multiplier: float,
    steps: int,
    delta: float,
    adjacency: str = "add-remove",
    accountant: str = "pld",
) -> float:
    """Return ε at δ of `steps` Gaussian releases on Poisson samples.

    Args:
        sampling_rate: q in (0, 1].
        noise_multiplier: σ ≥ 0; 0 gives infinity.
        steps: number of releases, ≥ 0.
        delta: δ in (0, 1).
        adjacency: "add-remove", "replace-one" or "zero-out".
        accountant: as for `composed_epsilon`.

    >>> round(epsilon(sampling_rate=256 / 60_000, noise_multiplier=1.1, steps=3515, delta=1e-5), 2)
    1.13
    """
    event = Event(sampling_rate, noise_multiplier, steps)
    return composed_epsilon([event], delta=delta, adjacency=adjacency, accountant=accountant)


def composed_multiplier(
    events: Callable[[float], Iterable[Release]],
    *,
    epsilon: float,
    delta: float,
    adjacency: str = "add-remove",
    accountant: str = "pld",
) -> float:
    """Return the smallest noise multiplier for which `events` (multiplier → releases) have an ε that does not exceed the target.

    It is at most one part in 10⁵ above the smallest; about one in a thousand for schedules of more than 48 distinct multipliers,
    which are rounded down during the search.
    """
    target = positive("epsilon", epsilon)
    choice("accountant", accountant, ACCOUNTANTS)

    def spent(by: str, changed: Callable[[Iterable[Release]], Iterable[Release]] = tuple) -> Callable[[float], float]:
        def ask(sigma: float) -> float:
            given = events(sigma)
            return composed_epsilon(changed(given) if sigma > 0 else given, delta=delta, adjacency=adjacency, accountant=by)

        return ask

    exact = spent(accountant)
    if accountant == "rdp":
        return smallest_multiplier(exact, target)
    # RDP is fast and close, so it gives the first guess, unless it does not cover the events or cannot reach the target.
    allocated = any(isinstance(event, BallsInBinsEvent) for event in merge(events(1.0)))
    like = as_if_poisson(events(1.0))
    roughly = spent("rdp", lambda given: round_multipliers_down(as_if_poisson(given), _GUESSED_PER_OCTAVE))
    known = all(rdp.covers(event) for event in like) and roughly(HIGHEST) <= target
    guess = smallest_multiplier(roughly, target, precision=_PRECISION_OF_GUESSES) if known else 1.0
    if allocated:
        guess = smallest_multiplier(spent(accountant, as_if_poisson), target, guess, _PRECISION_OF_GUESSES)
    if len(merge(events(1.0))) <= _SOLVED_EXACTLY:
        return smallest_multiplier(exact, target, guess)
    coarsely = spent(accountant, lambda given: round_multipliers_down(given, _SOLVED_PER_OCTAVE))
    found = smallest_multiplier(coarsely, target, guess, _PRECISION_OF_MANY)
    # Rounding costs about the same share of ε nearby, so the target is corrected for it once; the exact ε decides.
    better = smallest_multiplier(coarsely, target * target / exact(found), found, _PRECISION_OF_MANY)
    while exact(better) > target:
        better *= 1 + _PRECISION_OF_MANY
    return better


def noise_multiplier(
    *, epsilon: float, sampling_rate: float, steps: int, delta: float, adjacency: str = "add-remove", accountant: str = "pld"
) -> float:
    """Return the smallest noise multiplier whose ε does not exceed the target.

    Args: as for `epsilon`, with the target ε > 0 in place of the multiplier.

    Returns:
        σ, at most one part in 10⁵ above the exact one and never below it.

    >>> round(noise_multiplier(epsilon=3.0, sampling_rate=512 / 60_000, steps=2343, delta=1e-5, accountant="rdp"), 2)
    0.94
    """
    return composed_multiplier(
        lambda sigma: [Event(sampling_rate, sigma, steps)],
        epsilon=epsilon, delta=delta, adjacency=adjacency, accountant=accountant,
    )  # fmt: skip


def steps(
    *,
    epsilon: float,
    sampling_rate: float,
    noise_multiplier: float,
    delta: float,
    adjacency: str = "add-remove",
    accountant: str = "pld",
) -> int:
    """Return the largest number of steps whose ε does not exceed the target.

    Args: as for `epsilon`, with the target ε > 0 in place of the number of steps, and σ > 0.
    """
    target = positive("epsilon", epsilon)
    positive("noise_multiplier", noise_multiplier, "Without noise, no number of steps meets a target.")
    return largest_count(
        lambda number: composed_epsilon(
            [Event(sampling_rate, noise_multiplier, number)], delta=delta, adjacency=adjacency, accountant=accountant
        ),
        target,
    )


def parallel_epsilon(
    parts: Iterable[Iterable[Release]], *, delta: float, adjacency: str = "add-remove", accountant: str = "pld"
) -> float:
    """Return ε at δ of releases on disjoint parts of one data set, such as one training per region: the largest ε of any part.

    Args:
        parts: the releases on each part, at least one part.
        delta: δ in (0, 1), the same for each part and for the whole.
        adjacency, accountant: as for `epsilon`.

    Guarantee:
        The part of an example must depend on that example alone. Neighbours then differ in one part; the outputs of the other
        parts are independent of it and identically distributed for both. For replacing, the part must not depend on the content
        of the example either (but, say, on its position); otherwise the example could leave one part and enter another, and the
        ε of the two most expensive parts add up. Each part has its own public size.

    Source:
        McSherry 2009, "Privacy Integrated Queries", Theorem 4.

    >>> one, other = [Event(0.01, 2.0, 100)], [Event(0.05, 1.5, 300)]
    >>> parallel_epsilon([one, other], delta=1e-5) == composed_epsilon(other, delta=1e-5)
    True
    """
    spent = [composed_epsilon(part, delta=delta, adjacency=adjacency, accountant=accountant) for part in parts]
    if not spent:
        raise InvalidArgumentError("parts", spent, "at least one")
    return max(spent)


def resolution(events: Iterable[Release], *, delta: float, adjacency: str, accountant: str) -> dict[str, float]:
    """Return what sets the resolution of an accountant's answer, name → number; empty for a closed form."""
    together = as_accounted(events, adjacency, accountant)
    if together and accountant == "pld" and (width := pld.grid_width(together, delta, adjacency)):
        return {"grid_width": width}
    if together and accountant == "moments":
        return {"orders": rdp.LARGEST_MOMENT, "lowest_order": 2, "highest_order": rdp.LARGEST_MOMENT + 1}
    if together and accountant == "rdp":
        best = rdp.ORDERS[np.argmin(rdp.to_epsilon(rdp.curve(together, adjacency), delta, rdp.ORDERS))]
        numbers = {"lowest_order": rdp.ORDERS[0], "highest_order": rdp.ORDERS[-1], "best_order": best}
        return {"orders": len(rdp.ORDERS), **{name: float(order) for name, order in numbers.items()}}
    return {}
