"""The audit of one whole training: canaries among the real examples, and guesses of which were in."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from privet.audit.one_run.canaries import log_likelihood_ratio, with_examples, with_gradients
from privet.audit.one_run.guesses import SHARES, GuessBounds, bounds
from privet.audit.probe import Array
from privet.audit.reporting import verdict
from privet.clipping import Projected
from privet.errors import InvalidArgumentError, between
from privet.gradients.core.losses import LossFunction
from privet.plan import Plan
from privet.reading.batches import check_map_style
from privet.training import Training

ALPHA = 1e-6
_SIMULATED = 5  # runs of the ideal attack


@dataclass(frozen=True)
class OneRunAudit:
    """What guesses about one training prove.

    Args:
        epsilon_claimed: ε of the plan.
        delta: δ.
        confidence: of each bound by itself.
        white_box: by an adversary who sees every step's release.
        black_box: by one who sees the final model: its losses, or the canaries' own coordinates.
        expected: what an ideal adversary proves about a mechanism that has exactly the claimed ε, on average: how loose such an
            audit is at best.
        passed: whether no bound exceeds the claim with confidence 1 − 10⁻⁶, all of them together.
        seconds: it took.
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
            f"{verdict(self.passed)}: ε ≤ {self.epsilon_claimed:.4g} is claimed, at δ = {self.delta:g}.",
            "",
            f"Lower bounds on ε, each with confidence {self.confidence:g}, from {self.expected.canaries:,} canaries:",
            _guesses("an adversary who sees every step", self.white_box),
            _guesses("an adversary who sees the final model", self.black_box),
            "Of a mechanism with exactly the claimed ε, an ideal adversary would prove about "
            f"{self.expected.epsilon:.3g} by counting, and {self.expected.epsilon_f_dp:.3g} by the trade-off curve: one run "
            "shows gross faults only.",
        ])  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON values; infinity is the word "inf"."""
        return {name: "inf" if value == math.inf else value for name, value in asdict(self).items()}

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the result as one JSON object."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)


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
    """Train once with canaries of which each takes part by a fair coin, and return what guessing the coins proves about ε.

    A canary that is out keeps its place and contributes nothing ("zero-out"; for released sums the same as not being there).
    Model and optimizer are for the audit, not for use: they have seen examples that are wrong on purpose, or have one parameter
    more.

    Args:
        plan: for the examples of both data sets together.
        model, loss_fn, optimizer: as for `privet.Training`; the model is trained.
        dataset: the real examples.
        canaries: how many gradients of their own to add (on one more parameter, beside the model: the tightest, for rules with
            one group), or m examples like the real ones, such as those of `canaries`.
        confidence: of each bound by itself.
        shares: as for `bounds`; not to be chosen after looking.
        physical_batch_size: as for `privet.Training`.
        progress: called with the name of every part before it begins.

    Raises:
        InvalidArgumentError: the plan is for another number of examples, or for rules that count examples.
    """
    started, tell = time.monotonic(), progress or (lambda part: None)
    between("confidence", confidence, 0.0, 1.0)
    if plan.clipping.adaptive or isinstance(plan.clipping, Projected):
        raise InvalidArgumentError(
            "clipping", plan.clipping, "a rule of exact norms with a fixed bound",
            "One that counts examples would count canaries that are out.",
        )  # fmt: skip
    real, added = check_map_style(dataset), canaries if isinstance(canaries, int) else check_map_style(canaries)
    if plan.examples != real + added:
        raise InvalidArgumentError("plan.examples", plan.examples, f"{real + added}: {real} examples and {added} canaries")
    setting = (
        with_gradients(plan, model, loss_fn, optimizer, dataset, canaries)
        if isinstance(canaries, int)
        else with_examples(plan, model, loss_fn, dataset, canaries)
    )
    tell("training with canaries")
    handle = optimizer.register_step_pre_hook(setting.attack.step)
    try:
        Training(plan, setting.model, setting.loss_fn, optimizer, setting.data, physical_batch_size=physical_batch_size).run()
    finally:
        handle.remove()
    tell("guessing")
    attacks = (setting.attack.scores, setting.attack.final())

    def proved(scores: Array, level: float) -> GuessBounds:
        return bounds(scores, setting.coins.tolist(), delta=plan.delta, confidence=level, shares=shares)

    claimed = plan.epsilon()
    surely = [bound for scores in attacks for bound in _both(proved(scores, 1 - ALPHA / 4))]
    return OneRunAudit(
        epsilon_claimed=claimed,
        delta=plan.delta,
        confidence=confidence,
        white_box=proved(attacks[0], confidence),
        black_box=proved(attacks[1], confidence),
        expected=expected(plan, len(setting.coins), confidence=confidence, shares=shares),
        passed=max(surely) <= claimed,
        seconds=time.monotonic() - started,
    )


def expected(plan: Plan, number: int, *, confidence: float = 0.95, shares: Sequence[float] = SHARES) -> GuessBounds:
    """Return what an ideal adversary proves about a mechanism that is as noisy as the plan says, the mean over some runs.

    Args:
        plan: of which the sampling rate and the multipliers count.
        number: of canaries.
        confidence, shares: as for `bounds`.
    """
    generator, found = np.random.default_rng(), []
    rate, multipliers = plan.sampling_rate, plan.multipliers()
    for _ in range(_SIMULATED):
        coins, scores = generator.random(number) < 0.5, np.zeros(number)
        for multiplier in multipliers:
            there = coins & (generator.random(number) < rate)
            seen = there + multiplier * generator.standard_normal(number)
            scores += log_likelihood_ratio(rate, (seen - 0.5) / multiplier**2)
        found.append(bounds(scores, coins.tolist(), delta=plan.delta, confidence=confidence, shares=shares))
    epsilon, epsilon_f_dp = np.mean([_both(one) for one in found], axis=0).tolist()
    return GuessBounds(epsilon, epsilon_f_dp, found[0].guesses, found[0].correct, number)


def _both(found: GuessBounds) -> tuple[float, float]:
    return found.epsilon, found.epsilon_f_dp


def _guesses(who: str, found: GuessBounds) -> str:
    return (
        f"- {who}: {found.epsilon:.3g} by counting, {found.epsilon_f_dp:.3g} if the trade-off curve is that of normal laws "
        f"({found.correct:,} of {found.guesses:,} guesses right)"
    )
