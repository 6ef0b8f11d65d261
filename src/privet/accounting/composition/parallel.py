"""Parallel composition: releases that each see their own part of the data cost together what the dearest of them costs."""

from __future__ import annotations

from collections.abc import Iterable

from privet.accounting.events import Release
from privet.accounting.queries import composed_epsilon
from privet.errors import InvalidArgumentError


def parallel_epsilon(
    parts: Iterable[Iterable[Release]], *, delta: float, adjacency: str = "add-remove", accountant: str = "pld"
) -> float:
    """Return ε at δ of what was released of disjoint parts of one data set, such as one training for every region.

    Args:
        parts: what was released of each part.
        delta, adjacency, accountant: as for `composed_epsilon`; δ is that of the whole, and of each part.

    Returns:
        The largest ε of any part.

    Raises:
        InvalidArgumentError: there is no part, or as for `composed_epsilon`.

    Guarantee:
        To which part an example belongs has to depend on that example alone: neighbours then differ in one part, the other parts'
        outputs are independent of it and have the same distribution for both. If examples are replaced, the part also must not
        depend on what the example holds (but, say, on where it lies), as it would else leave one part and enter another: then add
        the two dearest parts up instead. The public size of each part is that part's.

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
