import math

import pytest
import torch
from scipy import stats

from privet.convex import ConvexPlan, Huber, Logistic, ObjectivePerturbation, OutputPerturbation, convex_training, fit
from privet.convex.minimiser import PerturbedObjective, minimise, read_rows
from privet.errors import InvalidArgumentError, LedgerError
from privet.ledger import read_history
from privet.noise import SecureSource

MECHANISMS = [ObjectivePerturbation, OutputPerturbation]


def make_plan(mechanism, *, multiplier=2.3, examples=40, features=3, loss=None, **settings):
    settings = {"regularisation": 0.7, "delta": 1e-4, "radius": 1.7, "intercept": 0.6, **settings}
    kind = loss or Logistic(3)
    return ConvexPlan(examples=examples, features=features, loss=kind, mechanism=mechanism(multiplier), **settings)


def make_data(plan):
    inputs = 2 * torch.randn(plan.examples, plan.features)
    if isinstance(plan.loss, Logistic):
        return inputs, torch.randint(plan.loss.classes, (plan.examples,))
    return inputs, 3 * torch.rand(plan.examples) - 1.5


def find_minimiser(plan, inputs, targets, linear):
    encoded, usable = plan.loss.encode(targets)
    rows = read_rows(inputs, usable, plan.examples, plan.features, plan.radius, plan.intercept)
    return minimise(PerturbedObjective(plan.loss, rows, encoded, plan.regularisation, linear), plan.tolerance / 2)


@pytest.mark.parametrize("loss", [Logistic(2), Logistic(4), Huber(0.4)], ids=str)
@pytest.mark.parametrize("regularisation", [0.05, 2.0])
def test_no_example_moves_the_minimiser_further_than_the_sensitivity_of_output_perturbation(loss, regularisation):
    furthest = 0.0
    for _ in range(6):
        plan = make_plan(OutputPerturbation, examples=12, loss=loss, regularisation=regularisation)
        inputs, targets = make_data(plan)
        if _ % 2:  # the others contribute nothing, so nothing holds against one example
            inputs[1:] = math.nan
        inputs[0] *= 1e6
        linear = torch.zeros(plan.shape, dtype=torch.float64)
        whole = find_minimiser(plan, inputs, targets, linear)
        without = inputs.clone()
        without[0] = math.nan
        moved = float((whole - find_minimiser(plan, without, targets, linear)).norm())
        assert moved <= plan.sensitivity
        furthest = max(furthest, moved / plan.sensitivity)
    assert furthest > 0.1 * min(1.0, regularisation)


@pytest.mark.parametrize("loss", [Logistic(2), Logistic(4), Huber(0.4)], ids=str)
def test_computed_minimisers_are_within_the_distance_that_output_noise_hides(loss):
    """For each data set, the output noise covers the difference between an exact and a computed minimiser."""
    plan = make_plan(ObjectivePerturbation, loss=loss, examples=200)
    inputs, targets = make_data(plan)
    linear = plan.queries["objective"] * loss.lipschitz * torch.randn(plan.shape, dtype=torch.float64)
    rough = find_minimiser(plan, inputs, targets, linear)
    encoded, usable = loss.encode(targets)
    rows = read_rows(inputs, usable, 200, 3, plan.radius, plan.intercept)
    precise = minimise(PerturbedObjective(loss, rows, encoded, plan.regularisation, linear), 1e-3 * plan.tolerance)
    assert 2 * float((rough - precise).norm()) <= plan.sensitivity
    assert float(rough.norm()) <= plan.largest_weights


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("loss", [Logistic(3), Huber(0.4)], ids=str)
def test_without_data_the_release_is_the_declared_noise(mechanism, loss, holds_twice):
    plan = make_plan(mechanism, features=700, loss=loss, regularisation=0.3)
    inputs, targets = torch.full((40, 700), math.nan), make_data(plan)[1]
    deviation = plan.queries["solution"] * plan.sensitivity
    if mechanism is ObjectivePerturbation:  # the minimiser of ½Λ‖θ‖² + ⟨b, θ⟩ is −b/Λ
        deviation = math.hypot(deviation, plan.queries["objective"] * loss.lipschitz / plan.regularisation)

    def experiment():
        values = fit(plan, inputs, targets).flatten().numpy() / deviation
        spread = 2 * min(stats.chi2.cdf((values**2).sum(), len(values)), stats.chi2.sf((values**2).sum(), len(values)), 0.5)
        return {"law": stats.kstest(values, "norm").pvalue, "spread": spread}

    holds_twice(experiment)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_draw_of_noise_is_in_the_ledger_before_it_is_drawn(mechanism, tmp_path, monkeypatch):
    plan, seen = make_plan(mechanism), []

    class Watched(SecureSource):
        def normals(self, size):
            seen.append((size, dict(read_history(tmp_path / "ledger")[0].queries)))
            return super().normals(size)

    monkeypatch.setitem(convex_training.SOURCES, "secure", Watched)
    released = fit(plan, *make_data(plan), ledger=tmp_path / "ledger")
    expected = list(plan.queries.items())
    assert [size for size, _ in seen] == [12] * len(expected)
    assert [list(paid.items()) for _, paid in seen] == [expected[: place + 1] for place in range(len(expected))]
    history = read_history(tmp_path / "ledger")[0]
    assert history.plan == plan.to_dict()
    assert history.answers == {"solution": tuple(released.flatten().tolist())}  # the noise on the objective stays secret
    with pytest.raises(LedgerError, match="already the ledger of a run"):
        fit(plan, *make_data(plan), ledger=tmp_path / "ledger")


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("loss", [Logistic(3), Huber(0.4)], ids=str)
def test_no_private_value_raises(mechanism, loss):
    plan = make_plan(mechanism, loss=loss)
    inputs, targets = make_data(plan)
    for broken in (
        inputs * 1e38, inputs * 0, inputs * 1e-38, inputs[:1].expand(40, 3), torch.full_like(inputs, math.inf),
        torch.where(torch.rand_like(inputs) < 0.3, math.nan, inputs),
    ):  # fmt: skip
        for labels in (targets, targets * 0, targets * 0 - 100, targets * 1000):
            assert fit(plan, broken, labels).isfinite().all()


def test_released_weights_learn():
    torch.manual_seed(0)
    inputs = torch.randn(3000, 4)
    labels = (inputs @ torch.randn(4, 3)).argmax(1)
    for mechanism in MECHANISMS:
        plan = make_plan(mechanism, multiplier=None, examples=3000, features=4, regularisation=5.0).calibrate(2.0)
        rows = read_rows(inputs, torch.ones(3000, dtype=torch.bool), 3000, 4, plan.radius, plan.intercept)
        assert ((rows @ fit(plan, inputs, labels).T).argmax(1) == labels).float().mean() > 0.8


def test_targets_of_another_shape_are_refused():
    plan = make_plan(OutputPerturbation)
    with pytest.raises(InvalidArgumentError, match="shape of the"):
        fit(plan, torch.zeros(40, 3), torch.zeros(39, dtype=torch.int64))
