"""SENS: check the largest change of a trainer's release by one example, without noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from privet.accounting.privacy_unit import find_unit
from privet.audit.checks import Check, deterministic_check
from privet.audit.observations import rules_per_step, unit_deviations
from privet.audit.probe import Layout, Probe, ProbeData, Trace, Trainer
from privet.clipping import Projected
from privet.plan import Plan
from privet.sampling import FullBatch

# Tolerance for rounding in sums of float32.
_SLACK = 1 + 1e-5
_OTHERS = 9
_GIANT = 1e4  # norm of a very large example, in multiples of the sensitivity
_Fill = Callable[[Tensor, Tensor, float], object]

# Kind of example → function that fills its row, given the row, another example's row, and the norm of a very large example.
EXAMPLES: dict[str, _Fill] = {
    "dense": lambda row, other, giant: row.mul_(giant / row.norm()),
    "large in one coordinate": lambda row, other, giant: row.zero_()[:1].fill_(giant),
    "in two halves": lambda row, other, giant: row.zero_()[:: len(row) - 1].fill_(giant),
    "tiny": lambda row, other, giant: row.mul_(1e-9 * giant / row.norm()),
    "zero": lambda row, other, giant: row.zero_(),
    "a copy of another": lambda row, other, giant: row.copy_(other),
    "the opposite of another": lambda row, other, giant: row.copy_(other).neg_(),
    "NaN": lambda row, other, giant: row[3:4].fill_(torch.nan),
    "infinite": lambda row, other, giant: row[3:5].copy_(torch.tensor([torch.inf, -torch.inf], device="cpu")),
    "1e20": lambda row, other, giant: row.fill_(1e20),
}
_TIED = ("dense", "NaN", "1e20")  # kinds that are also checked with tied parameters


def checks(plan: Plan, layout: Layout, trainer: Trainer) -> list[Check]:
    """Check that one example of each kind changes the release of a trainer without noise by at most the sensitivity."""
    if isinstance(plan.clipping, Projected):
        return []  # estimated norms do not bound a single step; the accounting includes this
    largest = dict.fromkeys(EXAMPLES, 0.0)
    for tied in (False, True):
        batches = {kind: rows for kind, rows in _batches(layout, plan.clipping.sensitivity) if kind in _TIED or not tied}
        rest = _train(plan, layout, trainer, next(iter(batches.values()))[1:], tied)
        for kind, rows in batches.items():
            change = _largest_change(plan, _train(plan, layout, trainer, rows, tied), rest, layout)
            largest[kind] = max(largest[kind], change) if math.isfinite(change) else math.inf
    counted = find_unit(plan.unit).counted  # "example", or "user"
    return [
        deterministic_check(
            f"one {counted} that is {kind}", f"changes the sum by {change:.6g} of the sensitivity", holds=change <= _SLACK
        )
        for kind, change in largest.items()
    ]


def _batches(layout: Layout, sensitivity: float) -> Iterator[tuple[str, Tensor]]:
    """Yield (kind, rows): the first row is an example of that kind; the others, of very different norms, stay the same."""
    generator = torch.Generator().manual_seed(0)
    size = sum(layout.sizes.values())
    others = torch.randn(_OTHERS, size, generator=generator, device="cpu")
    others *= (sensitivity * torch.logspace(-4, 4, _OTHERS, device="cpu") / others.norm(dim=1))[:, None]
    others[-1] = -0.999 * others[-2]  # two very large rows that cancel unless each is clipped first
    for name, fill in EXAMPLES.items():
        first = torch.randn(size, generator=generator, device="cpu")
        fill(first, others[-2], _GIANT * sensitivity)
        yield name, torch.cat([first[None], others])


def _train(plan: Plan, layout: Layout, trainer: Trainer, rows: Tensor, tied: bool) -> Trace:
    # Without noise, adaptive bounds and ranked masks depend on the examples from the second step on.
    past = 0 if plan.momentum is None else len(plan.momentum.coefficients)
    silent = replace(
        plan, examples=len(rows), sampling=FullBatch(), steps=1 if plan.clipping.adaptive or plan.sparsification else past + 1,
        noise=replace(plan.noise, multiplier=0, non_private=True), accept_large_delta=True,
    )  # fmt: skip
    data = ProbeData(rows, np.arange(len(rows)), len(rows), str(plan.unit))
    return trainer(Probe(silent, layout.sizes, data, physical_batch_size=_OTHERS // 2, tied=tied))


def _largest_change(plan: Plan, one: Trace, other: Trace, layout: Layout) -> float:
    """Return the largest distance of two traces over the steps, scaled like the noise, relative to the sensitivity."""
    steps = len(next(iter(one.releases.values())))
    units = unit_deviations(rules_per_step(replace(plan, steps=steps), one), layout.sizes, one.releases)
    with np.errstate(over="ignore"):  # an unclipped release may overflow
        squares = [(((values - other.releases[name]) / units[name]) ** 2).sum(1) for name, values in one.releases.items()]
    return float(np.sqrt(sum(squares)).max())
