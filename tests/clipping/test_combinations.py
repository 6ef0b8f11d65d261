import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import privet
from privet.clipping import NORM_RULES, AdaptiveQuantile, Flat, Layerwise, Projected
from privet.errors import InvalidArgumentError
from privet.noise import Gaussian
from privet.schedules import Constant, Geometric, Linear, Piecewise, Table
from privet_experiments.tangent_kernel.batch_clipping import BatchClipping

INNER = {**{name: kind(bound=0.7) for name, kind in NORM_RULES.items()}, "BatchClipping": BatchClipping(0.7)}
STYLES = {
    "flat": lambda rule: rule,
    "module": Layerwise,
    "parameter": lambda rule: Layerwise(rule, by="parameter"),
    "given": lambda rule: Layerwise((rule, Flat(0.3))),
    "patterns": lambda rule: Layerwise({"0.*": rule, ".*": Flat(0.3)}),
    "own noise": lambda rule: Layerwise({"0.*": rule, ".*": Flat(0.3)}, noise="per group"),
}
BOUNDS = {"fixed": lambda rule: rule, "adaptive": AdaptiveQuantile}
# Every rule in every style, with a bound of either kind in turn.
COMBINATIONS = [(inner, style, list(BOUNDS)[(r + s) % 2]) for r, inner in enumerate(INNER) for s, style in enumerate(STYLES)]
SCHEDULES = [Geometric(), Linear(), Table((1.0, 0.5)), Piecewise((1.0, 2.0), (0.5,))]
# One factor for the whole batch bounds no single contribution: other rules and plans refuse it.
LEGAL = {combination: combination[0] != "BatchClipping" for combination in COMBINATIONS}


def plan(rule, **options):
    values = {"noise": Gaussian(1.3), "steps": 2} | options
    return privet.Plan(examples=24, sampling=privet.sampling.Poisson(8), clipping=rule, delta=1e-5, **values)


def squared_error(model, batch):
    return (model(batch[0]) - batch[1]).square().sum(1)


def make(inner, style, bound):
    return BOUNDS[bound](STYLES[style](INNER[inner]))


# What the statement says of the noise depends on the style, and of the bound on its kind.
STATED = {c for c in COMBINATIONS if c[0] in ("Flat", "PSAC")}


def train(made):
    model = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = privet.Training(made, model, squared_error, optimizer, TensorDataset(torch.randn(24, 3), torch.randn(24, 1)))
    training.run()
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    return training


@pytest.mark.product
@pytest.mark.parametrize("combination", [c for c in COMBINATIONS if LEGAL[c]], ids="-".join)
def test_a_legal_combination_trains_and_its_plan_survives_json_and_epsilon_does_not_depend_on_it(combination):
    rule = make(*combination)
    made = plan(rule)
    assert privet.Plan.from_json(made.to_json()) == made
    assert math.isfinite(rule.sensitivity)
    assert made.events() == plan(Flat(1.0)).events()
    train(made)
    if combination in STATED:
        prose = str(made.guarantee(accountant="rdp"))
        assert ("different noise levels" in prose) == (combination[1] == "own noise")
        assert ("follow a quantile" in prose) == (combination[2] == "adaptive")


@pytest.mark.parametrize("combination", [c for c in COMBINATIONS if not LEGAL[c]], ids="-".join)
def test_a_combination_without_a_meaning_is_refused_by_name(combination):
    with pytest.raises(InvalidArgumentError, match=r"^clipping(\.rules?)? is .*BatchClipping\(bound=0\.7\)"):
        plan(make(*combination))
    with pytest.raises(InvalidArgumentError, match=r"^clipping is BatchClipping\(bound=0\.7\)"):
        Projected(BatchClipping(0.7), projections=30)


@pytest.mark.parametrize("combination", [c for c in COMBINATIONS if LEGAL[c]], ids="-".join)
def test_a_bound_has_one_owner(combination):
    rule, schedule = make(*combination), SCHEDULES[COMBINATIONS.index(combination) % len(SCHEDULES)]
    if rule.adaptive:
        with pytest.raises(
            InvalidArgumentError, match=r"^bound_schedule is .*left out with AdaptiveQuantile\. It moves the bound"
        ):
            plan(rule, bound_schedule=schedule)
        with pytest.raises(InvalidArgumentError, match=r"^noise\.deviation is 'fixed'.*with AdaptiveQuantile"):
            plan(rule, noise=Gaussian(1.3, deviation="fixed"))
    else:
        assert plan(rule, bound_schedule=schedule, noise=Gaussian(1.3, deviation="fixed")).bound_schedule == schedule
    assert plan(rule, bound_schedule=Constant(), noise=Gaussian(1.3, schedule=schedule)).multipliers()[0] == 1.3


def test_empty_draws_and_a_tiny_divisor_neither_stop_an_adaptive_run_nor_break_its_bounds():
    made = plan(AdaptiveQuantile(Layerwise(Flat(0.7), by="parameter", noise="per group")), steps=20)
    training = train(dataclasses.replace(made, sampling=privet.sampling.Poisson(1e-6)))
    assert training.steps_spent == 20
    assert all(1e-12 <= rule.bound <= 1e12 for rule in training._state.at(20)[0].rule.group_rules(4))


FEATURES = {
    "random masks": {"sparsification": privet.sparsification.Random(final_rate=0.5)},
    "ranked masks": {"sparsification": privet.sparsification.Ranked(final_rate=0.5)},
    "past parameters": {"momentum": privet.momentum.InnerOuter(inner=0.9, outer=0.1, length=2)},
    "per-example momentum": {"momentum": privet.momentum.PerExample(0.9), "sampling": privet.sampling.FullBatch()},
}


@pytest.mark.product
@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("style", STYLES)
def test_styles_and_adaptive_bounds_go_with_masks_and_momentum(feature, style):
    bound = list(BOUNDS)[(list(FEATURES).index(feature) + list(STYLES).index(style)) % 2]
    rule = make("PSASC", style, bound)
    training = train(dataclasses.replace(plan(rule, steps=4), **FEATURES[feature]))
    assert (training._state.at(4)[0] != rule) == (bound == "adaptive")
