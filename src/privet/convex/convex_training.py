"""Private training of a linear model by one release: rows → minimiser → noise, paid for in the ledger; and its check."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from privet.clipping.clipped_sum import ClippedSum
from privet.convex.convex_plan import ConvexPlan
from privet.convex.minimiser import PerturbedObjective, minimise, read_rows
from privet.errors import InvalidArgumentError
from privet.ledger import Ledger
from privet.ledger.answers import answer_query
from privet.noise import SOURCES, release


def fit(plan: ConvexPlan, inputs: Tensor, targets: Tensor, *, ledger: Path | None = None) -> Tensor:
    """Return released weights, (K, D + 1) float64 on the CPU: features divided by the radius, then the intercept.

    Args:
        plan: calibrated plan.
        inputs: (N, …) private features, flattened to D; on any device, which also computes.
        targets: (N,) private labels 0 … K − 1, or numbers scaled to [−1, 1]. An example with another target, or with a feature
            that is not finite, contributes nothing.
        ledger: new file for the ledger; None keeps it in memory.

    Raises:
        InvalidArgumentError: the plan has no multiplier, or the data are not of its shape.
        LedgerError: the file belongs to another run, or cannot be written.

    Guarantee:
        ε of the plan. No value of the data decides on shapes, messages or exceptions: rows are bounded one by one, and the search
        for the minimiser ends for every data set. Each draw of noise is in the ledger before it is drawn. A process that is
        killed afterwards has spent it, and a new run has a new plan. The noise on the objective is never written anywhere.

    >>> import torch
    >>> from privet.convex import Logistic, ObjectivePerturbation
    >>> generator = torch.Generator().manual_seed(0)
    >>> inputs = torch.randn(2000, 2, generator=generator)
    >>> labels = (inputs[:, 0] > 0).long()
    >>> plan = ConvexPlan(
    ...     examples=2000, features=2, loss=Logistic(2), mechanism=ObjectivePerturbation(), regularisation=4.0, delta=1e-5
    ... ).calibrate(epsilon=1.0)
    >>> weights = fit(plan, inputs, labels)
    >>> weights.shape, bool(weights[1, 0] > weights[0, 0])
    (torch.Size([2, 3]), True)
    """
    multipliers = plan.queries  # raises without a multiplier
    encoded, usable = plan.loss.encode(targets)
    rows = read_rows(inputs, usable, plan.examples, plan.features, plan.radius, plan.intercept)
    if encoded.shape != (plan.examples,):
        raise InvalidArgumentError("the shape of the targets", tuple(targets.shape), f"({plan.examples},)")
    record, source = Ledger.create(plan.to_dict(), [], ledger, queries=multipliers), SOURCES[plan.source]()
    try:
        linear = torch.zeros(plan.shape, dtype=torch.float64, device="cpu")
        if plan.mechanism.PERTURBS_OBJECTIVE:  # b, Gaussian with standard deviation σ·L on every coordinate
            nothing = ClippedSum.zero({"weights": linear}, plan.loss.lipschitz)
            linear = release(nothing, record.reserve_query("objective"), source).tensors["weights"]
        objective = PerturbedObjective(plan.loss, rows, encoded, plan.regularisation, linear.to(rows.device))

        def solve() -> ClippedSum:
            weights = minimise(objective, plan.tolerance / 2).cpu()
            return ClippedSum({"weights": weights}, plan.sensitivity, torch.zeros(0, dtype=torch.float64, device="cpu"))

        released = answer_query(record, "solution", solve, source)
    finally:
        record.close()
    assert released is not None  # the ledger is new, so the query cannot be lost
    return torch.tensor(released, dtype=torch.float64, device="cpu").view(plan.shape)
