"""Interoperation with dp-accounting, for mechanisms that Privet does not cover itself; imported on first use."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from privet.accounting.events import Release, TruncatedPoissonEvent
from privet.accounting.pld.discrete_loss import Losses, Nodes, regrid
from privet.errors import InvalidArgumentError

# dp-accounting takes Python time for every bucket of its grid.
_NARROWEST = 2e-4
INSTALL = "Run: pip install 'privet[verify]'."


def check_installed(events: Iterable[Release]) -> None:
    """Refuse events that need dp-accounting if it is not installed; the error has the command that installs it."""
    if any(isinstance(event, TruncatedPoissonEvent) for event in events) and not is_dp_accounting_installed():
        allowed = "another scheme unless dp-accounting, which covers this one, is installed"
        raise InvalidArgumentError("sampling", "TruncatedPoisson", allowed, INSTALL)


def is_dp_accounting_installed() -> bool:
    """Return whether dp-accounting is installed."""
    return importlib.util.find_spec("dp_accounting") is not None


def _on_grid(pmf: Any, width: float) -> Losses:
    masses = np.maximum(np.asarray(pmf._probs, dtype=np.float64), 0.0)
    losses = pmf._discretization * (pmf._lower_loss + np.arange(len(masses)))
    # Its truncated tails may be lost; missing mass counts as an infinite loss.
    infinite = max(float(pmf._infinity_mass), 1.0 - math.fsum(masses))
    return regrid(losses, masses, infinite, width)


def truncated_poisson(events: Sequence[TruncatedPoissonEvent], adjacency: str, grid: Nodes, tail: float) -> tuple[Losses, ...]:
    """Return the losses of one release on a truncated Poisson sample (Ganesh 2025, arXiv:2508.15089), by dp-accounting."""
    check_installed(events)
    from dp_accounting.pld import privacy_loss_distribution

    event, width = events[0], grid.width
    found = privacy_loss_distribution.from_truncated_subsampled_gaussian_mechanism(
        dataset_size=event.examples, sampling_probability=event.sampling_rate, truncated_batch_size=event.largest_batch,
        noise_multiplier=event.noise_multiplier, value_discretization_interval=max(width, _NARROWEST),
        log_mass_truncation_bound=math.log(tail),
    )  # fmt: skip
    return _on_grid(found._pmf_remove.to_dense_pmf(), width), _on_grid(found._pmf_add.to_dense_pmf(), width)
