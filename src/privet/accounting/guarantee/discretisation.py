"""Resolution of an accountant's answer: the width of its loss grid, or its Rényi orders. Readers need it to check an ε."""

from __future__ import annotations

__all__ = ["Numbers", "discretisation"]

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from privet.accounting import pld, rdp
from privet.accounting.coverage import as_accounted
from privet.accounting.events import Release
from privet.accounting.rdp import moments

Numbers = Mapping[str, float]


def _pld(events: Sequence[Release], delta: float, adjacency: str) -> Numbers:
    width = pld.grid_width(events, delta, adjacency)
    return {"grid_width": width} if width else {}


def _rdp(events: Sequence[Release], delta: float, adjacency: str) -> Numbers:
    best = int(np.argmin(rdp.to_epsilon(rdp.curve(events, adjacency), delta, rdp.ORDERS)))
    return {
        "orders": len(rdp.ORDERS),
        "lowest_order": float(rdp.ORDERS[0]),
        "highest_order": float(rdp.ORDERS[-1]),
        "best_order": float(rdp.ORDERS[best]),
    }


def _moments(events: Sequence[Release], delta: float, adjacency: str) -> Numbers:
    return {"orders": moments.LARGEST_MOMENT, "lowest_order": 2, "highest_order": moments.LARGEST_MOMENT + 1}


# The other accountants are closed forms.
_DISCRETISED: dict[str, Callable[[Sequence[Release], float, str], Numbers]] = {"pld": _pld, "rdp": _rdp, "moments": _moments}


def discretisation(events: Iterable[Release], *, delta: float, adjacency: str, accountant: str) -> dict[str, float]:
    """Return the parameters that set the resolution of an accountant's answer, name → number; empty for a closed form.

    Args:
        events: the releases, with noise.
        delta, adjacency, accountant: as for `composed_epsilon`, which has accepted them.

    >>> from privet.accounting import Event
    >>> discretisation([Event(1.0, 2.0)], delta=1e-5, adjacency="add-remove", accountant="pld")
    {}
    >>> discretisation([Event(0.01, 2.0)], delta=1e-5, adjacency="add-remove", accountant="moments")
    {'orders': 32, 'lowest_order': 2, 'highest_order': 33}
    """
    together, found = as_accounted(events, adjacency, accountant), _DISCRETISED.get(accountant)
    return dict(found(together, delta, adjacency)) if together and found else {}
