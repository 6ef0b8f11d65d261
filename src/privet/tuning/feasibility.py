"""Feasibility: how much signal a plan leaves above its noise, from public quantities only, before the first step.

A step releases the mean of B clipped gradients, whose norm is at most the sensitivity S, plus noise of standard deviation σ·S/B
in each of d coordinates, whose norm is about √d·σ·S/B. If all gradients of T steps point the same way, the sum of all releases
lies B·√T/σ standard deviations of its noise from zero: the signal. It is √d times the ratio of norms, but predicts better what
training reaches, because noise in directions that gradients never take does little harm: training keeps next to nothing of the
possible accuracy at a signal of 10 to 20, half of it at about 80 and nearly all from 300 on, whether the model has 400 or four
million parameters (measured: docs/results/feasibility.md).

With full batches the signal is N·µ, where µ(ε, δ) describes the Gaussian mechanism, so nothing but N, ε and δ decides. Smaller
batches use a part of it, less as σ falls below 1 (Sander, Stock, Sablayrolles 2023, "TAN Without a Burn: Scaling Laws of DP-SGD",
section 3).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from privet.accounting.classic import gaussian
from privet.errors import InvalidArgumentError, count
from privet.noise import Correlated, Gaussian
from privet.plan import Plan, PrivacyMechanism
from privet.sampling import Poisson
from privet.tuning.defaults import choose_model

# Signals below which training learned next to nothing, and below which it kept about half of the possible accuracy or
# less.
HOPELESS = 20.0
WEAK = 80.0
# Share of the signal that ε pays for, below which a batch is called small, and that a better one should have.
_SMALL_BATCH, _GOOD_BATCH = 0.5, 0.8
# δ·N above which it is more likely than not that the worst mechanism with this δ publishes somebody's record.
_LARGE_DELTA = math.log(2)
# Networks with and without hidden layers between the same inputs and outputs.
_DENSE, _LINEAR = ("mlp", "table", "regression-mlp"), ("logistic", "linear")
# Factor above the weakest signal that a remedy aims at: at a larger ε, small batches use less of it.
_MARGIN = 1.1
# µ above which no ε is recommended: it would protect nobody.
_LARGEST_MU = 10.0


@dataclass(frozen=True)
class Feasibility:
    """What can be said of a plan's chances from public quantities.

    Args:
        examples: number of examples N, or of units of privacy.
        parameters: number of trainable parameters d.
        epsilon, delta: of the whole plan; ε is infinity without privacy.
        steps: T.
        batch_size: expected batch size B.
        noise_multiplier: σ; one over the root mean square of 1/σ, if steps differ.
        noise_norm: norm of a step's noise over the largest possible norm of its mean gradient, √d·σ/B.
        signal: B·√T/σ, the largest distance from zero of the sum of all releases, in standard deviations of its noise.
        efficiency: `signal` over that of full batches at the same ε and δ; in (0, 1], and NaN without privacy.
        warnings: sentences about a plan that is unlikely to work, each with its remedy.
    """

    examples: int
    parameters: int
    epsilon: float
    delta: float
    steps: int
    batch_size: float
    noise_multiplier: float
    noise_norm: float
    signal: float
    efficiency: float
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return one line with the numbers."""
        plan = f"{self.steps:,} steps of {self.batch_size:,.6g} from {self.examples:,} examples, {self.parameters:,} parameters"
        if math.isinf(self.signal):
            return f"{plan}; without privacy"
        return (
            f"{plan}; noise multiplier {self.noise_multiplier:.3g}, signal at most {format_signal(self.signal)} standard "
            f"deviations of the noise ({WEAK:g} are needed)"
        )


def assess(plan: Plan, parameters: int, *, epsilon: float | None = None, simpler: str | None = None) -> Feasibility:
    """Return the largest signal that a plan allows, with warnings about a plan that is unlikely to work; no data is used.

    Args:
        plan: a plan with noise and steps.
        parameters: number of trainable parameters d ≥ 1.
        epsilon: ε of the plan, if known; it is computed otherwise.
        simpler: name of a network that this much signal suits better, from `find_simpler_model`; or None.

    >>> from privet import clipping, sampling
    >>> plan = Plan(examples=1437, sampling=sampling.FullBatch(), steps=40, clipping=clipping.Flat(0.1), delta=7e-5)
    >>> found = assess(plan.calibrate(3.0), parameters=650)
    >>> round(found.signal), found.warnings
    (1149, ())
    >>> print(assess(plan.calibrate(1e-4), parameters=650).warnings[0].partition(":")[0])
    ε = 0.0001 is hopeless for 1,437 examples
    """
    count("parameters", parameters)
    multipliers = plan.multipliers()
    spent = plan.epsilon() if epsilon is None else epsilon
    if not multipliers.all() or math.isinf(spent):
        multiplier, signal, efficiency = 0.0, math.inf, math.nan
    else:
        # Correlated noise counts by what is left of it in the sum of all steps.
        left = plan.accumulated_noise() / math.sqrt(plan.total_steps)
        multiplier = left if isinstance(plan.noise, Correlated) else 1 / float(np.sqrt(np.mean(multipliers**-2.0)))
        signal = plan.divisor * math.sqrt(plan.total_steps) / multiplier
        # N·µ is the signal of full batches at this ε; half of it where replacing an example moves the sum twice as far.
        most = plan.examples * gaussian.mu(spent, plan.delta) / (2 if plan.adjacency == "replace-one" else 1)
        efficiency = min(1.0, signal / most)
    found = Feasibility(
        examples=plan.examples, parameters=parameters, epsilon=spent, delta=plan.delta, steps=plan.total_steps,
        batch_size=plan.divisor, noise_multiplier=multiplier, noise_norm=math.sqrt(parameters) * multiplier / plan.divisor,
        signal=signal, efficiency=efficiency,
    )  # fmt: skip
    warnings = [*_signal_warnings(plan, found), *_batch_warnings(plan, found), *_delta_warnings(plan)]
    if simpler is not None and WEAK <= found.signal < math.inf:
        warnings.append(
            f"{parameters:,} parameters are more than {plan.examples:,} examples support at ε = {spent:.3g}: the network "
            f"{simpler!r} is likely to do better"
        )
    return replace(found, warnings=tuple(warnings))


def find_simpler_model(
    model: str, examples: int, input_shape: tuple[int, ...], *, task: str, schema: bool, epsilon: float, delta: float
) -> str | None:
    """Return the linear network to take in place of one with hidden layers, if the signal is too small for these; else None."""
    if model not in _DENSE or math.isinf(epsilon):
        return None
    best = choose_model(examples, input_shape, task=task, schema=schema, epsilon=epsilon, delta=delta)
    return best if best in _LINEAR else None


def format_signal(signal: float) -> str:
    """Return a signal with three digits."""
    return f"{signal:,.0f}" if signal >= 100 else f"{signal:.3g}"


def _signal_warnings(plan: Plan, found: Feasibility) -> Iterator[str]:
    if found.signal >= WEAK:
        return
    lack = _MARGIN * WEAK / found.signal
    needed = f"At this ε it takes {_round(plan.examples * lack, up=True):,.12g} examples"
    if (enough := gaussian.mu(found.epsilon, plan.delta) * lack) < _LARGEST_MU:
        needed += f", with these examples ε = {_round(gaussian.epsilon(enough, plan.delta), up=True):.6g}"
    hopeless = found.signal < HOPELESS
    judged = "is hopeless" if hopeless else "is little"
    limit = f"{HOPELESS:g} training learns next to nothing" if hopeless else f"{WEAK:g} it keeps half of its accuracy or less"
    yield (
        f"ε = {found.epsilon:.3g} {judged} for {plan.examples:,} examples: the signal is at most {format_signal(found.signal)} "
        f"standard deviations of the noise, and below {limit}. {needed}"
    )


def _batch_warnings(plan: Plan, found: Feasibility) -> Iterator[str]:
    """Yield a better batch at the same number of epochs, if the plan's uses little of what ε pays for."""
    if not found.efficiency < _SMALL_BATCH:
        return
    advice = "take larger batches and fewer steps"
    for size, steps in _larger_batches(plan):
        try:
            better = _calibrate_batch(plan, found.epsilon, size, steps)
        except InvalidArgumentError:  # the noise is outside of the accountant's range
            continue
        share = found.efficiency * math.sqrt(steps / found.steps) * (size / found.batch_size) * found.noise_multiplier / better
        if share >= _GOOD_BATCH or size == plan.examples:
            advice = f"{steps:,} steps of {size:,} take the same time and use {min(share, 1.0):.0%}"
            break
    yield f"batches of {found.batch_size:,.4g} use {found.efficiency:.0%} of the signal that ε pays for: {advice}"


def _larger_batches(plan: Plan) -> Iterator[tuple[int, int]]:
    """Yield batch sizes, doubled up to the whole data set, with the steps that read as many examples as the plan does."""
    size = plan.divisor
    while size < plan.examples:
        size = min(2 * size, plan.examples)
        yield round(size), max(1, round(plan.total_steps * plan.divisor / size))


def _calibrate_batch(plan: Plan, epsilon: float, size: int, steps: int) -> float:
    return PrivacyMechanism(
        examples=plan.examples, sampling=Poisson(size), steps=steps, delta=plan.delta, adjacency=plan.adjacency, unit=plan.unit,
        noise=Gaussian(),
    ).calibrate(epsilon).noise_multiplier  # fmt: skip


def _delta_warnings(plan: Plan) -> Iterator[str]:
    if plan.delta * plan.people > _LARGE_DELTA:
        published = -math.expm1(plan.people * math.log1p(-plan.delta))
        yield (
            f"δ = {plan.delta:.3g} is {plan.delta * plan.people:.2g} times 1/N: publishing one of the {plan.people:,} records "
            f"with probability {published:.0%} would satisfy it; take δ ≤ {_round(0.1 / plan.people, up=False):.2g}, a tenth "
            "of 1/N"
        )


def _round(value: float, *, up: bool) -> float:
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return (math.ceil if up else math.floor)(value / unit) * unit
