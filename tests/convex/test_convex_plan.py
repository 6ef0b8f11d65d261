import json
import math

import pytest

from privet.accounting.classic import gaussian
from privet.convex import AdjustedLogistic, ConvexPlan, Huber, Logistic, ObjectivePerturbation, OutputPerturbation
from privet.convex.convex_statement import state_guarantee
from privet.convex.privacy_loss import composed_epsilon
from privet.errors import InvalidArgumentError

BASE = {"examples": 5000, "features": 7, "loss": Logistic(4), "regularisation": 3.0, "delta": 1e-5}


def make(mechanism, **changes):
    return ConvexPlan(**{**BASE, **changes}, mechanism=mechanism)


@pytest.mark.parametrize(("mechanism", "loss", "epsilon"), [
    (ObjectivePerturbation(), Logistic(2), 0.5), (ObjectivePerturbation(), Logistic(7), 3.0),
    (ObjectivePerturbation(), AdjustedLogistic(2, (0.9, 0.1)), 3.0),
    (ObjectivePerturbation(), Huber(0.3), 0.5), (OutputPerturbation(), Logistic(7), 0.5),
], ids=str)  # fmt: skip
def test_a_calibrated_plan_meets_its_target_closely(mechanism, loss, epsilon):
    plan = make(mechanism, loss=loss, regularisation=20.0).calibrate(epsilon)
    assert 0.999 * epsilon <= plan.epsilon() <= epsilon
    assert plan.delta_at(plan.epsilon()) <= plan.delta * (1 + 1e-6)
    assert ConvexPlan.from_json(plan.to_json()) == plan


def test_epsilon_of_output_perturbation_is_that_of_the_gaussian_mechanism():
    plan = make(OutputPerturbation(2.5))
    assert plan.epsilon() == gaussian.epsilon(1 / 2.5, 1e-5)
    assert make(OutputPerturbation(2.5), adjacency="replace-one").epsilon() == gaussian.epsilon(2 / 2.5, 1e-5)
    assert plan.sensitivity == pytest.approx(math.sqrt(2) / 3, rel=1e-4)
    assert plan.sensitivity > math.sqrt(2) / 3


def test_epsilon_of_objective_perturbation_is_that_of_its_theorem():
    plan = make(ObjectivePerturbation(2.5))
    expected = composed_epsilon(1e-5, mu=1 / 2.5, tails=3, log_determinant=3 * math.log1p(1 / (4 * 3.0)), output_mu=1 / 25)
    assert plan.epsilon() == expected
    assert plan.queries == {"objective": 2.5, "solution": 25.0}


@pytest.mark.parametrize(("changes", "name", "words"), [
    ({"regularisation": 0.0}, "regularisation", "one example can move the minimiser by any distance"),
    ({"loss": "squared"}, "loss", "bounded gradient and curvature"),
    ({"mechanism": "laplace"}, "mechanism", "ObjectivePerturbation"),
    ({"mechanism": ObjectivePerturbation(1.0), "adjacency": "replace-one"}, "adjacency", "no bound for other neighbours"),
    ({"delta": 1e-3}, "delta", "below 1 / examples"),
    ({"radius": 0.0}, "radius", "greater than 0"),
    ({"intercept": -1.0}, "intercept", "at least 0"),
    ({"examples": 1}, "examples", "at least 2"),
    ({"features": 0}, "features", "at least 1"),
    ({"source": "dice"}, "source", "'secure'"),
    ({"regularisation": 1e-9, "examples": 10**9, "delta": 1e-12}, "regularisation", "larger for this many examples"),
])  # fmt: skip
def test_conditions_that_are_not_met_are_refused_by_name(changes, name, words):
    with pytest.raises(InvalidArgumentError, match=words) as error:
        ConvexPlan(**{**BASE, "mechanism": OutputPerturbation(1.0), **changes})
    assert error.value.name == name


def test_a_target_that_the_determinant_alone_exceeds_is_refused_with_the_regularisation_that_is_needed():
    with pytest.raises(InvalidArgumentError, match=r"regularisation is 0\.5; it must be at least") as error:
        make(ObjectivePerturbation(), regularisation=0.5).calibrate(1.0)
    least = float(error.value.allowed.split()[2])
    assert make(ObjectivePerturbation(), regularisation=least * 1.01).calibrate(1.0).epsilon() <= 1.0


@pytest.mark.parametrize("multiplier", [0.0, -1.0, 1e9, math.nan])
def test_multipliers_out_of_range_are_refused(multiplier):
    with pytest.raises(InvalidArgumentError, match=r"mechanism\.multiplier"):
        OutputPerturbation(multiplier)


def test_a_plan_is_calibrated_once_and_before_use():
    with pytest.raises(InvalidArgumentError, match="left out when"):
        make(OutputPerturbation(1.0)).calibrate(1.0)
    for mechanism in (OutputPerturbation(), ObjectivePerturbation()):
        with pytest.raises(InvalidArgumentError, match=r"mechanism\.multiplier is missing"):
            make(mechanism).epsilon()


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"format": 1}', '{"format": "convex 1", "surplus": 1}'])
def test_what_is_no_plan_is_refused(text):
    with pytest.raises(InvalidArgumentError):
        ConvexPlan.from_json(text)


@pytest.mark.parametrize("mechanism", [ObjectivePerturbation(4.0), OutputPerturbation(4.0)], ids=["objective", "output"])
def test_a_statement_says_how_the_weights_are_released(mechanism):
    plan = make(mechanism)
    guarantee = state_guarantee(plan, notes=("The columns were declared",), public=("the schema of the table",))
    text = str(guarantee)
    assert f"{plan.regularisation:g}/2 times the squared norm" in text
    assert "add" in text
    assert ("⟨b, θ⟩" in text) == plan.mechanism.PERTURBS_OBJECTIVE
    assert "- the schema of the table" in text
    assert "The columns were declared." in text
    stored = json.loads(guarantee.to_json())
    assert stored["epsilon"] == plan.epsilon()
    assert stored["meaning"]["advantage"] <= plan.delta_at(0.0) + 1e-12
    assert 0 < stored["meaning"]["advantage"] < 0.5


def test_known_noise_gives_no_privacy():
    plan = make(OutputPerturbation(4.0), source="fixed")
    assert plan.epsilon() == math.inf
    assert plan.delta_at(5.0) == 1.0
    assert str(state_guarantee(plan)).startswith("NO PRIVACY")
    assert json.loads(state_guarantee(plan).to_json())["epsilon"] == "inf"
