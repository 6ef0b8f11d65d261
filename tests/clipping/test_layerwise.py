import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.clipping import NORM_RULES, PSASC, AdaptiveQuantile, Flat, Global, Layerwise, Normalize
from privet.errors import InvalidArgumentError
from privet_experiments.tangent_kernel.batch_clipping import BatchClipping

NAMES = ("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "head.weight", "scale")
PATTERNS = {r"conv\d\.weight": Flat(0.3), r".*bias": PSASC(0.2, scale=0.5), ".*": Normalize(1.2)}
MODULES = (("conv1.weight", "conv1.bias"), ("conv2.weight", "conv2.bias"), ("head.weight",), ("scale",))
BY_PATTERN = (("conv1.weight", "conv2.weight"), ("conv1.bias", "conv2.bias"), ("head.weight", "scale"))
STYLES = [
    (lambda noise: Layerwise(PSASC(0.7, scale=0.4), noise=noise), MODULES),
    (lambda noise: Layerwise(Global(0.7, cutoff=3.0), by="parameter", noise=noise), tuple((name,) for name in NAMES)),
    (lambda noise: Layerwise((Flat(0.2), Flat(0.5), Global(0.1), Flat(3.0)), noise=noise), MODULES),
    (lambda noise: Layerwise(PATTERNS, noise=noise), BY_PATTERN),
]
every_style = pytest.mark.parametrize(("style", "groups"), STYLES, ids=["module", "parameter", "given", "patterns"])
NOISES = ["shared", "per group", "relative"]


def noised(style, groups, noise):
    return style(tuple(0.5 + 3 * k for k in range(len(groups))) if noise == "relative" else noise)


def scales_of_groups(rule, groups):
    """The noise scale of each group, checked to be the same for all of its members."""
    scales = rule.noise_scales(NAMES)
    found = [{scales.get(name, 1.0) for name in group} for group in groups]
    assert all(len(one) == 1 for one in found)
    return [one.pop() for one in found]


@pytest.mark.parametrize("noise", NOISES)
@every_style
def test_groups_and_what_noise_they_get(style, groups, noise):
    rule = noised(style, groups, noise)
    assert rule.groups(NAMES) == groups
    own = [one.sensitivity for one in rule.group_rules(len(groups))]
    scales = scales_of_groups(rule, groups)
    # One Gaussian mechanism: with each group divided by its noise scale, nothing is longer than the sensitivity.
    assert rule.sensitivity == pytest.approx(math.hypot(*own), rel=1e-12)
    assert rule.sensitivity == pytest.approx(math.hypot(*(r / u for r, u in zip(own, scales, strict=True))), rel=1e-12)
    sigma = 1.3
    deviations = [sigma * rule.sensitivity * u for u in scales]
    multipliers = [s / r for s, r in zip(deviations, own, strict=True)]
    assert 1 / math.sqrt(sum(m**-2 for m in multipliers)) == pytest.approx(sigma, rel=1e-12)
    if noise == "shared":
        assert rule.noise_scales(NAMES) == {}
    if noise == "per group":
        assert multipliers == pytest.approx([sigma * math.sqrt(len(groups))] * len(groups))
    if noise == "relative":
        assert [s / deviations[0] for s in deviations] == pytest.approx([(0.5 + 3 * k) / 0.5 for k in range(len(groups))])


@pytest.mark.parametrize("number", [1, 2, 300])
@pytest.mark.parametrize("kind", NORM_RULES.values())
def test_one_rule_has_its_own_sensitivity_however_many_groups_share_it(kind, number):
    rule = Layerwise(kind(bound=0.7), by="parameter")
    assert rule.sensitivity == kind(bound=0.7).sensitivity
    shares = rule.group_rules(number)
    assert math.hypot(*(one.sensitivity for one in shares)) == pytest.approx(rule.sensitivity, rel=1e-12)
    assert len(set(shares)) == 1
    norms = torch.logspace(-8, 12, 40 * number, dtype=torch.float64).view(40, number).t()
    contributions = (rule.weights(norms) * norms).norm(dim=0)
    assert (contributions <= rule.sensitivity * (1 + 1e-12)).all()


@every_style
@given(data=st.data())
@settings(max_examples=50)
def test_no_contribution_exceeds_the_sensitivity_whatever_the_noise(style, groups, data):
    rule = noised(style, groups, data.draw(st.sampled_from(NOISES)))
    length = st.just(0.0) | st.floats(0, 1e30) | st.floats(-12, 30).map(lambda exponent: 10**exponent)
    norms = torch.tensor([[data.draw(length)] for _ in groups], dtype=torch.float64)
    scales = torch.tensor(scales_of_groups(rule, groups), dtype=torch.float64)[:, None]
    assert (rule.weights(norms) * norms / scales).norm().item() <= rule.sensitivity * (1 + 1e-12)


@every_style
def test_what_is_not_finite_in_a_group_has_weight_zero_there(style, groups):
    norms = torch.full((len(groups), 3), 0.05, dtype=torch.float64)
    norms[1, 0], norms[0, 2] = math.nan, math.inf
    weights = style("shared").weights(norms)
    assert (weights == 0).nonzero().tolist() == [[0, 2], [1, 0]]
    assert style("shared").weights(norms[:, :0]).shape == (len(groups), 0)


@every_style
def test_groups_have_their_own_rules_weights(style, groups):
    rule = style("shared")
    norms = torch.rand(len(groups), 9, dtype=torch.float64)
    expected = torch.stack([one.weight(row) for one, row in zip(rule.group_rules(len(groups)), norms, strict=True)])
    for found in (rule.weights(norms), rule.weight(norms)):
        torch.testing.assert_close(found, expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("noise", NOISES)
@every_style
def test_scaling_scales_every_group(style, groups, noise):
    rule = noised(style, groups, noise)
    factors = [0.3 + k for k in range(len(groups))]
    for other, expected in ((rule.scale_bound(0.4), [0.4] * len(groups)), (rule.scale_bounds(factors), factors)):
        found = [one.sensitivity for one in other.group_rules(len(groups))]
        assert found == pytest.approx([f * r.sensitivity for f, r in zip(expected, rule.group_rules(len(groups)), strict=True)])
        assert (other.groups(NAMES), other.by, other.noise) == (groups, rule.by, rule.noise)
    assert rule.scale_bound(0.4).noise_scales(NAMES) == pytest.approx(rule.noise_scales(NAMES))


def test_the_first_pattern_that_matches_a_whole_name_decides():
    rule = Layerwise([(r"head.*", Flat(1.0)), (r".*weight", Flat(2.0)), (r"conv\d", Flat(3.0)), (".*", Flat(4.0))])
    with pytest.raises(InvalidArgumentError, match=r"^clipping\.rules is 'conv\\\\d'; it must be a pattern that is the first"):
        rule.groups(NAMES)  # "conv1" is only the beginning of a name
    assert rule == Layerwise({"head.*": Flat(1.0), ".*weight": Flat(2.0), r"conv\d": Flat(3.0), ".*": Flat(4.0)})
    rest = Layerwise([("head.*", Flat(1.0)), (".*weight", Flat(2.0)), (".*", Flat(4.0))])
    assert rest.groups(NAMES) == (("head.weight",), ("conv1.weight", "conv2.weight"), ("conv1.bias", "conv2.bias", "scale"))
    assert Layerwise(rules=(("head.*", Flat(1.0)), (".*", Flat(2.0)))).groups(["head.a", "b"]) == (("head.a",), ("b",))


REFUSED = [
    (lambda: Layerwise(0.7), r"clipping\.rules is 0\.7; it must be made of rules of one norm"),
    (lambda: Layerwise({}), r"clipping\.rules is \(\); it must be at least one rule"),
    (lambda: Layerwise(()), r"clipping\.rules is \(\); it must be at least one rule"),
    (lambda: Layerwise({"a": 0.7}), r"clipping\.rules is 0\.7"),
    (lambda: Layerwise({"(": Flat(1.0)}), r"clipping\.rules is '\('; it must be a regular expression\. It does not parse"),
    (lambda: Layerwise({3: Flat(1.0)}), r"clipping\.rules is \(3, .*pair of a regular expression and a rule"),
    (lambda: Layerwise((Flat(1.0), ("a", Flat(1.0)))), r"clipping\.rules is Flat\(bound=1\.0\); it must be a pair"),
    (lambda: Layerwise((("a", Flat(1.0)), ("a", Flat(2.0)))), r"clipping\.rules is .*distinct patterns"),
    (lambda: Layerwise(("a", Flat(1.0))), r"clipping\.rules is 'a'"),
    (lambda: Layerwise({"a": Flat(1.0)}, by="module"), r"clipping\.by is 'module'; it must be left out for patterns"),
    (lambda: Layerwise(Flat(1.0), by="layer"), r"clipping\.by is 'layer'; it must be one of 'parameter', 'module'"),
    (lambda: Layerwise(Flat(1.0), by="pattern"), r"clipping\.by is 'pattern'.*mapping"),
    (lambda: Layerwise(Flat(1.0), noise="own"), r"clipping\.noise is 'own'; it must be one of 'shared', 'per group'"),
    (lambda: Layerwise(Flat(1.0), noise=2.0), r"clipping\.noise is 2\.0"),
    (lambda: Layerwise(Flat(1.0), noise=(1.0, 0.0)), r"clipping\.noise is 0\.0; it must be greater than 0"),
    (lambda: Layerwise((Flat(1.0), Flat(2.0)), noise=(1.0,)), r"clipping\.noise is \(1\.0,\); it must be one number for each"),
    (lambda: Layerwise(Layerwise(Flat(1.0))), r"clipping\.rules is Layerwise.*have no meaning within a group"),
    (lambda: Layerwise({"a": AdaptiveQuantile(Flat(1.0))}), r"clipping\.rules is AdaptiveQuantile.*adapts every group"),
    (lambda: Layerwise(BatchClipping(1.0)), r"clipping\.rules is BatchClipping"),
    # What does not fit the model
    (lambda: Layerwise({"conv.*": Flat(1.0)}).groups(NAMES), r"clipping\.rules is .*one fully matches 'head\.weight'"),
    (lambda: Layerwise({".*": Flat(1.0), "conv.*": Flat(1.0)}).groups(NAMES),
     r"clipping\.rules is 'conv\.\*'.*first to match some parameter"),
    (lambda: Layerwise((Flat(1.0), Flat(2.0))).groups(NAMES), r"clipping\.rules is .*one rule for each of the 4 groups"),
    (lambda: Layerwise(Flat(1.0), noise=(1.0, 2.0)).groups(NAMES), r"clipping\.noise is .*one number for each of the 4 groups"),
    (lambda: Layerwise(Flat(1e-12)).groups(NAMES), r"clipping\.bound is 5e-13"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_what_has_no_meaning_is_refused_by_name(make, message):
    with pytest.raises(InvalidArgumentError, match="^" + message):
        make()
