"""A search of settings whose guarantee covers the choice, in place of `GridSearchCV`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from sklearn.model_selection import ParameterGrid

from privet._utils.own_code import is_own_code
from privet.accounting.composition.selection import TrialDistribution
from privet.errors import InvalidArgumentError, PrivetError
from privet.integrations.sklearn.fitting import Preparation, PrivateEstimator
from privet.plan import Plan
from privet.training import Training
from privet.tuning import PublicScore, calibrate_search, geometric, search

_Estimator = TypeVar("_Estimator", bound=PrivateEstimator)

# Parameters of an estimator that a search may vary: they affect neither the guarantee nor what is declared public.
_SETTINGS = ("model", "model_options", "steps", "batch_size", "bound", "learning_rate", "random_state")


def tune(
    estimator: _Estimator,
    grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]],
    X: Any,  # noqa: N803
    y: Any,
    *,
    public: tuple[Any, Any],
    number: TrialDistribution | None = None,
) -> _Estimator:
    """Return an estimator fitted with the best of some settings, whose ε covers the whole search.

    A random number of times, a setting is drawn, trained on the private rows and scored on public ones. The best model is kept;
    the others and their number stay secret.

    Args:
        estimator: a `PrivateClassifier` or `PrivateRegressor` with the ε and δ of the search, without a budget and a directory.
        grid: parameter → values to try, or several such grids, as for `GridSearchCV`: of model, model_options, steps, batch_size,
            bound, learning_rate and random_state.
        X, y: private rows and their target, as for `fit`.
        public: public rows and their target, on which models are scored by `score`.
        number: distribution of the number of trainings; by default geometric with a mean of the number of settings.

    Returns:
        A new estimator with the best setting. `guarantee_` is the statement of the search.

    Guarantee:
        That of `privet.tuning.search`, with noise calibrated so that the search meets ε.

    >>> import numpy as np
    >>> from privet.integrations.sklearn import PrivateClassifier, tune
    >>> rows = np.random.default_rng(0).uniform(0, 1, (1200, 2))
    >>> labels = (rows[:, 0] > 0.5).astype(int)
    >>> classifier = PrivateClassifier(epsilon=4.0, feature_bounds=(0, 1), classes=[0, 1], model="logistic", steps=20)
    >>> best = tune(classifier, {"bound": [0.1, 1.0]}, rows[200:], labels[200:], public=(rows[:200], labels[:200]))
    >>> best.epsilon_ <= 4.0
    True
    """
    settings = [*ParameterGrid(grid)]
    if other := sorted({name for setting in settings for name in setting} - {*_SETTINGS}):
        raise InvalidArgumentError("grid", other, f"made of {', '.join(_SETTINGS)}", "Others change what is promised.")
    for name in ("budget", "directory"):
        if getattr(estimator, name) is not None:
            raise InvalidArgumentError(name, str(getattr(estimator, name)), "left out in a search", "All trials are one release.")
    if estimator.public_rows:
        raise InvalidArgumentError("public_rows", True, "False in a private search", "On public rows, use GridSearchCV.")
    law = geometric(mean=float(len(settings))) if number is None else number
    trials: list[tuple[Training, Any, Preparation]] = []

    def of(training: Training) -> tuple[Any, Preparation]:
        return next((one, prepared) for each, one, prepared in trials if each is training)

    def score(training: Training) -> float:
        one, prepared = of(training)
        try:
            return float(one.adopt(prepared, training).score(*public))
        except PrivetError:  # its training diverged; an exception would tell about a trial that is not chosen
            return math.nan

    def start(plan: Plan, setting: Mapping[str, Any]) -> Training:
        one = with_setting(setting)
        prepared = one.prepare(X, y)
        trials.append((one.begin(prepared, plan), one, prepared))
        return trials[-1][0]

    def with_setting(setting: Mapping[str, Any]) -> _Estimator:
        return type(estimator)(**{**estimator.get_params(deep=False), **setting})

    criterion = PublicScore(score)
    prepared = [with_setting(setting).prepare(X, y) for setting in settings]
    plans = [calibrate_search(each.plan, estimator.epsilon, score=criterion, number=law) for each in prepared]
    estimator.check_unspent()
    estimator.mark_spent()
    result = search([*zip(plans, settings, strict=True)], start, score=criterion, number=law)
    if result.training is None:
        raise PrivetError("the number of trainings was drawn as 0, so there is no model; choose a distribution that starts at 1")
    stated = result.guarantee
    if all(is_own_code(each.architecture.build(), each.task.loss) for each in prepared):
        stated = stated.without_user_code()
    best, its = of(result.training)
    found: _Estimator = best.adopt(its, result.training, stated)
    return found
