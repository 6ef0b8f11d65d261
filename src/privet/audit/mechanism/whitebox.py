"""The audit of the mechanism: clip, noise, division and sampling as a trainer does them, against what the plan says."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from privet.audit.checks import Check
from privet.audit.mechanism import influence, noise, sampler, sensitivity
from privet.audit.observations import observe
from privet.audit.probe import Layout, Probe, ProbeData, Trainer, layout
from privet.audit.production import train
from privet.audit.reporting import table, verdict
from privet.clipping import AdaptiveQuantile, Projected
from privet.errors import InvalidArgumentError, between, count
from privet.plan import Plan
from privet.sampling import ByEpoch, FullBatch, Scheme

ALPHA = 1e-6
# What is asked, as the names of the checks begin.
FAMILIES = ("SENS", "NOISE", "SAMPLER", "AUDIT")
# A finding with less than this is not tried again: chance has no part in it.
_CERTAIN = 1e-12
_AGAIN = 10
_FEWEST_STEPS, _MOST_STEPS = 50, 20_000
_OBSERVATIONS, _FEWEST_OBSERVATIONS = 1_000_000, 10_000
# A step costs as much to start as a few hundred coordinates of as many examples cost to compute.
_COORDINATES, _SAMPLED_COORDINATES = 512, 208
# A step also costs by the parameter. So that many of them, or many groups, do not make an audit of a million observations longer
# than a minute, they make it look at fewer steps: so many over the parameters.
_PARAMETER_STEPS, _CHEAP_STEPS = 24_000, 400
_MOST_FILLERS = 0.9  # of the examples with everybody taking part
_SAMPLED_STEPS, _SAMPLED_NUMBERS = 2000, 200_000_000


@dataclass(frozen=True)
class MechanismAudit:
    """What an audit of the mechanism found.

    Args:
        epsilon_claimed: ε of the plan.
        epsilon_lower_bound: ε that the mechanism has at least, with confidence 1 − α, as the scores are normal (which is tested).
        epsilon_lower_bound_nonparametric: the same from error rates alone, whatever the law of the noise; looser.
        delta: δ of all three.
        alpha: chance, at most, that a right trainer fails, and that a lower bound is too high.
        noise_multiplier: σ of the plan's first step.
        noise_multiplier_interval: for the σ that was measured, at confidence 1 − α.
        influence: of one example, over what the plan admits: 1 is the plan to the letter.
        influence_low: what it exceeds with confidence 1 − α.
        influence_low_nonparametric: the same, whatever the law of the noise.
        scores: how many scores of canaries were compared with how many others.
        checks: everything that was asked.
        failed: names of the checks that failed.
        notes: what a reader should know of the setting.
        seconds: it took.
    """

    epsilon_claimed: float
    epsilon_lower_bound: float
    epsilon_lower_bound_nonparametric: float
    delta: float
    alpha: float
    noise_multiplier: float
    noise_multiplier_interval: tuple[float, float]
    influence: float
    influence_low: float
    influence_low_nonparametric: float
    scores: tuple[int, int]
    checks: tuple[Check, ...]
    failed: tuple[str, ...]
    notes: tuple[str, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against the claim."""
        return not self.failed

    def __str__(self) -> str:
        low, high = self.noise_multiplier_interval
        inside, outside = self.scores
        confidence = f"with confidence 1 − {self.alpha:g}"
        return "\n".join([
            f"{verdict(self.passed)}: ε ≥ {self.epsilon_lower_bound:.4g} was shown, ε ≤ {self.epsilon_claimed:.4g} is claimed, "
            f"at δ = {self.delta:g}.",
            "",
            f"Lower bound on ε, {confidence}: {self.epsilon_lower_bound:.4g} from a normal fit, whose law was tested, and "
            f"{self.epsilon_lower_bound_nonparametric:.4g} from error rates alone.",
            f"Scores compared: {inside:,} with a canary, {outside:,} without.",
            f"Noise multiplier: {self.noise_multiplier:.5g} is planned, between {low:.5g} and {high:.5g} was measured.",
            f"Influence of one example: {self.influence:.4g} of what the plan admits, and at least {self.influence_low:.4g}.",
            *(f"Note: {note}." for note in self.notes),
            "",
            *table(self.checks, self.failed),
        ])  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON values; infinity is the word "inf"."""
        found = {name: "inf" if value == math.inf else value for name, value in asdict(self).items()}
        return {"passed": self.passed, **found}

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the result as one JSON object."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)


def mechanism(
    plan: Plan,
    trainer: Trainer = train,
    *,
    names: Sequence[str] | None = None,
    observations: int = _OBSERVATIONS,
    alpha: float = ALPHA,
    progress: Callable[[str], object] | None = None,
) -> MechanismAudit:
    """Attack a trainer's mechanism from inside, on a model whose gradients are known, and compare with what its plan claims.

    Canaries saturate the clip in directions that nobody else touches: the worst case of the proof. What is audited is the rule,
    style, momentum, sparsification, noise and division with everybody taking part, then all of it with the plan's own sampling;
    and without noise, how far one example moves the sum. What is not audited is the gradients of another model: see
    `privet.audit.check`.

    Args:
        plan: the claim, with its noise.
        trainer: what is audited: carries out the plan of a `Probe` on its data and returns what was released. `privet.Training`
            by default.
        names: of the parameters of the model that the plan is for; needed if the rule refers to them by patterns.
        observations: how many scores to look at with everybody taking part, ≥ 10,000. A million bound ε to within some percent.
            Where a model has many parameters or groups there are fewer, so that an audit stays within a minute; `notes` says so.
        alpha: chance, at most, that a right trainer fails.
        progress: called with the name of every part before it begins.

    Returns:
        The findings; `passed` says whether any speaks against the claim. What fails by chance alone once in `alpha` is tried
        again with ten times the observations and fresh randomness, and fails only if it does so again.

    Raises:
        InvalidArgumentError: an argument is out of range, or the plan promises nothing (ε = ∞).

    Source:
        Nasr et al. 2023, "Tight Auditing of Differentially Private Machine Learning" (canary gradients, composition of steps);
        Andrew et al. 2023, "One-shot Empirical Privacy Estimation for Federated Learning" (the Gaussian fit).
    """
    started = time.monotonic()
    claimed = _claim(plan)
    count("observations", observations, minimum=_FEWEST_OBSERVATIONS)
    between("alpha", alpha, 0.0, 0.5)
    tell = progress or (lambda part: None)
    evidence = _gather(plan, names, trainer, observations, alpha, tell)
    failed = evidence.rejected(alpha)
    if failed and min(check.p_value for check in evidence.checks) > _CERTAIN:
        tell("again, ten times as much")
        evidence = _gather(plan, names, trainer, _AGAIN * observations, alpha, tell)
        failed &= evidence.rejected(alpha)
    low, free = max(one.bound(alpha / 2) for one in evidence.influences), evidence.free.bound(alpha)
    everybody = evidence.influences[0]
    least, most = everybody.noise_interval(alpha)
    multiplier = float(plan.multipliers()[0])
    return MechanismAudit(
        epsilon_claimed=claimed,
        epsilon_lower_bound=influence.epsilon(plan, low),
        epsilon_lower_bound_nonparametric=influence.epsilon(plan, free),
        delta=plan.delta,
        alpha=alpha,
        noise_multiplier=multiplier,
        noise_multiplier_interval=(multiplier * least, multiplier * most),
        influence=everybody.ratio,
        influence_low=low,
        influence_low_nonparametric=free,
        scores=(everybody.inside, everybody.outside),
        checks=evidence.checks,
        failed=tuple(check.name for check in evidence.checks if check.name in failed),
        notes=_notes(plan, names, observations),
        seconds=time.monotonic() - started,
    )


@dataclass(frozen=True)
class _Evidence:
    """What one attempt found."""

    checks: tuple[Check, ...]
    influences: tuple[influence.Influence, ...]
    free: influence.ErrorRates

    def rejected(self, alpha: float) -> set[str]:
        """Return the names of the checks that reject the claim, all of them together with chance α at most."""
        return {check.name for check in self.checks if not check.p_value >= alpha / len(self.checks)}


def _gather(
    plan: Plan, names: Sequence[str] | None, trainer: Trainer, observations: int, alpha: float, tell: Callable[[str], object]
) -> _Evidence:
    tell("one example, without noise")
    wide, narrow = (_layout(plan, names, coordinates) for coordinates in (_COORDINATES, _SAMPLED_COORDINATES))
    found = _named("SENS", sensitivity.checks(plan, narrow, trainer))
    influences, free = [], None
    for who, places, probe in (
        ("everybody", wide, _everybody(plan, wide, observations)),
        ("sampled", narrow, _sampled(plan, narrow, observations)),
    ):
        tell(f"canaries, {who}")
        trace = trainer(probe)
        if trace.drawn is None and who == "sampled":
            continue
        seen = observe(probe, places, trace)
        influences.append(influence.influence(seen))
        found += _named(f"NOISE, {who}", noise.checks(seen.noise))
        found += _named(f"AUDIT, {who}", [_influence(influences[-1])])
        if free is None:
            free = influence.error_rates(seen, alpha)
            found += _named(f"AUDIT, {who}", [_errors(free)])
        if trace.drawn is not None:
            found += _named(f"SAMPLER, {who}", sampler.checks(probe.plan, trace.drawn))
    assert free is not None
    return _Evidence(tuple(found), tuple(influences), free)


def _named(family: str, checks: list[Check]) -> list[Check]:
    return [replace(check, name=f"{family}: {check.name}") for check in checks]


def _influence(found: influence.Influence) -> Check:
    finding = f"{found.ratio:.5f} ± {found.error:.5f} of what the plan admits"
    return Check("influence of one example", finding, found.p_value())


def _errors(found: influence.ErrorRates) -> Check:
    finding = f"{found.missed:,} of {found.inside:,} missed at {found.alarms:,} of {found.outside:,} false alarms"
    return Check("telling with from without", finding, found.p_value())


def _layout(plan: Plan, names: Sequence[str] | None, coordinates: int) -> Layout:
    past = () if plan.momentum is None else plan.momentum.coefficients
    return layout(plan.clipping, names, coordinates, 1.0 + sum(past))


def _claim(plan: Plan) -> float:
    """Return the plan's ε.

    Raises:
        InvalidArgumentError: it is infinite.
    """
    claimed = plan.epsilon()
    if math.isinf(claimed):
        raise InvalidArgumentError("plan", "one with ε = ∞", "a plan that promises something", "There is no claim to be refuted.")
    return claimed


def _everybody(plan: Plan, places: Layout, observations: int) -> Probe:
    """Return a probe in which every canary takes part in every step."""
    steps = min(max(observations // (2 * places.canaries), _FEWEST_STEPS), _affordable(places, observations))
    return _probe(plan, places, _companions(plan, places.canaries), steps, FullBatch())


def _affordable(places: Layout, observations: int) -> int:
    """Return how many steps so many observations may take at most, with these parameters."""
    most = max(_CHEAP_STEPS, _PARAMETER_STEPS * observations // _OBSERVATIONS // len(places.sizes))
    return min(most, _MOST_STEPS)


def _companions(plan: Plan, canaries: int) -> int:
    """Return how many examples there are to be with so many canaries: enough that an adaptive bound stays where it is."""
    rule = plan.clipping
    share = min(rule.quantile, _MOST_FILLERS) if isinstance(rule, AdaptiveQuantile) else 0.0
    return math.ceil(canaries / (1 - share))


def _sampled(plan: Plan, places: Layout, observations: int) -> Probe:
    """Return a probe with the plan's own examples and sampling, of which a few are canaries."""
    numbers = plan.sampling.expected_batch_size(plan.examples) * sum(places.sizes.values())
    wanted = min(_SAMPLED_STEPS * observations // _OBSERVATIONS, int(_SAMPLED_NUMBERS / numbers))
    steps = max(_FEWEST_STEPS, min(wanted, _affordable(places, observations)))
    return _probe(plan, places, plan.examples, steps, plan.sampling)


def _probe(plan: Plan, places: Layout, examples: int, steps: int, sampling: Scheme) -> Probe:
    probed = replace(plan, examples=examples, steps=steps, sampling=sampling, accept_large_delta=True)
    where = np.linspace(0, examples - 1, min(places.canaries, examples)).astype(np.int64)
    data = ProbeData(places.rows()[: len(where)], where, examples, str(plan.unit))
    return Probe(probed, places.sizes, data, physical_batch_size=max(1, math.ceil(0.6 * probed.divisor)))


def _notes(plan: Plan, names: Sequence[str] | None, observations: int) -> tuple[str, ...]:
    found = []
    places = _layout(plan, names, _COORDINATES)
    steps = _everybody(plan, places, observations).plan.total_steps
    if steps < observations // (2 * places.canaries):
        scores = 2 * places.canaries * steps
        found.append(
            f"Steps of {len(places.sizes)} parameters in {len(places.groups)} groups take long, so {scores:,} scores were looked "
            f"at with everybody taking part, not {observations:,}; the bounds are the looser for it, at the same confidence"
        )
    if isinstance(plan.sampling, ByEpoch):
        found.append(
            f"No amplification is claimed for {type(plan.sampling).__name__}: the lower bounds are for an adversary who knows "
            "which step everybody takes part in"
        )
    if isinstance(plan.clipping, Projected):
        found.append("Estimated norms bound no single step, so that one example without noise is not looked at")
    if plan.clipping.adaptive:
        found.append("The lower bounds are from gradients alone; the counts that are released beside them cost the rest of ε")
    return tuple(found)
