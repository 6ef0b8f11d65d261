"""The PLD accountant: the tightest of the upper bounds, at every δ.

The losses of one release come in closed form (`sampled_gaussian`), are discretised on nodes that depend on that release alone
(`event_losses`), and are composed and evaluated by tilted Fourier series (`composition`, `series`). All truncation, rounding and
aliasing along the way increases ε; only the rounding of the elementary functions themselves is trusted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from privet.accounting import rdp
from privet.accounting.classic import gaussian, single_release
from privet.accounting.events import BallsInBinsEvent, Event, FixedSizeEvent, Release, round_finely
from privet.accounting.pld import event_losses
from privet.accounting.pld.composition import Composer
from privet.accounting.pld.discrete_loss import Array
from privet.accounting.pld.grid_selection import LOWEST_FOUND, Forecast, first_grids, forecast
from privet.accounting.pld.series import ComposedLoss
from privet.accounting.pld.transforms import Grid

# Maximum number of refinements around the latest ε, and the relative improvement below which they stop.
_ROUNDS, _SETTLED = 8, 1e-6
# Significant digits to which answers are rounded up, and sums, coarsely enough to hide rounding errors: one digit less for ten
# times as many releases, from a million on.
_DIGITS, _DIGITS_OF_SUMS, _DIGITS_OF_MANY = 10, 8, 14

_COMPOSER = Composer(event_losses.losses)


def epsilon(events: Sequence[Release], delta: float, adjacency: str) -> float:
    """Return ε at δ for the composition of all events, which are merged and have noise.

    Guarantee:
        Connect-the-dots discretisations dominate the pairs of distributions of the releases, so their composition dominates that
        of the releases; mass above the nodes counts as an infinite loss. As steps, rate, 1/σ and 1/δ grow, the nodes get coarser
        and no truncated part shrinks, so with exact sums ε would be monotone in all of them. Possible rounding errors are added
        to δ, in proportion to the number of releases; rounding of rates, multipliers and answers hides them. A single release has
        a closed form, and so have full-batch releases with Gaussian noise, which are one Gaussian.

    Source:
        Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022, "Connect the Dots"; Zhu, Dong, Wang 2022, "Optimal Accounting of
        Differential Privacy via Characteristic Function".
    """
    together, mu = round_finely(events), _unamplified_mu(events, adjacency)
    if exact := _with_closed_form(events, together):
        return _round_up(single_release.epsilon(exact, delta, adjacency), _DIGITS)
    grids, near = first_grids(forecast(together, delta, adjacency, ahead=True), delta)
    found = math.inf
    for _ in range(_ROUNDS):
        now, rounded = _max_epsilon(_compose(together, adjacency, grids), delta, near)
        expected, found = near, min(found, now)
        near = found
        if now >= LOWEST_FOUND * expected and (not rounded or now >= (1 - _SETTLED) * expected):
            break
        closer = forecast(together, delta, adjacency, ahead=False)
        grids = closer.grids_apart(found, delta) if rounded else (closer.grid(found),)
    # Few releases of bounded losses are near the largest loss, where nodes are coarse.
    largest = single_release.largest_loss(together, delta, adjacency)
    if (math.isinf(found) or math.isfinite(largest)) and all(rdp.covers(event) for event in together):
        found = min(found, rdp.epsilon(together, delta, adjacency))
    found = min(found, largest)
    number = sum(event.count for event in together)
    found = _round_up(found, min(_DIGITS_OF_SUMS, _DIGITS_OF_MANY - math.ceil(math.log10(number))))
    # Sampling only amplifies, so the bound without sampling holds too.
    if not math.isinf(mu) and (math.isinf(found) or gaussian.log_delta(mu, found) < math.log(delta)):
        found = min(found, gaussian.epsilon(mu, delta))
    return _round_up(found, _DIGITS)


def delta(events: Sequence[Release], epsilon: float, adjacency: str) -> float:
    """Return δ at ε ≥ 0 for the composition of all events; guarantee as for `epsilon`."""
    together, mu = round_finely(events), _unamplified_mu(events, adjacency)
    unsampled = 1.0 if math.isinf(mu) else math.exp(gaussian.log_delta(mu, epsilon))
    if exact := _with_closed_form(events, together):
        return single_release.delta(exact, epsilon, adjacency)
    likely, found = 1e-10, 1.0
    for _ in range(_ROUNDS):
        found = min(found, _max_delta(epsilon, together, forecast(together, likely, adjacency, ahead=False)))
        if found >= likely / 10:
            break
        # The mass that may be lost is a share of δ: repeat with the δ just found.
        likely = max(found, 1e-290)
    return min(found, unsampled)


def deltas(events: Sequence[Release], epsilons: Array, adjacency: str, likely: float) -> Array:
    """Return δ at every ε ≥ 0 of an (E,) array; about 1e-10 of `likely`, the smallest δ that matters, may be added to each."""
    together, mu = round_finely(events), _unamplified_mu(events, adjacency)
    unsampled = [1.0 if math.isinf(mu) else math.exp(gaussian.log_delta(mu, float(value))) for value in epsilons]
    if exact := _with_closed_form(events, together):
        return np.array([single_release.delta(exact, float(value), adjacency) for value in epsilons])
    known = forecast(together, likely, adjacency, ahead=False)
    return np.minimum(unsampled, [_max_delta(float(value), together, known) for value in epsilons])


def grid_width(events: Sequence[Release], delta: float, adjacency: str) -> float:
    """Return the largest node spacing around zero in the computation of ε at δ; 0 for a closed form."""
    together = round_finely(events)
    if _with_closed_form(events, together):
        return 0.0
    return forecast(together, delta, adjacency, ahead=True).width


def _with_closed_form(events: Sequence[Release], rounded: Sequence[Release]) -> Sequence[Release]:
    """Return the events, with rates next to 1 as 1, if their composition has a closed form; otherwise nothing."""
    if single_release.covers(events):
        return events
    if not single_release.covers(rounded):
        return ()
    return [Event(1.0, event.noise_multiplier, event.count) for event in events]


def _max_epsilon(ways: Sequence[ComposedLoss], delta: float, likely: float) -> tuple[float, bool]:
    """Return ε at δ, the maximum over the directions between neighbours, and whether its rounding exceeded the reserve."""
    found, decisive = ways[0].epsilon(delta, likely), ways[0]
    for way in ways[1:]:
        if way.delta(found) > delta:
            found, decisive = way.epsilon(delta, found), way
    return found, math.isfinite(found) and decisive.is_rounded(found)


def _max_delta(epsilon: float, events: Sequence[Release], known: Forecast) -> float:
    decisive = max(_compose(events, known.adjacency, (known.grid(epsilon),)), key=lambda way: way.delta(epsilon))
    if not decisive.is_rounded(epsilon):
        return decisive.delta(epsilon)
    apart = _compose(events, known.adjacency, known.grids_apart(epsilon))
    return min(decisive.delta(epsilon), max(way.delta(epsilon) for way in apart))


def _compose(events: Sequence[Release], adjacency: str, grids: tuple[Grid, ...]) -> tuple[ComposedLoss, ...]:
    counts = {replace(event, count=1) if event.count != 1 else event: event.count for event in events}
    return _COMPOSER.compose(counts, adjacency, grids)


def _unamplified_mu(events: Sequence[Release], adjacency: str) -> float:
    """Return μ of the composed Gaussian without amplification; infinity if no such bound is known."""
    if not all(
        isinstance(event, (FixedSizeEvent, BallsInBinsEvent)) or (isinstance(event, Event) and event.projections is None)
        for event in events
    ):
        return math.inf
    return single_release.composed_mu(events, adjacency)


def _round_up(value: float, digits: int) -> float:
    if not 0.0 < value < math.inf:
        return value
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - digits)
    return math.ceil(value / unit) * unit
