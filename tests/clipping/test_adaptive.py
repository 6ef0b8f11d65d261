import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.clipping import NORM_RULES, AdaptiveQuantile, Flat, Global, Layerwise
from privet.clipping.adaptive import COUNTS, count_share
from privet.clipping.base import BOUND_RANGE
from privet.errors import InvalidArgumentError
from privet_experiments.tangent_kernel.batch_clipping import BatchClipping

NAMES = ("a.weight", "a.bias", "b.weight")
RULES = [
    *(kind(bound=0.7) for kind in NORM_RULES.values()),
    Global(0.7, cutoff=5.0),
    *(Layerwise(kind(bound=0.7), by="parameter") for kind in NORM_RULES.values()),
    Layerwise((Flat(0.2), Global(0.5, cutoff=0.1)), noise="per group"),
    Layerwise({"a.*": Flat(0.2), "b.*": Flat(1.5)}, noise=(1.0, 4.0)),
]
every_rule = pytest.mark.parametrize("rule", RULES, ids=str)


@pytest.mark.parametrize("share", [1e-6, 0.3, 0.999])
@every_rule
def test_gradients_and_counts_share_one_mechanism(rule, share):
    made = AdaptiveQuantile(rule, share=share)
    groups = len(made.groups(NAMES))
    scales = made.noise_scales(NAMES)
    bits = math.sqrt(groups) / 2 / scales[COUNTS]
    assert bits**2 == pytest.approx(share * made.sensitivity**2, rel=1e-9)
    assert math.hypot(rule.sensitivity, bits) == pytest.approx(made.sensitivity, rel=1e-9)
    assert {name: scale for name, scale in scales.items() if name != COUNTS} == rule.noise_scales(NAMES)
    sigma = 1.7
    assert made.count_deviation(sigma, groups) == pytest.approx(sigma * made.sensitivity * scales[COUNTS], rel=1e-9)
    # Andrew et al.: the gradients' multiplier z and the counts' K deviations compose to σ.
    z = sigma * made.sensitivity / rule.sensitivity
    assert z**-2 + groups * (2 * made.count_deviation(sigma, groups)) ** -2 == pytest.approx(sigma**-2, rel=1e-9)


@pytest.mark.parametrize(("sigma", "deviation", "groups"), [(1.0, 5.0, 1), (0.6, 1.0, 1), (1.3, 25.0, 40)])
def test_the_share_for_a_wanted_count_deviation(sigma, deviation, groups):
    share = count_share(sigma, deviation, groups)
    assert AdaptiveQuantile(Flat(0.7), share=share).count_deviation(sigma, groups) == pytest.approx(deviation)
    paper = (sigma**-2 - groups * (2 * deviation) ** -2) ** -0.5
    assert sigma / math.sqrt(1 - share) == pytest.approx(paper, rel=1e-12)


def test_too_little_noise_on_the_counts_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"^count_deviation is 1\.0; it must be greater than .*= 1\.3"):
        count_share(1.3, 1.0, groups=4)


@given(
    st.lists(st.tuples(*[st.floats(0, 1e30) | st.floats(0.1, 0.9) | st.sampled_from([0.0, math.inf, math.nan])] * 3), max_size=6),
    st.integers(0, 5),
)
@settings(max_examples=100)
def test_an_example_moves_the_counts_by_half_in_every_group_whatever_its_norms(norms, which):
    made = AdaptiveQuantile(Layerwise(Flat(0.7), by="parameter"))
    everyone = torch.tensor(norms, dtype=torch.float64).view(len(norms), 3).t()
    rest = torch.cat([everyone[:, :which], everyone[:, which + 1 :]], dim=1)
    moved = made.statistics(everyone)[COUNTS] - made.statistics(rest)[COUNTS]
    assert moved.abs().tolist() == ([0.5] * 3 if which < len(norms) else [0.0] * 3)


@every_rule
@pytest.mark.parametrize("value", [1e300, -1e300])
def test_no_release_drives_a_bound_out_of_range_or_raises(rule, value):
    made = AdaptiveQuantile(rule, learning_rate=3.0)
    groups = len(rule.groups(NAMES))
    for _ in range(4):
        made = made.adapt({COUNTS: torch.full((groups,), value, dtype=torch.float64)}, divisor=1e-9)
        for one in made.rule.group_rules(groups):
            assert BOUND_RANGE[0] <= min(one.bound, one.threshold)
            assert max(one.bound, one.threshold) <= BOUND_RANGE[1]
    back = made.adapt({COUNTS: torch.full((groups,), -math.copysign(5.0, value))}, divisor=1e-9)
    assert back != made  # a bound at the end of the range can come back


BAD = {"quantile": (0, 1, math.nan, "0.5", True), "learning_rate": (0, math.inf), "share": (0, 1, 1.5, math.nan)}


@pytest.mark.parametrize(("rule", "options", "message"), [
    (0.7, {}, r"clipping\.rule is 0\.7; it must be a rule of one norm or a layerwise rule"),
    (AdaptiveQuantile(Flat(0.7)), {}, r"clipping\.rule is AdaptiveQuantile.*adaptive rules already adapt"),
    (BatchClipping(0.7), {}, r"clipping\.rule is BatchClipping"),
    *((Flat(0.7), {name: value}, rf"clipping\.{name} is ") for name, values in BAD.items() for value in values),
])  # fmt: skip
def test_what_has_no_meaning_is_refused_by_name(rule, options, message):
    with pytest.raises(InvalidArgumentError, match="^" + message):
        AdaptiveQuantile(rule, **options)
