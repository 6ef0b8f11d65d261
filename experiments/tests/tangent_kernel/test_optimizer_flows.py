"""Flows of momentum and adaptive optimizers: the steps of their systems, and where they end under clipping."""

from __future__ import annotations

import math

import pytest
import torch

from privet.clipping import Flat, Global, Layerwise
from privet.errors import InvalidArgumentError
from privet.gradients import clipped_sum, trainable
from privet_experiments.tangent_kernel import (
    CLIPPINGS,
    DYNAMICS,
    SYSTEMS,
    gradient_flow,
    optimizer_flow,
    problems,
    tangent_kernel,
)
from privet_experiments.tangent_kernel.dynamics import Dynamics, Motion
from privet_experiments.tangent_kernel.kernel import loss_of
from privet_experiments.tasks.gradient_flow import FlowConfig

OUTLIER, OPPOSED, NETWORK = problems()
ENDS_IN_ZERO = 1e-3


def of_a_parabola(system, time, steps):
    """Return the path of w under L = w²/2 from w = 1, and the system's momentum at the end."""
    motion, w, path = Motion(DYNAMICS[system], time), torch.tensor([1.0]).double(), []
    for _ in range(steps):
        w = w - time * motion.step({"w": w})["w"]
        path.append(float(w))
    return path


def test_heavy_ball_follows_the_damped_oscillator():
    """ẅ = −w − ẇ has the solution e^(−t/2)(cos νt + sin νt/(2ν)) with ν = √3/2."""
    path, nu = of_a_parabola("heavy ball", 1e-3, 5000), math.sqrt(3) / 2
    for step in (500, 2000, 5000):
        t = step * 1e-3
        assert path[step - 1] == pytest.approx(math.exp(-t / 2) * (math.cos(nu * t) + math.sin(nu * t) / (2 * nu)), abs=2e-3)


def test_nag_follows_the_bessel_function_of_its_equation():
    """ẅ + 3/t·ẇ + w = 0 has the solution 2·J₁(t)/t (Su, Boyd, Candès 2014)."""
    path = of_a_parabola("NAG", 1e-3, 8000)
    for step in (1000, 4000, 8000):
        t = torch.tensor(step * 1e-3, dtype=torch.float64)
        assert path[step - 1] == pytest.approx(float(2 * torch.special.bessel_j1(t) / t), abs=2e-3)


@pytest.mark.parametrize(("system", "derivative"), [
    ("Adam", lambda w, m, v: (-m / math.sqrt(v + 0.1), w - m, (w**2 - v) / 2)),
    ("AdaGrad", lambda w, m, v: (-w / math.sqrt(v + 0.1), 0.0, w**2)),
    ("RMSprop", lambda w, m, v: (-w / math.sqrt(v + 0.1), 0.0, (w**2 - v) / 2)),
])  # fmt: skip
def test_adaptive_systems_follow_their_equations(system, derivative):
    """Against the classical Runge–Kutta method, with steps that are a hundred times larger."""
    path, state, dt = of_a_parabola(system, 1e-3, 4000), torch.tensor([1.0, 0.0, 0.0]).double(), 0.1

    def slope(at):
        return torch.tensor(derivative(*at.tolist())).double()

    for step in range(1, 41):
        k1 = slope(state)
        k2 = slope(state + dt / 2 * k1)
        k3 = slope(state + dt / 2 * k2)
        k4 = slope(state + dt * k3)
        state = state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        assert path[100 * step - 1] == pytest.approx(float(state[0]), abs=5e-3)


@pytest.mark.parametrize(("system", "clipping"), [
    ("heavy ball", "local, layerwise"), pytest.param("Adam", "global, layerwise", marks=pytest.mark.slow),
])  # fmt: skip
def test_only_local_layerwise_clipping_can_end_far_from_zero(system, clipping):
    flow = optimizer_flow(system, clipping, OPPOSED)
    ratio = flow.losses[-1] / flow.losses[0]
    if CLIPPINGS[clipping].guaranteed:
        assert ratio < ENDS_IN_ZERO
    else:
        assert flow.losses[-1] == pytest.approx(6.25, rel=1e-2)  # where gradient descent stands still, too
        assert abs(flow.losses[-1] - flow.losses[-100]) < 1e-3  # and the loss has converged


@pytest.mark.slow
@pytest.mark.parametrize("clipping", CLIPPINGS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_verdicts_are_those_of_the_theorem_in_all_problems(system, clipping):
    ends = [flow.losses[-1] / flow.losses[0] for flow in (optimizer_flow(system, clipping, problem) for problem in problems())]
    assert (max(ends) < ENDS_IN_ZERO) is CLIPPINGS[clipping].guaranteed, ends


@pytest.mark.parametrize("problem", [
    pytest.param(problem, id=problem.name, marks=pytest.mark.slow if problem is not NETWORK else ())
    for problem in (OUTLIER, OPPOSED, NETWORK)
])  # fmt: skip
def test_gradients_stay_within_the_cutoff_of_global_clipping(problem):
    """The theorem assumes it; a factor below 1 is all that is left of the clip then."""
    rule = CLIPPINGS["global, layerwise"].rule(problem)
    flow = optimizer_flow("heavy ball", "global, layerwise", problem, looks=3)
    for model in (problem.model, flow.model):
        norms = clipped_sum(model, loss_of(problem.criterion), (problem.inputs, problem.targets), rule).norms
        assert float(norms.max()) < rule.rules[0].cutoff
    assert all(kernel.symmetric and kernel.positive_in_quadratic_form for kernel in flow.kernels)


def test_global_layerwise_clipping_weighs_layers_by_their_own_factors():
    rule = CLIPPINGS["global, layerwise"].rule(NETWORK)
    kernel = tangent_kernel(NETWORK.model, NETWORK.criterion, NETWORK.inputs, NETWORK.targets, rule).matrix
    names = tuple(trainable(NETWORK.model))
    expected = 0
    for group, one in zip(rule.groups(names), rule.rules, strict=True):
        frozen = Layerwise({"|".join(group): Global(300.0), ".*": Global(1e-12, cutoff=300.0)})
        alone = tangent_kernel(NETWORK.model, NETWORK.criterion, NETWORK.inputs, NETWORK.targets, frozen).matrix
        expected = expected + one.bound / one.cutoff * alone
    assert torch.allclose(kernel, expected, rtol=1e-9)
    assert len({one.bound for one in rule.rules}) == len(rule.rules)


def test_beyond_the_cutoff_global_clipping_drops_examples_and_the_loss_stays():
    """What the theorem assumes is needed: the outlier's gradient is dropped at every step."""
    rule = Layerwise(Global(4.0))
    flow = gradient_flow(
        OUTLIER.model, OUTLIER.criterion, OUTLIER.inputs, OUTLIER.targets, rule, learning_rate=0.3, steps=300,
        dynamics=DYNAMICS["heavy ball"],
    )  # fmt: skip
    assert flow.losses[-1] > 0.5 * flow.losses[0]


def test_gradient_descent_is_the_system_without_momentum_and_division():
    one, other = (
        gradient_flow(
            OPPOSED.model, OPPOSED.criterion, OPPOSED.inputs, OPPOSED.targets, Flat(2.0), learning_rate=0.1, steps=5, **options
        ).losses
        for options in ({}, {"dynamics": Dynamics()})
    )
    assert one == other


def test_noise_reaches_the_momentum():
    quiet, loud = (
        gradient_flow(
            NETWORK.model, NETWORK.criterion, NETWORK.inputs, NETWORK.targets, Flat(0.5), learning_rate=0.1, steps=1,
            noise_multiplier=multiplier, seed=1, dynamics=DYNAMICS["heavy ball"],
        ).parameters()
        for multiplier in (0.0, 3.0)
    )  # fmt: skip
    deviation = 0.1 * 0.1 / 1.1 * 3.0 * 0.5 / len(NETWORK.targets)  # one step from rest: m = dt·g/(1 + dt·r)
    assert float((loud - quiet).std()) == pytest.approx(deviation, rel=0.2)


def test_settings_of_an_arm_are_checked():
    assert FlowConfig("global, layerwise", "NAG").described() == {"clipping": "global, layerwise", "optimizer": "NAG"}
    assert FlowConfig("no clipping").described() == {"clipping": "no clipping"}
    with pytest.raises(InvalidArgumentError, match="clipping is 'no clipping'"):
        FlowConfig("no clipping", "NAG")
    with pytest.raises(InvalidArgumentError, match="optimizer is 'SGD'"):
        FlowConfig("local, flat", "SGD")
