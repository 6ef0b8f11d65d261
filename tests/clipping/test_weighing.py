"""Rules that are not Privet's: they are checked on synthetic norms, and no contribution exceeds the declared sensitivity."""

from dataclasses import dataclass
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from recording import shift
from torch import nn

from privet import clipped_sum
from privet.clipping import PSAC, AdaptiveQuantile, Flat, Global, Layerwise, NormRule, Projected
from privet.clipping.weighing import check_rule, split_groups, weigh
from privet.errors import InvalidArgumentError

C = 0.7
NAMES = ("0.weight", "0.bias")
NORMS = torch.tensor([[0.0, 1e-9, 0.3, 0.7, 0.71, 5.0, 1e20, torch.inf, torch.nan]], dtype=torch.float64)


# Privet's formulas under other names: the clamp must change nothing.
@dataclass(frozen=True)
class OwnFlat(Flat):
    pass


@dataclass(frozen=True)
class OwnPSAC(PSAC):
    pass


@dataclass(frozen=True)
class OwnGlobal(Global):
    pass


class Formula(NormRule):
    """A rule by a formula that need not keep to anything."""

    formula = staticmethod(lambda bound, norms: torch.ones_like(norms))

    def factor(self, norms):
        return self.formula(self.bound, norms)


def raising(bound, norms):
    if bool((norms > 1).any()):
        raise ValueError(f"secret {norms.tolist()}")
    return torch.ones_like(norms)


FORMULAS = {
    "by the longest of the batch": lambda bound, norms: bound / norms.max() * torch.ones_like(norms),
    "by the number of the batch": lambda bound, norms: bound / norms * (2.0 if norms.numel() % 2 else 0.5),
    "unclipped": lambda bound, norms: torch.ones_like(norms),
    "twice the bound": lambda bound, norms: 2 * bound / norms,
    "negative": lambda bound, norms: -torch.ones_like(norms),
    "not a number": lambda bound, norms: torch.full_like(norms, torch.nan),
    "infinite": lambda bound, norms: torch.full_like(norms, torch.inf),
    "of another shape": lambda bound, norms: torch.ones(3, 5, dtype=torch.float64),
    "raising": raising,
}


def rule_of(formula, bound=C):
    kind = dataclass(frozen=True)(type("Made", (Formula,), {"formula": staticmethod(formula), "__module__": __name__}))
    return kind(bound)


@pytest.mark.parametrize(
    ("own", "other"), [(Flat, OwnFlat), (PSAC, OwnPSAC), (Global, OwnGlobal)], ids=lambda kind: kind.__name__
)
@pytest.mark.parametrize("style", [
    lambda rule: rule, Layerwise, AdaptiveQuantile, lambda rule: AdaptiveQuantile(Layerwise(rule)),
])  # fmt: skip
def test_right_rules_are_left_alone(own, other, style):
    groups = style(own(C)).groups(NAMES)
    norms = NORMS.repeat(len(groups), 1)
    (weights, statistics), (expected, sums) = (weigh(style(kind(C)), norms, groups) for kind in (other, own))
    torch.testing.assert_close(weights, expected, rtol=1e-11, atol=0)
    assert statistics.keys() == sums.keys()
    for name, value in sums.items():
        torch.testing.assert_close(statistics[name], value, rtol=1e-11, atol=1e-11)
    check_rule(style(other(C)), NAMES)


@pytest.mark.product
@pytest.mark.parametrize("formula", FORMULAS.values(), ids=FORMULAS)
@pytest.mark.parametrize("style", [lambda rule: rule, lambda rule: AdaptiveQuantile(rule, share=0.1), Layerwise])
def test_whatever_a_rule_returns_an_example_moves_the_sums_by_at_most_the_sensitivity(formula, style):
    torch.manual_seed(1)
    rule, model, x = style(rule_of(formula)), nn.Linear(3, 2), torch.randn(9, 3)
    x[4] *= 1e4

    def loss(m, x):
        return m(x).square().sum(1)

    assert all(shift(model, loss, x, rule, place) <= rule.sensitivity * (1 + 1e-6) for place in range(len(x)))
    assert clipped_sum(model, loss, x, rule).sensitivity == rule.sensitivity


REFUSALS = {
    "by the longest of the batch": "depends on that example's norms only",
    "by the number of the batch": "depends on that example's norms only",
    "unclipped": r"contributions are at most its sensitivity 0\.7",
    "twice the bound": r"contributions are at most its sensitivity 0\.7",
}


@pytest.mark.parametrize(("name", "reason"), REFUSALS.items())
def test_a_rule_that_looks_at_the_batch_or_weighs_too_much_is_refused_before_training(name, reason):
    with pytest.raises(InvalidArgumentError, match=rf"^(it returns other weights in a batch.*)?clipping is .*{reason}"):
        check_rule(rule_of(FORMULAS[name]), NAMES)


def test_the_norm_without_a_weight_is_named():
    with pytest.raises(InvalidArgumentError, match=r"^the weight of norm 0 is NaN: clipping is "):
        check_rule(rule_of(lambda bound, norms: bound * torch.tanh(norms / bound) / norms), NAMES)


def test_a_rule_that_raises_is_refused_on_synthetic_norms_and_contributes_zero_on_others():
    with pytest.raises(InvalidArgumentError, match=r"^RuntimeError: .*: clipping is .*torch\.vmap") as refused:
        check_rule(rule_of(raising), NAMES)
    assert "issue" not in str(refused.value)
    weights, _ = weigh(rule_of(raising), NORMS, (NAMES,))
    assert (weights != 0).tolist() == [[True] * 5 + [False] * 4]


@dataclass(frozen=True)
class WithStatistics(Flat):
    """A flat rule that releases more than gradients, under these names."""

    name: str = "own:count"
    size: float = 0.0

    def statistics(self, norms):
        return {self.name: self.size * norms.clamp(max=1.0).nan_to_num(nan=torch.inf).sum(1)}


def test_a_rule_cannot_weigh_what_is_not_finite():
    class Constant(Formula):
        def weights(self, norms):
            return torch.full_like(norms, 0.1)

    weights, _ = weigh(Constant(C), NORMS, [NAMES])
    assert (weights[0, -2:] == 0).all()
    assert (weights[0, :4] > 0).all()


def test_statistics_cannot_take_the_place_of_a_gradient():
    with pytest.raises(InvalidArgumentError, match=r"^clipping\.statistics is '0\.bias'; it must be a name with a colon"):
        clipped_sum(nn.Linear(3, 2), lambda m, x: m(x).sum(1), torch.randn(4, 3), WithStatistics(C, "0.bias"))


def test_statistics_and_gradients_share_the_sensitivity():
    rule = WithStatistics(C, size=50.0)
    with pytest.raises(InvalidArgumentError, match="contributions are at most its sensitivity"):
        check_rule(rule, NAMES)
    for place in range(NORMS.shape[1]):
        norms = NORMS[:, place : place + 1]
        weights, statistics = weigh(rule, norms, (NAMES,))
        gradient = torch.where(norms.isfinite(), norms, 0.0) * weights
        assert torch.hypot(gradient[0, 0], statistics["own:count"][0]) <= C
    assert weigh(WithStatistics(C, size=0.01), NORMS[:, :3], (NAMES,))[1]["own:count"].item() == pytest.approx(0.003)
    weights, statistics = weigh(WithStatistics(C, size=0.01), NORMS[:, :0], (NAMES,))
    assert (weights.shape, statistics["own:count"].tolist()) == ((1, 0), [0.0])


@dataclass(frozen=True)
class Partial(Flat):
    """A rule that forgets a parameter, or clips one twice."""

    chosen: tuple[tuple[str, ...], ...] = ()

    def groups(self, names):
        return self.chosen


@pytest.mark.parametrize("chosen", [(NAMES[:1],), (NAMES, NAMES[1:]), ((*NAMES, "1.weight"),)])
def test_groups_that_are_no_partition_are_refused(chosen):
    with pytest.raises(InvalidArgumentError, match=r"^clipping\.groups is .*partition of the parameter names"):
        split_groups(Partial(C, chosen), NAMES)


@pytest.mark.parametrize("style", [lambda rule: rule, lambda rule: Layerwise((rule, Flat(C)), by="parameter"), AdaptiveQuantile])
def test_a_rule_is_called_once_for_a_batch_and_sees_one_example(style):
    asked = []

    @dataclass(frozen=True)
    class Asked(Flat):
        def factor(self, norms):
            asked.append(norms.numel())
            return super().factor(norms)

    rule = style(Asked(C))
    weigh(rule, NORMS.repeat(len(rule.groups(NAMES)), 1), rule.groups(NAMES))
    assert asked == [1]


@pytest.mark.parametrize(
    "style", [lambda rule: Layerwise((rule, Flat(C)), by="parameter"), AdaptiveQuantile, partial(Projected, projections=30)]
)
def test_a_foreign_rule_within_a_style_is_clamped(style):
    rule = style(rule_of(FORMULAS["twice the bound"]))
    groups = rule.groups(NAMES)
    weights, _ = weigh(rule, NORMS.repeat(len(groups), 1), groups)
    assert ((weights * NORMS.nan_to_num(posinf=0.0)).square().sum(0).sqrt() <= rule.sensitivity).all()


@given(st.floats(1e-6, 1e6), st.floats(1e-3, 1e3), st.integers(0, 4))
def test_a_rule_that_is_wrong_at_some_norm_cannot_exceed_the_bound(wrong, factor, place):
    """The check tries a dozen norms, so a mistake in between is found by the clamp alone."""

    def formula(bound, norms):
        return torch.where((norms / wrong - 1).abs() < 1e-3, factor, (bound / norms).clamp(max=1.0))

    norms = torch.tensor([[0.1, 0.5, 2.0, 30.0, 1e5]], dtype=torch.float64)
    norms[0, place] = wrong
    weights, _ = weigh(rule_of(formula), norms, (NAMES,))
    assert (weights * norms <= C).all()
    others = torch.arange(5) != place
    expected, _ = weigh(Flat(C), norms[:, others], (NAMES,))
    honest = (norms[:, others] / wrong - 1).abs() >= 1e-3
    assert torch.allclose(weights[:, others][honest], expected[honest], rtol=1e-11, atol=0.0)
