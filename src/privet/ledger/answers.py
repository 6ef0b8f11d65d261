"""Queries of a plan: paid for in the ledger before their noise is drawn, and answered once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from privet.clipping.clipped_sum import ClippedSum
from privet.errors import InvalidArgumentError, positive
from privet.ledger import Ledger
from privet.noise import Source, release

# Contributions are rounded to multiples of this, so that their sum is exact and no rounding error adds to the sensitivity.
_GRID = 2.0**-20


def bounded_sum(contributions: Tensor, bound: float) -> ClippedSum:
    """Return the exact sum (d,) of the rows of contributions (N, d), each scaled down to an L2 norm of at most C = bound.

    Values that are not finite count as 0. Rows are rounded to multiples of 2⁻²⁰ toward zero, which shortens them: sums of up to
    2³² rows are exact in float64, so no rounding depends on other rows, and the sensitivity is C.
    """
    if contributions.ndim != 2:
        raise InvalidArgumentError("the shape of contributions", tuple(contributions.shape), "(N, d)")
    rows = contributions.to("cpu", torch.float64).nan_to_num(0.0, 0.0, 0.0)
    norms = rows.norm(dim=1, keepdim=True)
    # A row of exactly this length stays as it is; rounding toward zero makes up for the last bit of a quotient.
    shortened = torch.where(norms > positive("bound", bound), rows * (bound / norms), rows)
    total = (shortened / _GRID).trunc().to(torch.int64).sum(0).to(torch.float64) * _GRID
    return ClippedSum({"sum": total}, bound, torch.zeros(0, dtype=torch.float64, device="cpu"))


def answer_query(ledger: Ledger, name: str, compute: Callable[[], ClippedSum], source: Source) -> tuple[float, ...] | None:
    """Return the answer to a query; None if a killed process had paid for it.

    Guarantee:
        Compute, which releases nothing; pay, durably; draw the noise; record the answer, durably. A process killed at any point
        leaves a query that is unpaid and never drawn, or paid for and never drawn again.
    """
    if name in ledger.answers:
        return ledger.answers[name]
    if name in ledger.lost:
        return None
    summed = compute()
    noised = release(summed, ledger.reserve_query(name), source)
    values = torch.cat([tensor.flatten() for tensor in noised.tensors.values()]).tolist()
    ledger.record_answer(name, values)
    return tuple(values)
