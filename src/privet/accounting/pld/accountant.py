"""Privacy loss distributions: the tightest of the upper bounds, at every δ.

One release's losses come in closed form (`pairs`), are put on nodes that depend on that release alone (`release_losses`), and
are composed and read at δ by tilted Fourier series (`composition`). Everything that is cut off, rounded or repeated on the way
makes ε larger, not smaller; only the rounding of the elementary functions themselves is taken on trust.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from privet.accounting import rdp
from privet.accounting.classic import gaussian
from privet.accounting.events import BallsInBins, Event, FixedSize, Release, finely_rounded
from privet.accounting.pld import event_losses
from privet.accounting.pld.composition import Composer
from privet.accounting.pld.discrete_loss import Array
from privet.accounting.pld.grid_selection import LOWEST_FOUND, Forecast, first_grids, forecast
from privet.accounting.pld.series import Composed
from privet.accounting.pld.transforms import Grid

DIRECTION = "upper bound"

# ε is asked again where it was found, so many times at most, until it falls by less than this share.
_ROUNDS, _SETTLED = 8, 1e-6
# Answers are rounded up to so many digits; and sums, to where rounding hardly reaches: one digit less for ten times as many
# releases, from a million on.
_DIGITS, _DIGITS_OF_SUMS, _DIGITS_OF_MANY = 10, 8, 14

_COMPOSER = Composer(event_losses.losses)


def epsilon(events: Sequence[Release], delta: float, adjacency: str) -> float:
    """Return ε at δ for the composition of all events.

    Args:
        events: merged, with noise.
        delta: δ in (0, 1).
        adjacency: one that all events are valid for.

    Guarantee:
        Connecting the dots dominates each release's pair of distributions, so compositions of the former dominate those of the
        latter; what lies outside all nodes counts as an infinite loss. Nodes get coarser, and what is left of a release does not
        shrink, as steps, rate, 1/σ and 1/δ grow, so neither would ε if sums were exact. What may be rounding is counted as loss,
        in proportion to the number of releases, and hidden by rounding rates, multipliers and answers. Full-batch releases are
        one Gaussian, whose ε is a formula.

    Source:
        Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022, "Connect the Dots"; Zhu, Dong, Wang 2022, "Optimal Accounting of
        Differential Privacy via Characteristic Function".
    """
    together, mu = finely_rounded(events), _unsampled(events, adjacency)
    if all(_is_gaussian(event) for event in together):
        return _rounded_up(gaussian.epsilon(mu, delta), _DIGITS)
    grids, near = first_grids(forecast(together, delta, adjacency, ahead=True), delta)
    found = math.inf
    for _ in range(_ROUNDS):
        now, rounded = _read(_composed(together, adjacency, grids), delta, near)
        expected, found = near, min(found, now)
        near = found
        if now >= LOWEST_FOUND * expected and (not rounded or now >= (1 - _SETTLED) * expected):
            break
        closer = forecast(together, delta, adjacency, ahead=False)
        grids = closer.grids_apart(found, delta) if rounded else (closer.grid(found),)
    if math.isinf(found) and all(rdp.covers(event) for event in together):
        found = rdp.epsilon(together, delta, adjacency)
    number = sum(event.count for event in together)
    found = _rounded_up(found, min(_DIGITS_OF_SUMS, _DIGITS_OF_MANY - math.ceil(math.log10(number))))
    # Sampling amplifies, so without it there is a bound, too.
    if not math.isinf(mu) and (math.isinf(found) or gaussian.log_delta(mu, found) < math.log(delta)):
        found = min(found, gaussian.epsilon(mu, delta))
    return _rounded_up(found, _DIGITS)


def delta(events: Sequence[Release], epsilon: float, adjacency: str) -> float:
    """Return δ at ε ≥ 0 for the composition of all events; arguments and guarantee as for `epsilon`."""
    together, mu = finely_rounded(events), _unsampled(events, adjacency)
    unsampled = 1.0 if math.isinf(mu) else math.exp(gaussian.log_delta(mu, epsilon))
    if all(_is_gaussian(event) for event in together):
        return unsampled
    likely, found = 1e-10, 1.0
    for _ in range(_ROUNDS):
        found = min(found, _delta_at(epsilon, together, forecast(together, likely, adjacency, ahead=False)))
        if found >= likely / 10:
            break
        # What may be lost is a share of δ, so again at what was found.
        likely = max(found, 1e-290)
    return min(found, unsampled)


def deltas(events: Sequence[Release], epsilons: Array, adjacency: str, likely: float) -> Array:
    """Return δ at every ε ≥ 0 of an (E,) array.

    Args:
        events, adjacency: as for `epsilon`.
        epsilons: where to ask.
        likely: about the smallest δ that matters: a billionth of it may be lost everywhere.
    """
    together, mu = finely_rounded(events), _unsampled(events, adjacency)
    unsampled = [1.0 if math.isinf(mu) else math.exp(gaussian.log_delta(mu, float(value))) for value in epsilons]
    if all(_is_gaussian(event) for event in together):
        return np.array(unsampled)
    known = forecast(together, likely, adjacency, ahead=False)
    return np.minimum(unsampled, [_delta_at(float(value), together, known) for value in epsilons])


def grid_width(events: Sequence[Release], delta: float, adjacency: str) -> float:
    """Return how far apart the nodes around zero are at most that losses are on when ε at δ is asked for; 0 for a formula."""
    together = finely_rounded(events)
    if all(_is_gaussian(event) for event in together):
        return 0.0
    return forecast(together, delta, adjacency, ahead=True).width


def _read(ways: Sequence[Composed], delta: float, likely: float) -> tuple[float, bool]:
    """Return ε at δ, the largest of all directions between neighbours, and whether more than the reserve was rounded there."""
    found, decisive = ways[0].epsilon(delta, likely), ways[0]
    for way in ways[1:]:
        if way.delta(found) > delta:
            found, decisive = way.epsilon(delta, found), way
    return found, math.isfinite(found) and decisive.is_rounded(found)


def _delta_at(epsilon: float, events: Sequence[Release], known: Forecast) -> float:
    decisive = max(_composed(events, known.adjacency, (known.grid(epsilon),)), key=lambda way: way.delta(epsilon))
    if not decisive.is_rounded(epsilon):
        return decisive.delta(epsilon)
    apart = _composed(events, known.adjacency, known.grids_apart(epsilon))
    return min(decisive.delta(epsilon), max(way.delta(epsilon) for way in apart))


def _composed(events: Sequence[Release], adjacency: str, grids: tuple[Grid, ...]) -> tuple[Composed, ...]:
    counts = {replace(event, count=1) if event.count != 1 else event: event.count for event in events}
    return _COMPOSER.compose(counts, adjacency, grids)


def _is_gaussian(event: Release) -> bool:
    return isinstance(event, Event) and event.sampling_rate == 1.0 and event.projections is None


def _unsampled(events: Sequence[Release], adjacency: str) -> float:
    """Return μ of the Gaussian that the events together are if nothing is amplified; infinity if no such bound is known."""
    if not all(
        isinstance(event, (FixedSize, BallsInBins)) or (isinstance(event, Event) and event.projections is None)
        for event in events
    ):
        return math.inf
    sensitivity = 2.0 if adjacency == "replace-one" else 1.0
    mu = sensitivity * math.sqrt(math.fsum(event.count / event.noise_multiplier**2 for event in events))
    # Rounded up by so little that only the rounding of its ε is hidden.
    return float(2.0 ** (math.ceil(math.log2(mu) * 2**33) / 2**33))


def _rounded_up(value: float, digits: int) -> float:
    if not 0.0 < value < math.inf:
        return value
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - digits)
    return math.ceil(value / unit) * unit
