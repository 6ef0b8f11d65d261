import math

import numpy as np
import pytest

pytest.importorskip("sklearn", minversion="1.6")

from privet.errors import BudgetExhaustedError, InvalidArgumentError, PrivetError
from privet.integrations.sklearn import PrivateClassifier, PrivateRegressor, tune
from privet.tuning import PoissonTrials, TruncatedNegativeBinomial, geometric
from privet.tuning.search_statement import SelectionGuarantee

pytestmark = [pytest.mark.usefixtures("brief_runs"), pytest.mark.filterwarnings("ignore::privet.errors.PrivetWarning")]

ROWS = np.random.default_rng(0).uniform(0, 1, (600, 2))
LABELS = (ROWS[:, 0] > 0.5).astype(int)
PUBLIC = (ROWS[:200], LABELS[:200])
MANY = TruncatedNegativeBinomial(mean=50.0, shape=50.0)  # misses one of three settings with probability (3/4)^50 < 1e-6


def classifier(**settings):
    chosen = {"epsilon": 5.0, "delta": 1e-4, "feature_bounds": (0, 1), "classes": [0, 1], "model": "logistic", "steps": 5}
    return PrivateClassifier(**chosen | settings)


def test_the_whole_search_meets_epsilon_and_one_training_costs_less():
    found = tune(classifier(purpose="to find a bed"), {"bound": [0.1, 1.0], "steps": [3, 5]}, ROWS, LABELS, public=PUBLIC)
    assert isinstance(found.guarantee_, SelectionGuarantee)
    assert found.epsilon_ == found.guarantee_.epsilon <= 5.0
    assert found.plan_.epsilon() < found.guarantee_.epsilon_of_one < found.epsilon_
    assert (found.guarantee_.candidates, found.guarantee_.examples, found.guarantee_.delta) == (4, 600, 1e-4)
    assert (found.plan_.clipping.bound, found.plan_.steps) == (found.bound, found.steps)
    assert found.predict(ROWS).shape == (600,)
    assert "Purpose: to find a bed." in found.guarantee_.summary
    assert not found.guarantee_.user_code
    assert "transformers that were fitted" in str(found.guarantee_)


def test_the_setting_with_the_best_public_score_is_kept_and_a_diverged_trial_is_no_error():
    """A learning rate of almost zero leaves the weights of a linear model where they start: at zero."""
    grid = [{"learning_rate": [1e38], "bound": [1e6]}, {"learning_rate": [1e-9, 1.0]}]
    found = tune(classifier(epsilon=50.0), grid, ROWS, LABELS, public=PUBLIC, number=MANY)
    assert found.learning_rate == 1.0
    assert found.score(*PUBLIC) > 0.7


def test_a_diverged_model_predicts_nothing():
    diverged = classifier(learning_rate=1e38, bound=1e6).fit(ROWS, LABELS)
    with pytest.raises(PrivetError, match="diverged"):
        diverged.predict(ROWS)


def test_a_regression_is_searched_by_its_score():
    estimator = PrivateRegressor(epsilon=5.0, delta=1e-4, feature_bounds=(0, 1), target_bounds=(0, 1), model="linear", steps=5)
    found = tune(estimator, [{"bound": [0.5]}, {"steps": [3]}], ROWS, ROWS[:, 0], public=(ROWS[:50], ROWS[:50, 0]))
    assert found.epsilon_ <= 5.0
    assert math.isfinite(found.score(ROWS[:50], ROWS[:50, 0]))


@pytest.mark.parametrize(("settings", "grid", "name"), [
    ({}, {"epsilon": [1.0, 2.0]}, "grid"),
    ({}, {"feature_bounds": [(0, 1)]}, "grid"),
    ({"budget": "budget"}, {"steps": [3]}, "budget"),
    ({"directory": "run"}, {"steps": [3]}, "directory"),
    ({"public_rows": True}, {"steps": [3]}, "public_rows"),
])  # fmt: skip
def test_what_a_search_cannot_cover_is_refused(settings, grid, name):
    with pytest.raises(InvalidArgumentError, match=rf"^{name} is "):
        tune(classifier(**settings), grid, ROWS, LABELS, public=PUBLIC)


def test_an_estimator_is_searched_or_fitted_once():
    estimator = classifier()
    found = tune(estimator, {"steps": [2]}, ROWS, LABELS, public=PUBLIC, number=geometric(1.0))
    for spent in (estimator, found):
        with pytest.raises(BudgetExhaustedError):
            tune(spent, {"steps": [2]}, ROWS, LABELS, public=PUBLIC)
        with pytest.raises(BudgetExhaustedError):
            spent.fit(ROWS, LABELS)


def test_a_search_without_trainings_says_so(monkeypatch):
    monkeypatch.setattr(PoissonTrials, "quantile", lambda law, uniform: 0)
    with pytest.raises(PrivetError, match="drawn as 0"):
        tune(classifier(), {"steps": [2]}, ROWS, LABELS, public=PUBLIC, number=PoissonTrials(1.0))
