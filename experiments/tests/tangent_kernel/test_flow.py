"""Gradient flow: the published table from runs, and the same end for every noise."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from privet.clipping import Flat, Layerwise
from privet.errors import InvalidArgumentError
from privet_experiments.tangent_kernel import (
    NoiseLimitDisplay,
    clipping_table,
    gradient_flow,
    loss_slope,
    noise_limit,
    problems,
    tangent_kernel,
)
from privet_experiments.tangent_kernel.batch_clipping import BatchClipping

OUTLIER, OPPOSED, NETWORK = problems()


def run(problem, rule, **options):
    settings = {"learning_rate": problem.learning_rate, "steps": problem.steps, **options}
    return gradient_flow(problem.model, problem.criterion, problem.inputs, problem.targets, rule, **settings)


@pytest.mark.slow
def test_runs_agree_with_the_published_table():
    table = clipping_table()
    assert table.agrees, f"\n{table}"
    assert table.verdicts["small bound, layerwise"]["positive in eigenvalues"].guaranteed is False
    assert str(table).count("\n") == 9


@pytest.mark.parametrize("problem", problems(), ids=lambda problem: problem.name)
def test_problems_are_what_the_theorems_ask_for(problem):
    assert tangent_kernel(problem.model, problem.criterion, problem.inputs, problem.targets).smallest_quadratic > 0.01


@pytest.mark.parametrize(
    ("rule", "rises"), [(None, False), (BatchClipping(1.0), False), (OUTLIER.flat, True), (OUTLIER.layerwise, True)]
)
def test_clipped_majority_raises_the_loss_as_its_kernel_predicts(rule, rises):
    slope = loss_slope(OUTLIER.model, OUTLIER.criterion, OUTLIER.inputs, OUTLIER.targets, rule)
    assert (slope.predicted > 0) is rises
    flow = run(OUTLIER, rule, learning_rate=1e-4, steps=1)
    assert (flow.losses[1] - flow.losses[0]) / 1e-4 == pytest.approx(slope.predicted, rel=1e-2)


def test_layerwise_flow_can_stand_still_far_from_zero():
    assert run(OPPOSED, OPPOSED.layerwise).losses[-1] == pytest.approx(6.25)
    assert run(OPPOSED, None).losses[-1] < 1e-3


def test_a_step_is_that_of_the_clipped_gradients():
    rule = Flat(0.5)
    moved = run(NETWORK, rule, learning_rate=0.3, steps=1).model
    loss = NETWORK.criterion(NETWORK.model(NETWORK.inputs), NETWORK.targets)
    for name, parameter in NETWORK.model.named_parameters():
        total = 0
        for one in loss:
            gradients = torch.autograd.grad(one, tuple(NETWORK.model.parameters()), retain_graph=True)
            norm = torch.cat([value.flatten() for value in gradients]).norm()
            (own,) = torch.autograd.grad(one, parameter, retain_graph=True)
            total = total + own * min(1.0, 0.5 / float(norm))
        expected = parameter - 0.3 / len(loss) * total
        assert torch.allclose(moved.get_parameter(name), expected, atol=1e-12)


def test_noise_is_scaled_to_the_sensitivity_and_comes_from_its_seed():
    quiet, loud, again, other = (
        run(NETWORK, Flat(0.5), steps=1, noise_multiplier=multiplier, seed=seed).parameters()
        for multiplier, seed in ((0.0, 0), (3.0, 1), (3.0, 1), (3.0, 2))
    )
    assert torch.equal(loud, again)
    assert not torch.equal(loud, other)
    deviation = NETWORK.learning_rate * 3.0 * 0.5 / len(NETWORK.targets)
    assert float((loud - quiet).std()) == pytest.approx(deviation, rel=0.2)  # 257 numbers


def test_gradient_flow_is_the_same_for_every_noise():
    problem, rule = OUTLIER, Layerwise(Flat(1.0))
    limit = noise_limit(
        problem.model, problem.criterion, problem.inputs, problem.targets, rule,
        time=0.5, learning_rates=(0.1, 0.0125), noise_multipliers=(0.7, 5.0), seeds=6,
    )  # fmt: skip
    assert limit.slopes == pytest.approx((0.5, 0.5), abs=0.2)
    for multiplier, row in zip(limit.noise_multipliers, limit.distances, strict=True):
        for rate, seeds in zip(limit.learning_rates, row, strict=True):
            law = multiplier * limit.scale * rate**0.5
            assert sum(seeds) / len(seeds) == pytest.approx(law, rel=0.5)
    assert "NOT PRIVATE" in NoiseLimitDisplay(limit).plot().ax_.get_title()


@pytest.mark.parametrize("wrong", [{"learning_rate": 0}, {"steps": 0}, {"noise_multiplier": -1.0}, {"looks": -1}])
def test_arguments_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidArgumentError):
        run(OPPOSED, Flat(1.0), **wrong)


def test_noise_needs_a_sensitivity():
    with pytest.raises(InvalidArgumentError, match="whole batch"):
        run(OPPOSED, BatchClipping(1.0), noise_multiplier=1.0)


def test_model_is_moved_on_a_copy():
    model = nn.Linear(2, 1).double()
    before = model.weight.clone()
    gradient_flow(model, OPPOSED.criterion, OPPOSED.inputs, OPPOSED.targets, learning_rate=0.1, steps=2)
    assert torch.equal(model.weight, before)
