"""Rényi filters: composition of releases whose privacy parameters may depend on earlier results.

Composition of privacy loss distributions or trade-off curves assumes that all noise and sampling parameters are fixed in advance;
an adaptive choice of the next mechanism can cost more than the composition says. Rényi divergences of one order, fixed before
the first release, add up even under adaptive choices.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from privet.accounting import rdp
from privet.accounting.composition.selection import curve
from privet.accounting.events import Release, check_query, merge
from privet.accounting.rdp import ORDERS
from privet.errors import InvalidArgumentError, positive


def is_filterable(events: Iterable[Release]) -> bool:
    """Return whether Rényi divergences are known for all of these releases."""
    return all(rdp.covers(event) for event in merge(events, amplified=False))


def filter_order(events: Iterable[Release], *, epsilon: float, delta: float, adjacency: str) -> float:
    """Return the Rényi order > 1 that allows the most repetitions of these releases within (ε, δ).

    Every order is sound if it does not depend on any result; `events` are the first planned releases.
    """
    check_query(delta, adjacency)
    conversion = np.log1p(-1 / ORDERS) - (math.log(delta) + np.log(ORDERS)) / (ORDERS - 1)
    return float(ORDERS[np.argmax((positive("epsilon", epsilon) - conversion) / curve(events, adjacency))])


def filtered_epsilon(events: Iterable[Release], *, order: float, delta: float, adjacency: str) -> float:
    """Return ε at δ of releases that may have been chosen adaptively and may have run concurrently.

    Args:
        events: all releases.
        order: Rényi order fixed before the first release, from `filter_order`.
        delta: δ in (0, 1).
        adjacency: how neighbouring data sets differ.

    Guarantee:
        If the divergences of order α of all releases sum to at most B under every possible outcome, their composition has a
        divergence of at most B. So refusing every release that would bring this ε above a target meets the target.

    Source:
        Feldman, Zrnic 2021, "Individual Privacy Accounting via a Rényi Filter" (fully adaptive composition); Haney et al. 2023,
        "Concurrent Composition for Interactive Differential Privacy" (interleaved releases).
    """
    check_query(delta, adjacency)
    spent = np.array([divergence(events, order=order, adjacency=adjacency)])
    return float(rdp.to_epsilon(spent, delta, np.array([order]))[0])


def divergence(events: Iterable[Release], *, order: float, adjacency: str) -> float:
    """Return the sum of the Rényi divergences of releases at this order."""
    place = int(np.argmin(np.abs(ORDERS - order)))
    if ORDERS[place] != order:
        fix = "Another version of Privet chose this order."
        raise InvalidArgumentError("order", order, "one of privet.accounting.rdp.ORDERS", fix)
    return float(curve(events, adjacency)[place])
