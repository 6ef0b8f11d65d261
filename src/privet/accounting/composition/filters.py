"""Composition when what is released next, and how much it costs, may depend on what was released before.

Composing privacy loss distributions or trade-off curves takes it that all noise and sampling were fixed in advance: whoever
chooses the next mechanism by the last result can do worse than the composition says. Rényi divergences of one order, chosen
before the first release, add up in spite of that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from privet.accounting import rdp
from privet.accounting.composition.selection import curve
from privet.accounting.events import Release, check_query, merged
from privet.accounting.rdp.accountant import ORDERS
from privet.errors import InvalidArgumentError, positive


def filterable(events: Iterable[Release]) -> bool:
    """Return whether there are Rényi divergences for all of these releases."""
    return all(rdp.covers(event) for event in merged(events, amplified=False))


def filter_order(events: Iterable[Release], *, epsilon: float, delta: float, adjacency: str) -> float:
    """Return the order at which releases like these can be repeated most often within (ε, δ).

    Args:
        events: the first releases that are planned; the order must not depend on any result.
        epsilon: ε > 0 of all releases together.
        delta: δ in (0, 1).
        adjacency: whose data differ between neighbours.

    Returns:
        An order > 1; any other would be as sound.
    """
    check_query(delta, adjacency)
    conversion = np.log1p(-1 / ORDERS) - (math.log(delta) + np.log(ORDERS)) / (ORDERS - 1)
    return float(ORDERS[np.argmax((positive("epsilon", epsilon) - conversion) / curve(events, adjacency))])


def filtered_epsilon(events: Iterable[Release], *, order: float, delta: float, adjacency: str) -> float:
    """Return ε at δ of releases that may have been chosen by the results of earlier ones, and may have run concurrently.

    Args:
        events: all that was released.
        order: Rényi order that was fixed before the first of them, from `filter_order`.
        delta: δ in (0, 1).
        adjacency: whose data differ between neighbours.

    Returns:
        ε ≥ 0, an upper bound.

    Raises:
        InvalidArgumentError: an argument is out of range, or an event has no bound in Rényi divergences.

    Guarantee:
        If the divergences of order α of all releases add up to at most B however results turn out, everything together has a
        divergence of at most B. So whoever lets nothing begin that would bring this ε above a target keeps to the target.

    Source:
        Feldman, Zrnic 2021, "Individual Privacy Accounting via a Rényi Filter" (fully adaptive composition); Haney, Shoemate,
        Tian, Vadhan, Vyrros, Xu, Zhang 2023, "Concurrent Composition for Interactive Differential Privacy with Adaptive
        Privacy-Loss Parameters" (it also holds for releases that interleave).

    >>> from privet.accounting import Event
    >>> run = [Event(0.01, 1.0, 500)]
    >>> order = filter_order(run, epsilon=3.0, delta=1e-5, adjacency="add-remove")
    >>> filtered_epsilon(run * 2, order=order, delta=1e-5, adjacency="add-remove") < 3.0
    True
    """
    check_query(delta, adjacency)
    place = int(np.argmin(np.abs(ORDERS - order)))
    if ORDERS[place] != order:
        raise InvalidArgumentError(
            "order", order, "one of privet.accounting.rdp.accountant.ORDERS", "It was chosen by another version."
        )
    return float(rdp.converted(curve(events, adjacency)[[place]], delta, ORDERS[[place]])[0])
