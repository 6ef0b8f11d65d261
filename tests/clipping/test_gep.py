import math

import pytest
import torch

import privet
from privet.clipping import GEP, AdaptiveQuantile, Automatic, Flat, Global, Layerwise
from privet.errors import InvalidArgumentError
from privet_experiments import studies

NAMES = ("0.weight", "0.bias", "2.weight")
SMALL = Flat(2.0)


def rule(residual=SMALL, **options):
    return GEP(Flat(5.0), residual, **{"dimensions": 20, "anchors": 50, "public": "made up", **options})


@pytest.mark.parametrize("share", [0.5, 0.83])  # the paper's noise is that of equal shares: √2 times the deviation
def test_both_parts_are_one_mechanism_with_the_plans_multiplier(share):
    """1/σ² = Σ (part's bound / part's deviation)²: the multipliers of the parts are σ/√share and σ/√(1 − share)."""
    sigma, made = 1.7, rule(share=share)
    scales = made.noise_scales(made.released(NAMES))
    deviations = {name: sigma * made.sensitivity * scale for name, scale in scales.items()}
    assert deviations["embedding:0"] == pytest.approx(sigma / math.sqrt(share) * 5.0)
    assert deviations["0.bias"] == pytest.approx(sigma / math.sqrt(1 - share) * 2.0)
    combined = (5.0 / deviations["embedding:0"]) ** 2 + (2.0 / deviations["2.weight"]) ** 2
    assert combined == pytest.approx(1 / sigma**2)
    made = rule(None)  # only embeddings are released, with all of the budget
    assert made.released(NAMES) == ("embedding:0", "embedding:1")
    assert (made.sensitivity, dict(made.noise_scales(made.released(NAMES)))) == (5.0, {})


@pytest.mark.parametrize(("by", "expected"), [
    ("module", (("0.weight", "0.bias"), ("2.weight",))), ("parameter", (("0.weight",), ("0.bias",), ("2.weight",))),
    ("model", (NAMES,)),
])  # fmt: skip
def test_subspaces_partition_the_parameters_and_parts_are_clipped_apart(by, expected):
    made = rule(by=by)
    assert made.subspaces(NAMES) == expected
    released = made.released(NAMES)
    embeddings = tuple(f"embedding:{number}" for number in range(len(expected)))
    assert made.groups(released) == (embeddings, NAMES)
    assert made.groups(released[::-1])[0] == embeddings[::-1]


def test_dimensions_go_by_roots_of_sizes_and_no_subspace_is_larger_than_it_can_be():
    assert rule(dimensions=100).ranks([10_000, 100]) == (50, 9)
    assert rule(dimensions=100, anchors=1000).ranks([10_000, 100, 1]) == (90, 9, 1)
    assert rule(dimensions=1).ranks([400, 400]) == (1, 1)
    assert rule(dimensions=1000, anchors=1000).ranks([4, 9]) == (4, 9)


@pytest.mark.parametrize("made", [rule(Automatic(0.3, 0.1)), rule(Global(2.0, cutoff=3.0)), rule()], ids=str)
def test_no_contribution_exceeds_the_sensitivity(made):
    inner, outer = torch.meshgrid(torch.logspace(-8, 8, 60), torch.logspace(-8, 8, 60), indexing="ij")
    norms = torch.stack([inner.flatten(), outer.flatten()]).double()
    contributed = made.weights(norms) * norms
    scales = made.noise_scales(made.released(NAMES))
    total = torch.hypot(contributed[0] / scales["embedding:0"], contributed[1] / scales["0.weight"])
    assert float(total.max()) <= made.sensitivity * (1 + 1e-12)
    assert float(total.max()) > 0.9 * made.sensitivity
    broken = made.weights(torch.tensor([[torch.nan, 1.0], [1.0, torch.inf]]))
    assert broken[0, 0] == broken[1, 1] == 0


def test_a_schedule_scales_both_bounds():
    scaled = rule(share=0.2).scale_bound(0.5)
    assert (scaled.embedding.bound, scaled.residual.bound) == (2.5, 1.0)
    assert scaled.sensitivity == pytest.approx(0.5 * rule().sensitivity)
    assert scaled.noise_scales(("embedding:0", "w")) == pytest.approx(rule(share=0.2).noise_scales(("embedding:0", "w")))
    assert rule(None).scale_bound(2.0).sensitivity == 10.0


@pytest.mark.parametrize(("options", "argument"), [
    ({"residual": Layerwise(Flat(1.0))}, "residual"), ({"residual": 1.0}, "residual"), ({"dimensions": 0}, "dimensions"),
    ({"anchors": 0}, "anchors"), ({"iterations": 0}, "iterations"), ({"share": 0.0}, "share"), ({"share": 1.0}, "share"),
    ({"public": " "}, "public"), ({"public": None}, "public"), ({"by": "layer"}, "by"),
])  # fmt: skip
def test_what_is_out_of_range_is_refused_by_name(options, argument):
    with pytest.raises(InvalidArgumentError, match=rf"^clipping\.{argument} is"):
        rule(**options)
    with pytest.raises(InvalidArgumentError, match=r"clipping\.embedding"):
        GEP(None, Flat(1.0), 3, 4, "made up")
    with pytest.raises(InvalidArgumentError, match=r"clipping\.rule"):
        AdaptiveQuantile(rule())


def test_a_plan_names_the_public_data_and_is_restored_from_its_json():
    plan = privet.Plan(
        examples=1000, sampling=privet.sampling.Poisson(50), steps=10, delta=1e-5, clipping=rule(),
        noise=privet.noise.Gaussian(1.3),
    )  # fmt: skip
    assert privet.Plan.from_json(plan.to_json()) == plan
    plain = privet.Plan.from_dict({**plan.to_dict(), "clipping": {"kind": "Flat", "bound": 1.0}})
    assert plan.epsilon() == plain.epsilon()
    statement = str(plan.guarantee())
    assert "50 public examples of 'made up'" in statement
    assert "'made up', from which subspaces of gradients are computed, are public" in statement
    assert "made up" not in str(plain.guarantee())


def gep_plan():
    return privet.Plan(
        examples=100, sampling=privet.sampling.FullBatch(), steps=2, delta=1e-3, clipping=rule(), noise=privet.noise.Gaussian(1.3)
    )  # fmt: skip


USES = {
    "an audit of the mechanism": lambda: privet.audit.mechanism(gep_plan(), observations=10_000),
    "a study of gradients": lambda: studies.Mechanism.of(gep_plan()),
    "an optimizer that knows the noise": lambda: privet.optim.AdamBC.of(gep_plan(), torch.nn.Linear(2, 1), 0.1),
    "Langevin dynamics": lambda: privet.optim.sgld_learning_rates(gep_plan(), 1.0),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_what_has_no_anchors_says_so(use):
    with pytest.raises(InvalidArgumentError, match="without anchor gradients for"):
        use()
