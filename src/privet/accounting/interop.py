"""Other people's accountants: a second opinion, and mechanisms that are not priced here. Imported when they are asked."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from privet.accounting.events import Event, Release, TruncatedPoisson, merged
from privet.accounting.losses import Losses, regridded
from privet.errors import InvalidArgumentError

# dp-accounting's grids cost Python time for every bucket.
_NARROWEST = 2e-4


def from_dp_accounting(distribution: Any, width: float) -> tuple[Losses, Losses]:
    """Return a (pessimistic) `PrivacyLossDistribution` of dp-accounting on the grid, for removing and for adding.

    Args:
        distribution: of one release, or of several.
        width: width of the grid.
    """
    remove, add = (_on_grid(pmf.to_dense_pmf(), width) for pmf in (distribution._pmf_remove, distribution._pmf_add))
    return remove, add


def _on_grid(pmf: Any, width: float) -> Losses:
    masses = np.maximum(np.asarray(pmf._probs, dtype=np.float64), 0.0)
    losses = pmf._discretization * (pmf._lower_loss + np.arange(len(masses)))
    # Its truncated tails may be lost; what is missing counts as infinite.
    infinite = max(float(pmf._infinity_mass), 1.0 - math.fsum(masses))
    return regridded(losses, masses, infinite, width)


def truncated_poisson(event: TruncatedPoisson, width: float, tail: float) -> tuple[Losses, ...]:
    """Return the losses of one release on a truncated Poisson sample.

    Source:
        Ganesh 2025, arXiv:2508.15089; computed by dp-accounting.
    """
    from dp_accounting.pld import privacy_loss_distribution

    found = privacy_loss_distribution.from_truncated_subsampled_gaussian_mechanism(
        dataset_size=event.examples,
        sampling_probability=event.sampling_rate,
        truncated_batch_size=event.largest_batch,
        noise_multiplier=event.noise_multiplier,
        value_discretization_interval=max(width, _NARROWEST),
        log_mass_truncation_bound=math.log(tail),
    )
    return from_dp_accounting(found, width)


def dp_event(event: Release) -> Any:
    """Return dp-accounting's event for one of ours, count included.

    Raises:
        InvalidArgumentError: it has none.
    """
    import dp_accounting

    noise = dp_accounting.GaussianDpEvent(event.noise_multiplier)
    if isinstance(event, Event) and event.projections is None:
        once = noise if event.sampling_rate == 1.0 else dp_accounting.PoissonSampledDpEvent(event.sampling_rate, noise)
    elif isinstance(event, TruncatedPoisson):
        once = dp_accounting.dp_event.TruncatedSubsampledGaussianDpEvent(
            event.examples, event.sampling_rate, event.largest_batch, event.noise_multiplier
        )
    else:
        kinds = "one of Event (exact norms), TruncatedPoisson, or an epoch without amplification"
        raise InvalidArgumentError("events", event, kinds, "dp-accounting has no privacy loss distribution for it.")
    return dp_accounting.SelfComposedDpEvent(once, event.count)


def second_opinion(events: Iterable[Release], *, delta: float, adjacency: str = "add-remove", width: float = 1e-4) -> float:
    """Return ε at δ by dp-accounting's own composition; slower, and too small below δ = 1e-8.

    Args:
        events: what was released.
        delta: δ in (0, 1).
        adjacency: "add-remove", "replace-one" or "zero-out".
        width: width of its grid of losses.
    """
    import dp_accounting

    relation = {
        "add-remove": dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
        "replace-one": dp_accounting.NeighboringRelation.REPLACE_ONE,
        "zero-out": dp_accounting.NeighboringRelation.REPLACE_SPECIAL,
    }[adjacency]
    accountant = dp_accounting.pld.PLDAccountant(relation, value_discretization_interval=width)
    for event in merged(events):
        accountant.compose(dp_event(event))
    return float(accountant.get_epsilon(delta))
