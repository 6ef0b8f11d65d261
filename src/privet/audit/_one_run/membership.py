"""Audit of one training run with canaries among the real examples."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from privet.audit._one_run.canaries import add_example_canaries, add_gradient_canaries, log_likelihood_ratio
from privet.audit._one_run.guesses import SHARES, GuessBounds, bounds
from privet.audit.checks import Certificate
from privet.audit.probe import Array
from privet.clipping import Projected
from privet.clipping.gep import refuse_anchors
from privet.errors import InvalidArgumentError, between
from privet.gradients.core.losses import LossFunction
from privet.plan import Plan
from privet.reading.batches import check_map_style
from privet.training import Training

ALPHA = 1e-6
_SIMULATED = 5  # simulated runs of the ideal attack


@dataclass(frozen=True)
class OneRunAudit(Certificate):
    """The result of an audit of one training run.

    Args:
        epsilon_claimed: ε of the plan.
        delta: δ.
        confidence: confidence of each bound by itself.
        white_box: bounds by an adversary who sees the release of each step.
        black_box: bounds by an adversary who sees the final model: its losses, or the canaries' coordinates.
        expected: mean bounds of an ideal adversary for a mechanism with exactly the claimed ε, which shows how loose such an
            audit is.
        passed: whether no bound exceeds the claim, with joint confidence 1 − 10⁻⁶.
        seconds: duration of the audit.
    """

    epsilon_claimed: float
    delta: float
    confidence: float
    white_box: GuessBounds
    black_box: GuessBounds
    expected: GuessBounds
    passed: bool
    seconds: float

    def __str__(self) -> str:
        return "\n".join([
            f"{self._verdict}: ε ≤ {self.epsilon_claimed:.4g} claimed, at δ = {self.delta:g}.",
            "",
            f"Lower bounds on ε, each with confidence {self.confidence:g}, from {self.expected.canaries:,} canaries:",
            *(
                f"- adversary who sees {part}: {found.epsilon:.3g} by counting, {found.epsilon_f_dp:.3g} assuming a Gaussian "
                f"trade-off curve ({found.correct:,} of {found.guesses:,} guesses correct)"
                for part, found in (("every step", self.white_box), ("the final model", self.black_box))
            ),
            "For a mechanism with exactly the claimed ε, an ideal adversary would prove about "
            f"{self.expected.epsilon:.3g} by counting and {self.expected.epsilon_f_dp:.3g} by the trade-off curve: a single run "
            "reveals gross faults only.",
        ])  # fmt: skip


def one_run(
    plan: Plan,
    model: nn.Module,
    loss_fn: LossFunction,
    optimizer: torch.optim.Optimizer,
    dataset: Dataset[Any],
    canaries: Dataset[Any] | int,
    *,
    confidence: float = 0.95,
    shares: Sequence[float] = SHARES,
    physical_batch_size: int = 256,
    progress: Callable[[str], object] | None = None,
) -> OneRunAudit:
    """Train once with canaries, each included by a fair coin flip, and bound ε from below by guessing the coins.

    An excluded canary keeps its place and contributes nothing ("zero-out", which for released sums equals absence). Do not use
    the model and optimizer afterwards: they have seen mislabelled examples, or have an additional parameter.

    Args:
        plan: plan for the examples of both data sets together.
        model, loss_fn, optimizer: as for `privet.Training`; the model is trained.
        dataset: the real examples.
        canaries: number of gradient canaries (on an additional parameter outside the model: the tightest, for rules with one
            group), or m examples like the real ones, such as those of `canaries`.
        confidence: confidence of each bound by itself.
        shares: as for `bounds`; do not choose them after looking at results.
        physical_batch_size: as for `privet.Training`.
        progress: called with the name of each part before it starts.

    Raises:
        InvalidArgumentError: the plan is for another number of examples, or its rule counts or estimates.
    """
    started, report = time.monotonic(), progress or (lambda part: None)
    between("confidence", confidence, 0.0, 1.0)
    refuse_anchors(plan.clipping, "an audit")
    if plan.clipping.adaptive or isinstance(plan.clipping, Projected):
        raise InvalidArgumentError(
            "clipping", plan.clipping, "a rule of exact norms with a fixed bound",
            "A rule that counts examples would count excluded canaries.",
        )  # fmt: skip
    real, added = check_map_style(dataset), canaries if isinstance(canaries, int) else check_map_style(canaries)
    if plan.examples != real + added:
        raise InvalidArgumentError("plan.examples", plan.examples, f"{real + added}: {real} examples and {added} canaries")
    attacked, loss, data, attack = (
        add_gradient_canaries(plan, model, loss_fn, optimizer, dataset, canaries)
        if isinstance(canaries, int)
        else add_example_canaries(plan, model, loss_fn, dataset, canaries)
    )
    report("training with canaries")
    handle = optimizer.register_step_pre_hook(attack.step)
    try:
        Training(plan, attacked, loss, optimizer, data, physical_batch_size=physical_batch_size).run()
    finally:
        handle.remove()
    report("guessing")
    attacks = (attack.scores, attack.final())

    def prove(scores: Array, level: float) -> GuessBounds:
        return bounds(scores, data.coins.tolist(), delta=plan.delta, confidence=level, shares=shares)

    claimed = plan.epsilon()
    joint = [prove(scores, 1 - ALPHA / 4) for scores in attacks]
    return OneRunAudit(
        epsilon_claimed=claimed,
        delta=plan.delta,
        confidence=confidence,
        white_box=prove(attacks[0], confidence),
        black_box=prove(attacks[1], confidence),
        expected=simulate_ideal_attack(plan, len(data.coins), confidence=confidence, shares=shares),
        passed=max(max(one.epsilon, one.epsilon_f_dp) for one in joint) <= claimed,
        seconds=time.monotonic() - started,
    )


def simulate_ideal_attack(plan: Plan, number: int, *, confidence: float = 0.95, shares: Sequence[float] = SHARES) -> GuessBounds:
    """Return the mean bounds of an ideal adversary with `number` canaries against the plan's noise, over some simulated runs."""
    generator, found = np.random.default_rng(), []
    rate, multipliers = plan.sampling_rate, plan.multipliers()
    for _ in range(_SIMULATED):
        coins, scores = generator.random(number) < 0.5, np.zeros(number)
        for multiplier in multipliers:
            there = coins & (generator.random(number) < rate)
            seen = there + multiplier * generator.standard_normal(number)
            scores += log_likelihood_ratio(rate, (seen - 0.5) / multiplier**2)
        found.append(bounds(scores, coins.tolist(), delta=plan.delta, confidence=confidence, shares=shares))
    epsilon, epsilon_f_dp = np.mean([(one.epsilon, one.epsilon_f_dp) for one in found], axis=0).tolist()
    return GuessBounds(epsilon, epsilon_f_dp, found[0].guesses, found[0].correct, number)
