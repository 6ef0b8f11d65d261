import math

import pytest
import torch

from privet.clipping import NORM_RULES, PSAC, PSASC, Automatic, Flat, Global, Normalize
from privet.errors import InvalidArgumentError
from privet_experiments.tangent_kernel.batch_clipping import BatchClipping
from rounding import assert_equal_up_to_rounding


def psasc(bound, scale, stability):
    return lambda norm: bound / (scale * norm + stability / (norm + stability))


# Conformance: a rule joins every test of this file by adding a line (rule, sensitivity, norm → weight).
CASES = [
    (Flat(bound=0.7), 0.7, lambda norm: min(1.0, 0.7 / norm)),
    (Flat(bound=1e-12), 1e-12, lambda norm: min(1.0, 1e-12 / norm)),
    (Flat(bound=1e12), 1e12, lambda norm: min(1.0, 1e12 / norm)),
    (Automatic(bound=0.7, stability=0.03), 0.7, lambda norm: 0.7 / (norm + 0.03)),
    (Automatic(bound=0.7, stability=1e-12), 0.7, lambda norm: 0.7 / (norm + 1e-12)),
    (Automatic(bound=1e12, stability=1e-12), 1e12, lambda norm: 1e12 / (norm + 1e-12)),
    (Normalize(bound=0.7), 0.7, lambda norm: 0.7 / norm if norm >= 1e-12 else 0.0),
    (Normalize(bound=1e12), 1e12, lambda norm: 1e12 / norm if norm >= 1e-12 else 0.0),
    (PSAC(bound=0.7, stability=0.03), 0.7, psasc(0.7, 1, 0.03)),
    (PSAC(bound=1e12, stability=1e-12), 1e12, psasc(1e12, 1, 1e-12)),
    (PSASC(bound=0.7, scale=0.55, stability=1e-3), 0.7 / 0.55, psasc(0.7, 0.55, 1e-3)),
    (PSASC(bound=1e-12, scale=0.9, stability=1e12), 1e-12 / 0.9, psasc(1e-12, 0.9, 1e12)),
    (PSASC(bound=0.7, scale=1e-6, stability=1e-12), 0.7 / 1e-6, psasc(0.7, 1e-6, 1e-12)),
    (Global(bound=0.7), 0.7, lambda norm: float(norm <= 0.7)),
    (Global(bound=0.7, cutoff=12.0), 0.7, lambda norm: 0.7 / 12.0 * (norm <= 12.0)),
    (Global(bound=50.0, cutoff=1e-3), 50.0, lambda norm: 50.0 / 1e-3 * (norm <= 1e-3)),
    (Global(bound=1e12, cutoff=1e-12), 1e12, lambda norm: 1e24 * (norm <= 1e-12)),
]
every_rule = pytest.mark.parametrize(("rule", "sensitivity", "formula"), CASES, ids=[repr(case[0]) for case in CASES])

# Every argument that must be a scale, as (argument, constructor).
SCALES = [
    *(("bound", kind) for kind in (*NORM_RULES.values(), BatchClipping)),
    *(("stability", kind) for kind in (Automatic, PSAC, PSASC)),
    ("cutoff", Global),
    ("scale", PSASC),
]
BAD = [0, 0.0, -1, math.nan, math.inf, -math.inf, True, "1", None, 1e-20, 1e20, torch.tensor(1.0)]
PRECISIONS = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def test_every_rule_is_in_the_table():
    assert {type(case[0]) for case in CASES} == set(NORM_RULES.values())
    assert all(name == rule.__name__ for name, rule in NORM_RULES.items())


@every_rule
def test_weights_follow_the_formula(rule, sensitivity, formula):
    zero = [0.0] if isinstance(rule, Normalize) else []  # which stays zero
    norms = torch.tensor([*zero, 1e-300, *torch.logspace(-30, 30, 1201).tolist(), rule.threshold], dtype=torch.float64)
    expected = torch.tensor([formula(norm) for norm in norms.tolist()], dtype=torch.float64)
    torch.testing.assert_close(rule.weight(norms), expected, rtol=1e-14, atol=0)
    assert rule.sensitivity == sensitivity
    assert isinstance(rule.sensitivity, float)


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@every_rule
def test_no_contribution_exceeds_the_sensitivity(rule, sensitivity, formula, dtype):
    near = rule.threshold * (1 + torch.linspace(-1e-3, 1e-3, 2001, dtype=torch.float64))
    ulps = rule.threshold * (1 + torch.arange(-64, 65, dtype=torch.float64) * 2.0**-52)
    lengths = torch.cat([torch.logspace(-30, 30, 30_001, dtype=torch.float64), torch.rand(2000).double(), near, ulps])
    norms = torch.cat([torch.zeros(1, dtype=torch.float64), lengths]).to(dtype)
    weights = rule.weight(norms)
    assert weights.dtype == dtype
    assert (weights >= 0).all()
    computed = norms.isfinite() & weights.isfinite()
    assert (weights.double() * norms.double() <= rule.sensitivity * (1 + 2**-51))[computed].all()


@every_rule
@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
def test_what_is_not_finite_has_weight_exactly_zero_and_shape_and_dtype_are_kept(rule, sensitivity, formula, dtype):
    norms = torch.tensor([[math.nan, math.inf, -math.inf], [rule.threshold / 2, 0.0, 0.0]], dtype=dtype)
    weights = rule.weight(norms)
    assert (weights.shape, weights.dtype) == (norms.shape, dtype)
    assert weights[0].tolist() == [0, 0, 0]
    assert weights[1, 0] > 0 or torch.tensor(rule.threshold / 2, dtype=dtype) in (0, torch.inf)
    assert rule.weight(norms[:, :0]).shape == (2, 0)


@every_rule
def test_one_group_of_all_parameters(rule, sensitivity, formula):
    assert rule.groups(["a", "b", "c"]) == (("a", "b", "c"),)
    assert rule.noise_scales(["a"]) == rule.statistics(torch.zeros(1, 3)) == {}
    norms = torch.rand(1, 4, dtype=torch.float64)
    assert torch.equal(rule.weights(norms)[0], rule.weight(norms[0]))
    assert rule.weights(torch.zeros_like(norms)).isfinite().all()
    assert hash(rule) == hash(type(rule)(**vars(rule)))


@every_rule
@pytest.mark.parametrize("factor", [0.37, 1.9])
def test_a_scaled_rule_has_the_scaled_sensitivity_and_threshold(rule, sensitivity, formula, factor):
    if factor * min(rule.bound, rule.threshold) >= 1e-12 and factor * max(rule.bound, rule.threshold) <= 1e12:
        scaled = rule.scale_bound(factor)
        assert scaled.sensitivity == pytest.approx(factor * sensitivity)
        assert scaled.threshold == pytest.approx(factor * rule.threshold)


@pytest.mark.parametrize(("argument", "kind"), SCALES, ids=[f"{kind.__name__}.{argument}" for argument, kind in SCALES])
def test_a_bad_scale_is_refused_by_name(argument, kind):
    for value in BAD:
        if argument != "cutoff" or value is not None:
            with pytest.raises(InvalidArgumentError, match=rf"^clipping\.{argument} is .*; it must be "):
                kind(**{"bound": 0.7, argument: value})
    if argument == "scale":
        for value in (1 + 1e-9, 2.0, 1e-7):
            with pytest.raises(InvalidArgumentError, match=r"^clipping\.scale is .*between 1e-06 and 1\. 0\.5 to 0\.95"):
                PSASC(0.7, scale=value)


def test_a_batch_factor_is_the_same_for_all_and_left_out_of_plans():
    rule = BatchClipping(0.7)
    norms = torch.tensor([0.1, math.nan, 14.0, math.inf], dtype=torch.float64)
    assert_equal_up_to_rounding(rule.weight(norms), torch.tensor([0.05, 0, 0.05, 0], dtype=torch.float64))
    assert rule.scale_bound(2.0) == BatchClipping(1.4)
    assert rule.weights(torch.zeros(1, 0)).shape == (1, 0)
    assert rule.weight(torch.zeros(3)).tolist() == [1, 1, 1]
    with pytest.raises(InvalidArgumentError, match=r"^clipping is BatchClipping.*depends on the whole batch"):
        _ = rule.sensitivity
