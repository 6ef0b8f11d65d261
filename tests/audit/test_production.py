"""This library's trainer passes its own audit with every rule, style, sampler, momentum, mask and schedule."""

import json
from dataclasses import dataclass, replace

import pytest

import plans
from privet import audit
from privet.audit._mechanism import influence, noise, sensitivity, whitebox
from privet.audit.observations import observe
from privet.audit.probe import build_layout
from privet.audit.production import train
from privet.clipping import NORM_RULES, AdaptiveQuantile, Automatic, Flat, Global, Layerwise, Projected
from privet.errors import InvalidArgumentError
from privet.momentum import InnerOuter, Momentum, PerExample
from privet.noise import Gaussian
from privet.sampling import BallsInBins, FixedSize, FullBatch, Poisson, Shuffle, TruncatedPoisson
from privet.schedules import Geometric
from privet.sparsification import Random, Ranked

PLAN = plans.plan(examples=300, sampling=Poisson(30), steps=100, noise=Gaussian(1.3))
ALPHA = 1e-6
NAMES = ("body.weight", "body.bias", "head.weight")  # few, as the time of a step grows with their number


@dataclass(frozen=True)
class Recent(Momentum):
    """The last two parameter sets, which count alike."""

    share: float

    @property
    def coefficients(self):
        return (self.share, self.share)


@dataclass(frozen=True)
class Summed(Momentum):
    """The sum of all releases."""

    @property
    def accumulates(self):
        return True

    def accumulate(self, before, released):
        return released if before is None else before + released


FULL = {"sampling": FullBatch(), "noise": Gaussian(20.0)}
VARIANTS = {
    **{name: {"clipping": kind(bound=0.3)} for name, kind in NORM_RULES.items()},
    "cutoff": {"clipping": Global(0.7, cutoff=30.0)},
    "by module": {"clipping": Layerwise(Flat(0.7))},
    "noise per group": {"clipping": Layerwise(Automatic(0.7), by="parameter", noise="per group")},
    "rules in order": {"clipping": Layerwise((Flat(0.7), Automatic(0.2)), noise=(1.0, 3.0))},
    "adaptive": {"clipping": AdaptiveQuantile(Flat(0.7), share=0.1, quantile=0.3)},
    "adaptive by parameter": {"clipping": AdaptiveQuantile(Layerwise(Flat(0.7), by="parameter"), share=0.1)},
    "estimated norms": {"clipping": Projected(Flat(0.7), projections=20)},
    "truncated": {"sampling": TruncatedPoisson(30, cap=33)},
    "fixed size": {"sampling": FixedSize(30), "adjacency": "replace-one"},
    "balls in bins": {"sampling": BallsInBins(30)},
    "shuffled": {"sampling": Shuffle(32), "adjacency": "zero-out"},
    "full batch": FULL,
    "inner and outer momentum": {"momentum": InnerOuter(0.9, 0.1, 2)},
    "momentum and a cutoff": {"momentum": InnerOuter(0.5, 0.5, 1), "clipping": Global(0.7)},
    "momentum per example": {**FULL, "momentum": PerExample(0.3)},
    "momentum of somebody else's": {"momentum": Recent(0.6)},
    "random masks": {"sparsification": Random(0.9)},
    "random masks by module": {"sparsification": Random(0.5, refresh=3), "clipping": Layerwise(Flat(0.7))},
    "ranked masks": {"sparsification": Ranked(0.5)},
    "scheduled noise": {"noise": Gaussian(1.3, schedule=Geometric())},
    "scheduled bound": {"bound_schedule": Geometric(), "noise": Gaussian(1.3, deviation="fixed")},
    "hardly any examples": {"examples": 30, "sampling": Poisson(6)},
    "nearly all within": {"clipping": AdaptiveQuantile(Flat(0.7), share=0.1, quantile=0.95)},
}
# Of rules whose weights alone differ, combinations of two that are each here by themselves, and what takes ten seconds.
RARELY = (
    "Automatic", "Normalize", "PSAC", "estimated norms", "adaptive by parameter", "nearly all within", "momentum and a cutoff",
    "random masks by module",
)  # fmt: skip


def variants(*left_out):
    """Names of variants, of which `make test` takes all but the rare ones, and `make test-slow` these."""
    chosen = [name for name in VARIANTS if name not in left_out]
    return [pytest.param(name, marks=pytest.mark.slow) if name in RARELY else name for name in chosen]


@pytest.mark.product
@pytest.mark.parametrize("variant", variants())
def test_noise_and_influence_match_the_plan(variant, holds_twice, monkeypatch):
    monkeypatch.setattr(whitebox, "_FEWEST_STEPS", 25)
    plan = replace(PLAN, **VARIANTS[variant])
    places = whitebox._layout(plan, NAMES, 256)
    shares = []

    def experiment():
        found = {}
        for name, probe in (
            ("full batch", whitebox._full_batch_probe(plan, places, 10_000)),
            ("sampled", whitebox._probe(plan, places, plan.examples, 40, plan.sampling)),
        ):
            trace = train(probe)
            seen = observe(probe, places, trace)
            checks = [*noise.checks(seen.noise), *whitebox.sampler.checks(probe.plan, trace.drawn)]
            found |= {f"{name}: {check.name}": check.p_value for check in checks}
            ratio = influence.estimate_influence(seen)
            found[f"{name}: influence"] = ratio.p_value()
            shares.append(ratio)
            if name == "full batch":
                found["detection"] = influence.measure_error_rates(seen, ALPHA).p_value()
                found["some influence"] = float(ratio.ratio > 5 * ratio.error or plan.noise_multiplier > 10)
        return found

    holds_twice(experiment)
    # The canaries are the worst case of the proof: they reach the planned influence.
    full_batch = shares[0]
    least = 0.9 if plan.clipping.adaptive else 0.97
    assert full_batch.ratio + 6 * full_batch.error >= least


# Variants whose clipping is covered by another variant, or does not bound a single step.
NOT_AGAIN = (
    "estimated norms", "truncated", "fixed size", "balls in bins", "shuffled", "full batch", "hardly any examples",
    "nearly all within",
)  # fmt: skip


@pytest.mark.product
@pytest.mark.parametrize("variant", variants(*NOT_AGAIN))
def test_without_noise_one_example_changes_the_sum_by_at_most_the_sensitivity(variant):
    plan = replace(PLAN, **VARIANTS[variant])
    checks = sensitivity.checks(plan, build_layout(plan.clipping, NAMES, 64), train)
    assert len(checks) == len(sensitivity.EXAMPLES)
    assert not [check for check in checks if check.p_value < 1]


@pytest.mark.parametrize("rule", [
    Flat(0.7), Layerwise(Flat(0.7)), Layerwise(Flat(0.7), by="parameter", noise="per group"),
    AdaptiveQuantile(Layerwise(Flat(0.7), by="parameter")),
])  # fmt: skip
@pytest.mark.parametrize("layers", [1, 6, 31])
def test_the_cost_of_an_audit_does_not_grow_with_parameters_and_groups(rule, layers):
    """The cost of a step grows with the number of parameters and of values that go through the model."""
    names = [f"layer{number}.{kind}" for number in range(layers) for kind in ("weight", "bias")]
    plan = replace(PLAN, clipping=rule)
    settings = (
        (whitebox._full_batch_probe, whitebox._COORDINATES), (whitebox._sampled_probe, whitebox._SAMPLED_COORDINATES),
    )  # fmt: skip
    for make, coordinates in settings:
        places = whitebox._layout(plan, names, coordinates)
        probe = make(plan, places, 1_000_000)
        assert probe.plan.total_steps * len(names) <= 25_000
        numbers = probe.plan.divisor * sum(places.sizes.values())
        assert numbers <= 3 * 512 * 256
        assert probe.plan.total_steps * places.canaries >= 5_000


def test_an_accumulation_that_cannot_be_undone_is_not_audited():
    with pytest.raises(InvalidArgumentError, match=r"^momentum is Summed\(\); it must be one that accumulates no releases"):
        audit.mechanism(replace(PLAN, momentum=Summed()))


def test_a_certificate_notes_fewer_observations():
    names = [f"layer{number}.weight" for number in range(40)]
    few = whitebox._notes(replace(PLAN, clipping=Layerwise(Flat(0.7))), names, 1_000_000)
    assert "40 parameters in 40 groups are slow" in few[0]
    assert not whitebox._notes(PLAN, None, 1_000_000)


def test_a_certificate_is_prose_and_json_also_of_patterns_of_names(monkeypatch):
    monkeypatch.setattr(whitebox, "_FEWEST_STEPS", 25)
    plan = replace(PLAN, clipping=Layerwise({r"body\..*": Flat(0.5), ".*": Automatic(0.2)}))
    found = audit.mechanism(plan, names=NAMES, observations=10_000)
    assert found.passed
    values = json.loads(found.to_json())
    assert values["passed"] is True
    assert values["epsilon_claimed"] == pytest.approx(plan.epsilon())
    assert values["epsilon_lower_bound"] <= values["epsilon_claimed"]
    assert {name.split(":")[0].split(",")[0] for name in (check["name"] for check in values["checks"])} == set(whitebox.FAMILIES)
    assert str(found).startswith("PASSED: ε ≥ ")
    assert len(str(found).splitlines()) >= len(found.checks)
