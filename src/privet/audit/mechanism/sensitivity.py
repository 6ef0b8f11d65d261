"""SENS: without noise, how far does one example move what a trainer releases, at worst?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from privet.audit.checks import Check, certain
from privet.audit.observations import rules_of
from privet.audit.probe import Array, Layout, Probe, ProbeData, Trace, Trainer
from privet.clipping import Projected
from privet.plan import Plan
from privet.sampling import FullBatch

# Sums of float32 are rounded.
_SLACK = 1 + 1e-5
_OTHERS = 9
_GIANT = 1e4  # times the sensitivity
_Fill = Callable[[Tensor, Tensor, float], object]

# What an example can be, given its row, another example's, and the length of a giant.
EXAMPLES: dict[str, _Fill] = {
    "dense": lambda row, other, giant: row.mul_(giant / row.norm()),
    "long in one place": lambda row, other, giant: row.zero_()[:1].fill_(giant),
    "in two halves": lambda row, other, giant: row.zero_()[:: len(row) - 1].fill_(giant),
    "short": lambda row, other, giant: row.mul_(1e-9 * giant / row.norm()),
    "zero": lambda row, other, giant: row.zero_(),
    "one more of another": lambda row, other, giant: row.copy_(other),
    "opposite of another": lambda row, other, giant: row.copy_(other).neg_(),
    "NaN": lambda row, other, giant: row[3:4].fill_(torch.nan),
    "infinite": lambda row, other, giant: row[3:5].copy_(torch.tensor([torch.inf, -torch.inf])),
    "1e20": lambda row, other, giant: row.fill_(1e20),
}
_TIED = ("dense", "NaN", "1e20")  # what is tried with tied parameters as well


def checks(plan: Plan, layout: Layout, trainer: Trainer) -> list[Check]:
    """Return whether one example, of every kind, moves the noiseless release by at most the sensitivity.

    Args:
        plan: the claim.
        layout: parameters and groups.
        trainer: what is audited; it is asked to add no noise.
    """
    if isinstance(plan.clipping, Projected):
        return []  # estimated norms bound no single step; what that costs is in the accounting
    largest = dict.fromkeys(EXAMPLES, 0.0)
    for tied in (False, True):
        batches = {kind: rows for kind, rows in _batches(layout, plan.clipping.sensitivity) if kind in _TIED or not tied}
        rest = _train(plan, layout, trainer, next(iter(batches.values()))[1:], tied)
        for kind, rows in batches.items():
            moved = _moved(plan, _train(plan, layout, trainer, rows, tied), rest, layout)
            largest[kind] = max(largest[kind], moved) if math.isfinite(moved) else math.inf
    return [
        certain(f"one example that is {kind}", f"moves the sum by {moved:.6g} of what it may", holds=moved <= _SLACK)
        for kind, moved in largest.items()
    ]


def _batches(layout: Layout, sensitivity: float) -> Iterator[tuple[str, Tensor]]:
    """Yield rows whose first is an example of each kind; the others, of very different size, are always the same."""
    generator = torch.Generator().manual_seed(0)
    size = sum(layout.sizes.values())
    others = torch.randn(_OTHERS, size, generator=generator)
    others *= (sensitivity * torch.logspace(-4, 4, _OTHERS) / others.norm(dim=1))[:, None]
    others[-1] = -0.999 * others[-2]  # giants that hide each other if they are not clipped first
    for name, fill in EXAMPLES.items():
        first = torch.randn(size, generator=generator)
        fill(first, others[-2], _GIANT * sensitivity)
        yield name, torch.cat([first[None], others])


def _train(plan: Plan, layout: Layout, trainer: Trainer, rows: Tensor, tied: bool) -> Trace:
    # Without noise an adaptive bound, and ranked masks, depend on the examples from the second step on.
    past = 0 if plan.momentum is None else len(plan.momentum.coefficients)
    silent = replace(
        plan, examples=len(rows), sampling=FullBatch(), steps=1 if plan.clipping.adaptive or plan.sparsification else past + 1,
        noise=replace(plan.noise, multiplier=0, non_private=True), accept_large_delta=True,
    )  # fmt: skip
    data = ProbeData(rows, np.arange(len(rows)), len(rows), str(plan.unit))
    return trainer(Probe(silent, layout.sizes, data, physical_batch_size=_OTHERS // 2, tied=tied))


def _moved(plan: Plan, one: Trace, other: Trace, layout: Layout) -> float:
    """Return the largest distance over the steps, as the noise sees it, over the sensitivity."""
    steps = len(next(iter(one.releases.values())))
    shown = replace(plan, steps=steps)
    rules = rules_of(shown, one)
    squares: Array = np.zeros(steps)
    for name, released in one.releases.items():
        scales = np.array([rule.noise_scales(tuple(layout.sizes)).get(name, 1.0) * rule.sensitivity for rule in rules])
        with np.errstate(over="ignore"):  # what is not clipped may be as long as it likes
            squares += (((released - other.releases[name]) / scales[:, None]) ** 2).sum(1)
    return float(np.sqrt(squares).max())
