import copy
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import privet
from privet.clipping import AdaptiveQuantile, Flat, Layerwise
from privet.errors import InvalidArgumentError
from privet.momentum import InnerOuter
from privet.noise import Gaussian
from privet.optim import AdamBC
from privet.schedules import Geometric, Table
from privet.sparsification import Random, Ranked


def reference(gradients, deviations, lr, betas, floor):
    """Algorithm 1 in scalars, the variance averaged like the squares."""
    w = m = v = noise = 0.0
    for t, (g, s) in enumerate(zip(gradients, deviations, strict=True), start=1):
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        noise = betas[1] * noise + (1 - betas[1]) * s * s
        w -= lr * (m / (1 - betas[0] ** t)) / math.sqrt(max((v - noise) / (1 - betas[1] ** t), floor))
        yield w


@pytest.mark.parametrize("deviation", [0.0, 0.8, np.linspace(0.4, 1.6, 25)])
def test_it_is_the_published_algorithm_step_by_step(deviation):
    generator = np.random.default_rng(5)
    deviations = np.broadcast_to(deviation, 25)
    gradients = 0.3 + generator.normal(size=25)
    weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = AdamBC([weight], 0.07, noise_deviation=deviation, betas=(0.85, 0.95), floor=1e-3)
    for gradient, expected in zip(gradients, reference(gradients, deviations, 0.07, (0.85, 0.95), 1e-3), strict=True):
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
        assert weight.item() == pytest.approx(expected, rel=1e-12)


def test_groups_have_their_own_noise_and_state_survives():
    weights = [nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))]

    def make(parameters):
        first, second = parameters
        return AdamBC([{"params": [first], "noise_deviation": 0.0}, {"params": [second]}], 0.1, noise_deviation=[0.6, 0.2])

    optimizer = make(weights)
    for weight in weights:
        weight.grad = torch.ones(1)
    optimizer.step()
    assert [weight.item() for weight in weights] == pytest.approx([-0.1, -0.125])
    twins = [nn.Parameter(weight.detach().clone()) for weight in weights]
    twin = make(twins)
    twin.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for both in (weights, twins):
        for weight in both:
            weight.grad = torch.full((1,), 0.7)
    optimizer.step()
    twin.step()
    assert [weight.item() for weight in weights] == [weight.item() for weight in twins]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lr", {"lr": 0.0}), ("noise_deviation", {"noise_deviation": -0.1}), ("noise_deviation", {"noise_deviation": []}),
        ("noise_deviation", {"noise_deviation": [0.1, math.nan]}), ("betas", {"betas": (0.9, 1.0)}), ("floor", {"floor": 0.0}),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(name, options):
    with pytest.raises(InvalidArgumentError, match=name):
        AdamBC([nn.Parameter(torch.zeros(2))], **{"noise_deviation": 0.1, **options})


def plan(**changes):
    settings = {"clipping": Flat(0.6), "noise": Gaussian(1.7), "steps": 4} | changes
    return privet.Plan(examples=40, sampling=privet.sampling.Poisson(16.0), delta=1e-3, **settings)


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def set_up(the_plan, optimizer, model):
    data = torch.utils.data.TensorDataset(torch.randn(40, 3), torch.randn(40))
    return privet.Training(the_plan, model, lambda m, batch: (m(batch[0])[:, 0] - batch[1]).square(), optimizer, data)


OWN_NOISE = Layerwise((Flat(0.3), Flat(0.9)), noise="per group")
KNOWN = {
    "flat": {},
    "groups with noise of their own": {"clipping": OWN_NOISE},
    "a shrinking bound": {"bound_schedule": Geometric()},
    "a bound that shrinks under fixed noise": {"bound_schedule": Geometric(), "noise": Gaussian(1.7, deviation="fixed")},
    "a scheduled multiplier": {"noise": Gaussian(1.7, schedule=Table((1.0, 2.0, 3.0, 4.0)))},
    "inner momentum": {"momentum": InnerOuter(0.9, 1.0, 2)},
}


@pytest.mark.parametrize("changes", KNOWN.values(), ids=KNOWN)
def test_of_a_plan_it_subtracts_the_noise_that_is_released(changes, holds_twice):
    """Gradients of zero: what reaches the optimizer is noise, whose mean square is the variance that is subtracted."""
    the_plan = plan(**changes)

    def experiment():
        squares = 0.0
        number = 0
        model = nn.Sequential(nn.Linear(30, 40), nn.Linear(40, 1))
        optimizer = AdamBC.of(the_plan, model, 1e-9)
        due = {id(p): Table(group["noise_deviation"]).factors(4) for group in optimizer.param_groups for p in group["params"]}
        step = optimizer.step

        def watched():
            nonlocal squares, number
            for parameter in model.parameters():
                deviation = due[id(parameter)][int(optimizer.state[parameter].get("step", 0))]
                squares += float((parameter.grad.double() / deviation).square().sum())
                number += parameter.numel()
            step()

        optimizer.step = watched
        data = torch.utils.data.TensorDataset(torch.zeros(40, 30), torch.zeros(40))
        loss = lambda m, batch: 0 * m(batch[0])[:, 0]  # noqa: E731
        privet.Training(the_plan, model, loss, optimizer, data, reading=privet.Reading(probe=False)).run()
        return {"mean square": 2 * min(stats.chi2.sf(squares, number), stats.chi2.cdf(squares, number))}

    holds_twice(experiment)


@pytest.mark.parametrize(("optimizer_of", "changes", "says"), [
    ({}, {"noise": Gaussian(1.2)}, "noise_deviation is 0.0637.*0.weight at step 1"),
    ({}, {"clipping": Flat(0.5)}, "noise_deviation"),
    ({}, {"clipping": OWN_NOISE}, "noise_deviation"),
    ({}, {"bound_schedule": Geometric()}, "at step 2"),
    ({"bound_schedule": Geometric()}, {}, "at step 2"),
    ({}, {"noise": Gaussian(1.7, schedule=Table((1.0, 1.0, 1.0, 1.1)))}, "at step 4"),
    ({}, {"momentum": InnerOuter(0.9, 0.1, 2)}, "momentum is InnerOuter.*outer=1 for an optimizer"),
    ({}, {"sparsification": Random(0.5)}, "sparsification is"),
    ({}, {"sparsification": Ranked(0.5)}, "sparsification is"),
    ({}, {"clipping": AdaptiveQuantile(Flat(0.6))}, "bound is known ahead"),
])  # fmt: skip
def test_a_plan_with_other_noise_is_refused_before_the_first_step(optimizer_of, changes, says):
    model = network()
    optimizer = AdamBC.of(plan(**optimizer_of), model, 0.01)
    with pytest.raises(InvalidArgumentError, match=says):
        set_up(plan(**changes), optimizer, model)
    with pytest.raises(InvalidArgumentError, match=says):
        set_up(
            plan(**changes), AdamBC(model.parameters(), 0.01, noise_deviation=plan(**optimizer_of).gradient_deviations()), model
        )


@pytest.mark.parametrize("number", [0.0, (0.0, 0.0)])
def test_a_plan_without_noise_is_trained_and_other_noise_is_refused(number):
    """An ablation subtracts nothing."""
    without = plan(noise=Gaussian(0.0, non_private=True))
    model = network()
    training = set_up(without, AdamBC.of(without, model, 0.01), model)
    training.run()
    assert training.steps_spent == 4
    AdamBC(model.parameters(), noise_deviation=number).check(without, dict(model.named_parameters()))
    with pytest.raises(InvalidArgumentError, match=r"noise_deviation is 0\.1; it must be 0, the standard deviation"):
        AdamBC(model.parameters(), noise_deviation=0.1).check(without, dict(model.named_parameters()))


def test_one_number_for_all_groups_is_refused_where_they_differ():
    """`gradient_deviations` tells the noise of parameters whose scale is 1: of none, if groups have noise of their own."""
    model, the_plan = network(), plan(clipping=OWN_NOISE)
    with pytest.raises(InvalidArgumentError, match="noise_deviation"):
        set_up(the_plan, AdamBC(model.parameters(), noise_deviation=the_plan.gradient_deviations()), model)
    set_up(the_plan, AdamBC.of(the_plan, model), model).run()
