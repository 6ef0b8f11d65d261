"""White-box audit of a trainer's mechanism (clipping, noise, averaging and sampling) against its plan."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from privet.audit._mechanism import correlated, influence, noise, sampler, sensitivity
from privet.audit.checks import ALPHA, Certificate, Check, add_prefix, find_rejected, table
from privet.audit.observations import observe
from privet.audit.probe import Layout, Probe, ProbeData, Trainer, build_layout
from privet.audit.production import train
from privet.clipping import AdaptiveQuantile, Projected
from privet.errors import InvalidArgumentError, between, count
from privet.noise import Correlated
from privet.plan import Plan
from privet.sampling import ByEpoch, FullBatch, Scheme

# Families of checks, with which the names of the checks start.
FAMILIES = ("SENS", "NOISE", "SAMPLER", "AUDIT")
# A check with a smaller p-value is not repeated: it did not fail by chance.
_CERTAIN = 1e-12
_AGAIN = 10
_FEWEST_STEPS, _MOST_STEPS = 50, 20_000
_OBSERVATIONS, _FEWEST_OBSERVATIONS = 1_000_000, 10_000
# The fixed cost of a step equals that of a few hundred coordinates of as many examples.
_COORDINATES, _SAMPLED_COORDINATES = 512, 208
# The cost of a step also grows with the number of parameters. With many of them, or many groups, an audit takes fewer steps
# (at most this number over the number of parameters), so that a million observations take no longer than a minute.
_PARAMETER_STEPS, _CHEAP_STEPS = 24_000, 400
_MOST_FILLERS = 0.9  # largest fraction of examples without a canary in the full-batch probe
_SAMPLED_STEPS, _SAMPLED_NUMBERS = 2000, 200_000_000


@dataclass(frozen=True)
class MechanismAudit(Certificate):
    """The result of a mechanism audit.

    Args:
        epsilon_claimed: ε of the plan.
        epsilon_lower_bound: lower bound on ε of the mechanism with confidence 1 − α, for normal scores (normality is tested).
        epsilon_lower_bound_nonparametric: lower bound on ε from error rates, for any noise distribution; looser.
        delta: δ of all three.
        alpha: largest probability that a correct trainer fails, and that a lower bound is too high.
        noise_multiplier: σ of the plan's first step.
        noise_multiplier_interval: interval of the measured σ with confidence 1 − α.
        influence: measured influence of one canary relative to the plan; 1 is the plan's value.
        influence_low: lower bound on the influence with confidence 1 − α.
        influence_low_nonparametric: lower bound on the influence for any noise distribution.
        scores: numbers of scores with and without a canary.
        checks: results of all checks.
        failed: names of the failed checks.
        notes: remarks on the setting of the audit.
        seconds: duration of the audit.
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
        """Whether all checks passed."""
        return not self.failed

    def __str__(self) -> str:
        low, high = self.noise_multiplier_interval
        inside, outside = self.scores
        confidence = f"with confidence 1 − {self.alpha:g}"
        return "\n".join([
            f"{self._verdict}: ε ≥ {self.epsilon_lower_bound:.4g} shown, ε ≤ {self.epsilon_claimed:.4g} claimed, "
            f"at δ = {self.delta:g}.",
            "",
            f"Lower bound on ε, {confidence}: {self.epsilon_lower_bound:.4g} from a normal fit (normality tested), "
            f"{self.epsilon_lower_bound_nonparametric:.4g} from error rates alone.",
            f"Scores: {inside:,} with a canary, {outside:,} without.",
            f"Noise multiplier: {self.noise_multiplier:.5g} planned, {low:.5g} to {high:.5g} measured.",
            f"Influence of one canary: {self.influence:.4g} of the plan's, at least {self.influence_low:.4g}.",
            *(f"Note: {note}." for note in self.notes),
            "",
            *table(self.checks, self.failed),
        ])  # fmt: skip


def mechanism(
    plan: Plan,
    trainer: Trainer = train,
    *,
    names: Sequence[str] | None = None,
    observations: int = _OBSERVATIONS,
    alpha: float = ALPHA,
    progress: Callable[[str], object] | None = None,
) -> MechanismAudit:
    """Attack a trainer's mechanism with white-box access, on a model with known gradients, and compare with the plan's claim.

    Canaries saturate the clip bound in directions that no other example uses, which is the worst case of the privacy proof. The
    audit covers clipping rule, style, momentum, sparsification, noise and averaging with full batches, then all of these with the
    plan's sampling; and, without noise, the change of the sum by one example. It does not cover the gradients of another model:
    see `privet.audit.check`.

    Args:
        plan: the audited plan, with its noise.
        trainer: the audited trainer: takes a `Probe`, carries out its plan on its data, and returns the releases.
            `privet.Training` by default.
        names: names of the model's parameters; required if the clipping rule refers to them by patterns.
        observations: number of scores with full batches, ≥ 10,000. A million bound ε to within a few percent. Models with many
            parameters or groups get fewer, so that an audit stays within a minute; `notes` gives their number.
        alpha: largest probability that a correct trainer fails.
        progress: called with the name of each part before it starts.

    Returns:
        The results; `passed` is False if a check contradicts the claim. A check that may have failed by chance is repeated with
        ten times the observations and fresh randomness, and counts as failed only if it fails again.

    Raises:
        InvalidArgumentError: an argument is out of range, or the plan has no privacy (ε = ∞).

    Source:
        Nasr et al. 2023, "Tight Auditing of Differentially Private Machine Learning" (canary gradients, composition of steps);
        Andrew et al. 2023, "One-shot Empirical Privacy Estimation for Federated Learning" (the Gaussian fit).
    """
    started = time.monotonic()
    claimed = plan.epsilon()
    if math.isinf(claimed):
        raise InvalidArgumentError("plan", "one with ε = ∞", "a plan with a finite ε", "An audit needs a claim to refute.")
    if plan.embeddings is not None:
        fix = "The audit's model looks up no rows. Audit the plan without it, whose steps have the same ε."
        raise InvalidArgumentError("plan.embeddings", plan.embeddings, "left out for an audit", fix)
    count("observations", observations, minimum=_FEWEST_OBSERVATIONS)
    between("alpha", alpha, 0.0, 0.5)
    report = progress or (lambda part: None)
    checks, influences, rates = _gather(plan, names, trainer, observations, alpha, report)
    failed = find_rejected(checks, alpha)
    if failed and min(check.p_value for check in checks) > _CERTAIN:
        report("repeating with ten times the observations")
        checks, influences, rates = _gather(plan, names, trainer, _AGAIN * observations, alpha, report)
        failed = tuple(name for name in find_rejected(checks, alpha) if name in failed)
    low, free, full_batch = max(one.bound(alpha / 2) for one in influences), rates.bound(alpha), influences[0]
    least, most = full_batch.noise_interval(alpha)
    multiplier = float(plan.multipliers()[0])
    return MechanismAudit(
        epsilon_claimed=claimed,
        epsilon_lower_bound=influence.scaled_epsilon(plan, low),
        epsilon_lower_bound_nonparametric=influence.scaled_epsilon(plan, free),
        delta=plan.delta,
        alpha=alpha,
        noise_multiplier=multiplier,
        noise_multiplier_interval=(multiplier * least, multiplier * most),
        influence=full_batch.ratio,
        influence_low=low,
        influence_low_nonparametric=free,
        scores=(full_batch.inside, full_batch.outside),
        checks=tuple(checks),
        failed=failed,
        notes=_notes(plan, names, observations),
        seconds=time.monotonic() - started,
    )


def _gather(
    plan: Plan, names: Sequence[str] | None, trainer: Trainer, observations: int, alpha: float, report: Callable[[str], object]
) -> tuple[list[Check], list[influence.Influence], influence.ErrorRates]:
    report("sensitivity to one example")
    wide, narrow = (_layout(plan, names, coordinates) for coordinates in (_COORDINATES, _SAMPLED_COORDINATES))
    found = add_prefix("SENS", sensitivity.checks(plan, narrow, trainer))
    influences, free, together = [], None, isinstance(plan.noise, Correlated)
    known: Iterable[Probe] = (
        correlated.probes(plan, wide, observations) if together else [_full_batch_probe(plan, wide, observations)]
    )
    for setting, places, probes in (
        ("all steps together" if together else "full batch", wide, known),
        ("sampled", narrow, [_sampled_probe(plan, narrow, observations)]),
    ):
        report(f"canaries, {setting}")
        parts = []
        for probe in probes:
            trace = trainer(probe)
            if trace.drawn is None and (setting == "sampled" or together):
                break
            parts.append(correlated.observe_all(probe, places, trace) if together else observe(probe, places, trace))
        if not parts:
            continue
        seen = parts[0] if len(parts) == 1 else correlated.join(parts)
        found += add_prefix(f"NOISE, {setting}", noise.checks(seen.noise))
        influences.append(one := influence.estimate_influence(seen))
        finding = f"{one.ratio:.5f} ± {one.error:.5f} of the plan's"
        found.append(Check(f"AUDIT, {setting}: influence of one canary", finding, one.p_value()))
        if free is None:
            free = influence.measure_error_rates(seen, alpha)
            finding = f"{free.missed:,} false negatives in {free.inside:,}, {free.alarms:,} false positives in {free.outside:,}"
            found.append(Check(f"AUDIT, {setting}: detection of canaries", finding, free.p_value()))
        if trace.drawn is not None:
            found += add_prefix(f"SAMPLER, {setting}", sampler.checks(probe.plan, trace.drawn))
    assert free is not None
    return found, influences, free


def _layout(plan: Plan, names: Sequence[str] | None, coordinates: int) -> Layout:
    past = () if plan.momentum is None else plan.momentum.coefficients
    return build_layout(plan.clipping, names, coordinates, 1.0 + sum(past))


def _full_batch_probe(plan: Plan, places: Layout, observations: int) -> Probe:
    """Return a probe in which every canary takes part in every step, and the other examples keep an adaptive bound stable."""
    steps = min(max(observations // (2 * places.canaries), _FEWEST_STEPS), _most_steps(places, observations))
    rule = plan.clipping
    share = min(rule.quantile, _MOST_FILLERS) if isinstance(rule, AdaptiveQuantile) else 0.0
    return _probe(plan, places, math.ceil(places.canaries / (1 - share)), steps, FullBatch())


def _most_steps(places: Layout, observations: int) -> int:
    most = max(_CHEAP_STEPS, _PARAMETER_STEPS * observations // _OBSERVATIONS // len(places.sizes))
    return min(most, _MOST_STEPS)


def _sampled_probe(plan: Plan, places: Layout, observations: int) -> Probe:
    """Return a probe with the plan's number of examples, a few of them canaries, and the plan's sampling."""
    numbers = plan.sampling.expected_batch_size(plan.examples) * sum(places.sizes.values())
    requested = min(_SAMPLED_STEPS * observations // _OBSERVATIONS, int(_SAMPLED_NUMBERS / numbers))
    steps = max(_FEWEST_STEPS, min(requested, _most_steps(places, observations)))
    return _probe(plan, places, plan.examples, steps, plan.sampling)


def _probe(plan: Plan, places: Layout, examples: int, steps: int, sampling: Scheme) -> Probe:
    probed = replace(plan, examples=examples, steps=steps, sampling=sampling, accept_large_delta=True)
    where = np.linspace(0, examples - 1, min(places.canaries, examples)).astype(np.int64)
    data = ProbeData(places.rows()[: len(where)], where, examples, str(plan.unit))
    return Probe(probed, places.sizes, data, physical_batch_size=max(1, math.ceil(0.6 * probed.divisor)))


def _notes(plan: Plan, names: Sequence[str] | None, observations: int) -> tuple[str, ...]:
    found = []
    places = _layout(plan, names, _COORDINATES)
    if isinstance(plan.noise, Correlated):
        found.append(
            "Noise is correlated over the steps, so scores are those of all steps in which a canary may take part, together; its "
            "place in the cycle or epoch is known to the attacker"
        )
    elif (steps := _full_batch_probe(plan, places, observations).plan.total_steps) < observations // (2 * places.canaries):
        scores = 2 * places.canaries * steps
        found.append(
            f"Steps with {len(places.sizes)} parameters in {len(places.groups)} groups are slow, so the audit with full batches "
            f"used {scores:,} scores instead of {observations:,}; the bounds are looser, at the same confidence"
        )
    if isinstance(plan.sampling, ByEpoch) and not isinstance(plan.noise, Correlated):
        found.append(
            f"No amplification is claimed for {type(plan.sampling).__name__}: the lower bounds are for an adversary who knows "
            "the step in which each example takes part"
        )
    if isinstance(plan.clipping, Projected):
        found.append("Estimated norms do not bound a single step, so the check of one example without noise is left out")
    if plan.clipping.adaptive:
        found.append("The lower bounds use gradients only; the released counts account for the rest of ε")
    return tuple(found)
