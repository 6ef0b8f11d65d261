"""Estimators with `fit` and `predict` for tables, trained with differential privacy under public bounds, classes and settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from privet.errors import InvalidArgumentError
from privet.integrations.sklearn.fitting import PrivateEstimator
from privet.integrations.sklearn.public_facts import Labels, find_range, read_labels, to_texts
from privet.tables import Classification, Regression, Schema


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """A classifier of table rows with differential privacy.

    Everything that shapes the model is public: bounds and classes are arguments, and what is left out is chosen from the
    number of rows and features (`privet.tuning.defaults`). The unit of privacy is one row.

    Args:
        epsilon: target ε > 0 of one `fit`, never exceeded.
        delta: δ in (0, 1), below 1/N.
        feature_bounds: (low, high), each a number or one per feature; a list of one (low, high) per feature; or column →
            (low, high). Public.
        classes: the labels in order, 2 to 1000; public. A row with another label contributes nothing.
        schema: public schema, or its path, in place of bounds and classes, for categories, booleans, texts and other treatments
            of missing cells; rows are then data frames with its columns.
        model: name of a network of `privet.models`; by default "table", or "logistic" where the signal is too small for it.
        model_options: further arguments of the network, such as {"width": 32}.
        steps, batch_size, bound, learning_rate: settings of SGD with momentum; by default from public facts.
        random_state: seed of the initial weights, which are public; sampling and noise have no seed.
        device: torch device for training and prediction.
        budget: `privet.Budget`, or its path, which pays for every `fit`. Without it, an estimator fits private rows once.
        directory: directory of the ledger, checkpoints, statement and model, which `load` opens again; by default in memory.
        purpose: what the model is for, in your own words; the statement repeats it.
        public_rows: declares that the rows are public, such as made-up ones for a search of settings: bounds and classes may
            then come from the rows, `fit` may be repeated and the estimator cloned, and there is no guarantee.

    Attributes:
        classes_: the classes in the order given.
        guarantee_: the privacy statement, or its summary after `load`; None for public rows.
        epsilon_: ε of the statement; infinity for public rows.
        plan_: the plan that was carried out.
        schema_: the schema of the table.
        model_: the trained network.
        forecast_: `privet.tuning.Feasibility` of the plan, whose warnings `fit` issued.
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.

    >>> import numpy as np
    >>> from privet.integrations.sklearn import PrivateClassifier
    >>> random = np.random.default_rng(0)
    >>> rows = random.uniform(0, 10, (1000, 2))
    >>> labels = np.where(rows[:, 0] > 5, "old", "new")
    >>> classifier = PrivateClassifier(epsilon=2.0, feature_bounds=(0, 10), classes=["new", "old"], model="logistic")
    >>> classifier.fit(rows, labels).classes_.tolist()
    ['new', 'old']
    >>> classifier.epsilon_ <= 2.0
    True
    """

    classes: Any = None

    def decision_function(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the logit of each class, (N, K); of two classes, the second minus the first, (N,)."""
        outputs = self._outputs(X)
        return outputs[:, 1] - outputs[:, 0] if outputs.shape[1] == 2 else outputs

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the probability of each class, (N, K), in the order of `classes_`."""
        found: NDArray[np.float64] = torch.from_numpy(self._outputs(X)).softmax(dim=1).numpy()
        return found

    def predict(self, X: Any) -> Labels:  # noqa: N803
        """Return the most probable class of each row, (N,)."""
        places = self._outputs(X).argmax(axis=1)
        found: Labels = self.classes_[places]
        return found

    def _target(self, values: Labels, schema: Schema | None) -> Classification:
        if schema is not None:
            if self.classes is not None:
                raise InvalidArgumentError("classes", self.classes, "left out with a schema", "It has the classes.")
            if not isinstance(schema.task, Classification):
                raise InvalidArgumentError("schema", schema.target, "for a target of classes", "Use PrivateRegressor.")
            self.classes_: Labels = np.array(schema.task.classes)
            return schema.task
        if self.classes is None and self.public_rows:
            labels = np.asarray(values.tolist()) if values.dtype == object else values
            check_classification_targets(labels)
            self.classes_ = np.unique(labels)
            if len(self.classes_) < 2:
                raise InvalidArgumentError("y", "one class", "at least two classes", "A classifier cannot train on 1 class.")
        else:
            self.classes_ = read_labels("classes", self.classes)
        return Classification(to_texts(self.classes_))


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateRegressor(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """A regression on table rows with differential privacy; everything that is not listed is as for `PrivateClassifier`.

    Args:
        target_bounds: lowest and highest value of the target; public. Targets outside are clipped; predictions lie within.
        schema: public schema in place of both bounds.
        model: by default "table", or "linear" where the signal is too small for it.

    >>> import numpy as np
    >>> from privet.integrations.sklearn import PrivateRegressor
    >>> rows = np.random.default_rng(0).uniform(-1, 1, (1000, 2))
    >>> regressor = PrivateRegressor(epsilon=2.0, feature_bounds=(-1, 1), target_bounds=(0, 100), model="linear")
    >>> bool(regressor.fit(rows, 50 + 40 * rows[:, 0]).predict([[1.0, 0.0]])[0] <= 100)
    True
    """

    target_bounds: tuple[float, float] | None = None

    def predict(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the predicted number of each row, (N,), in the target's unit and within its bounds."""
        outputs = self._outputs(X)
        return self.schema_.decode(outputs).astype(np.float64)

    def _target(self, values: Labels, schema: Schema | None) -> Regression:
        if schema is not None:
            if self.target_bounds is not None:
                raise InvalidArgumentError("target_bounds", self.target_bounds, "left out with a schema", "It has the bounds.")
            if not isinstance(schema.task, Regression):
                raise InvalidArgumentError("schema", schema.target, "for a numeric target", "Use PrivateClassifier.")
            return schema.task
        bounds = find_range(values) if self.target_bounds is None and self.public_rows else self.target_bounds
        try:
            low, high = bounds  # type: ignore[misc]
            return Regression(float(low), float(high))
        except (TypeError, ValueError):
            allowed = "(low, high), two finite numbers, the lower one first"
            fix = "They are public and must come from elsewhere: minima and maxima of private rows are private."
            raise InvalidArgumentError("target_bounds", bounds, allowed, fix) from None
