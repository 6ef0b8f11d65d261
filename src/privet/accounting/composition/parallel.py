"""Parallel composition: releases on disjoint parts of the data cost as much as the most expensive one."""

from __future__ import annotations

__all__ = ["parallel_epsilon"]

from collections.abc import Iterable

from privet.accounting.events import Release
from privet.accounting.queries import composed_epsilon
from privet.errors import InvalidArgumentError


def parallel_epsilon(
    parts: Iterable[Iterable[Release]], *, delta: float, adjacency: str = "add-remove", accountant: str = "pld"
) -> float:
    """Return ε at δ of releases on disjoint parts of one data set, such as one training per region.

    Args:
        parts: the releases on each part.
        delta, adjacency, accountant: as for `composed_epsilon`; the same δ holds for each part and for the whole.

    Returns:
        The largest ε of any part.

    Raises:
        InvalidArgumentError: there is no part, or as for `composed_epsilon`.

    Guarantee:
        The part of an example must depend on that example alone. Neighbours then differ in one part; the outputs of the other
        parts are independent of it and identically distributed for both. For replacing, the part must not depend on the content
        of the example either (but, say, on its position); otherwise the example could leave one part and enter another, and the
        ε of the two most expensive parts add up. Each part has its own public size.

    Source:
        McSherry 2009, "Privacy Integrated Queries", Theorem 4.

    >>> from privet.accounting import Event
    >>> one, other = [Event(0.01, 2.0, 100)], [Event(0.05, 1.5, 300)]
    >>> parallel_epsilon([one, other], delta=1e-5) == composed_epsilon(other, delta=1e-5)
    True
    """
    spent = [composed_epsilon(part, delta=delta, adjacency=adjacency, accountant=accountant) for part in parts]
    if not spent:
        raise InvalidArgumentError("parts", spent, "at least one")
    return max(spent)
