"""The part of a fit that classifiers and regressors share: from rows and public facts to a training, and from that to a model."""

from __future__ import annotations

import json
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from privet import models
from privet._utils.documents import DocumentError, from_json, read_text
from privet._utils.tensors import check_device, total_size
from privet.accounting.guarantee import tradeoff
from privet.accounting.guarantee.statement import Guarantee
from privet.artifact import Architecture, GuaranteeSummary
from privet.artifact.folder import FOLDER
from privet.artifact.predictor import compute_outputs
from privet.artifact.predictor import load as read_model
from privet.artifact.saving import write_model
from privet.budget import Budget
from privet.clipping import Flat
from privet.data import DataSet
from privet.data.dataset import to_tensors
from privet.errors import BudgetExhaustedError, InvalidArgumentError, PrivetWarning
from privet.integrations.sklearn import public_facts
from privet.integrations.sklearn.pipelines import LearnsPrivately, warn_of_pipeline
from privet.integrations.sklearn.public_facts import Bounds, Labels
from privet.models.networks import check_task
from privet.plan import Plan
from privet.runs.tasks import Task, network_options, task_of
from privet.sampling import Poisson
from privet.tables import Schema
from privet.tables.frames import Frame
from privet.tables.targets import Target
from privet.training import Storage, Training, read_plan
from privet.training.directory import write_guarantee
from privet.tuning.defaults import Defaults, choose_defaults, choose_learning_rate, choose_model
from privet.tuning.feasibility import Feasibility, assess, find_simpler_model
from privet.tuning.search_statement import SelectionGuarantee

_NOT_COVERED = (
    "transformers that were fitted on the same rows before the estimator got them (check_pipeline of "
    "privet.integrations.sklearn names those of a pipeline)"
)
_REPEATED = (
    "this estimator has trained on private rows already, and would spend ε again. For other rows, use a new estimator; for "
    "several trainings on the same rows, pass budget=, which limits what they spend together"
)
_CLONED = (
    "scikit-learn clones estimators to fit them several times. On private rows, every fit spends ε again, and scores on private "
    "rows are released without noise. Use privet.integrations.sklearn.tune, whose ε covers the whole search, or search on public "
    "rows."
)
_PUBLIC = "the rows were declared public, and bounds or classes may come from them"
_ARRAYS = {"classes_": None, "feature_names_in_": object}  # attributes of some estimators → type of their elements
_RECORD = "estimator.json"  # public facts that the folder of the model does not have
# Limits on the examples that a fit reads by default: in all, or per row. A fit of 10,000 rows then takes seconds on one core, and
# uses 98 % of the signal of full batches at ε = 1, and 90 % at ε = 3.
_READS, _PASSES = 2.5e5, 25


@dataclass(frozen=True, eq=False)
class Preparation:
    """What a training needs, apart from noise; the plan has no multiplier, and `defaults` are chosen from public facts."""

    schema: Schema
    dataset: DataSet
    task: Task
    plan: Plan
    architecture: Architecture
    defaults: Defaults


class _Fitted:
    guarantee_: Guarantee | SelectionGuarantee | GuaranteeSummary | None
    schema_: Schema
    _by_position: bool  # whether a frame can be fitted and an array predicted, or the reverse


@dataclass(eq=False, repr=False)
class PrivateEstimator(LearnsPrivately, _Fitted, BaseEstimator, ABC):  # type: ignore[misc]
    """What `PrivateClassifier` and `PrivateRegressor` share; see there."""

    epsilon: float = 1.0
    delta: float = 1e-5
    _: KW_ONLY
    feature_bounds: Bounds | None = None
    schema: Schema | str | Path | None = None
    model: str | None = None
    model_options: dict[str, Any] | None = None
    steps: int | None = None
    batch_size: float | None = None
    bound: float | None = None
    learning_rate: float | None = None
    random_state: Any = None
    device: str = "cpu"
    budget: str | Path | Budget | None = None
    directory: str | Path | None = None
    public_rows: bool = False
    purpose: str = ""

    @classmethod
    def load(cls, directory: str | Path, *, device: str = "cpu") -> Any:
        """Return the fitted estimator of a directory, to predict; it reads JSON and safetensors only.

        Its `guarantee_` is the summary of the statement, which is in the directory. It trains on no further private rows.

        Args:
            directory: the directory that it was fitted with, which may be copied to another place.
            device: torch device for predictions.

        Raises:
            InvalidArgumentError: there is no finished fit of this class, or a file is damaged.
        """
        path, saved = Path(directory).expanduser(), read_model(directory, device=device)
        record, schema, network = _read_record(path), saved.schema, saved.description.architecture
        if record.get("kind") != cls.__name__ or schema is None or isinstance(network, str):
            raise InvalidArgumentError("directory", str(path), f"that of a {cls.__name__}", f"It is of {record.get('kind')}.")
        found = cls(**record["settings"], schema=schema, model=network.name, directory=path, device=device)
        for name in _ARRAYS.keys() & record.keys():
            setattr(found, name, np.array(record[name], dtype=_ARRAYS[name]))
        found.n_features_in_, found._by_position = record["n_features_in_"], record["by_position"]
        found.schema_, found.plan_, found.model_ = schema, read_plan(path), saved.module
        found.guarantee_ = None if found.public_rows else saved.guarantee
        found.epsilon_, found.forecast_ = saved.guarantee.epsilon, found._assess(network, found.plan_, saved.module)
        found.mark_spent()
        return found

    def fit(self, X: Any, y: Any) -> Any:  # noqa: N803
        """Train on private rows, and return the estimator.

        Args:
            X: (N, D) array or data frame; one row is one unit of privacy. Numbers outside the bounds are clipped; a missing
                number, or a cell that is none, becomes the middle of its bounds, or what the schema says.
            y: (N,) target. A row with a target that is not declared keeps its place and contributes a gradient of zero.

        Raises:
            InvalidArgumentError: a public fact is missing, or a setting is out of range.
            BudgetExhaustedError: this estimator has trained before, or its budget does not cover the training.

        Warns:
            PrivetWarning: earlier steps of the pipeline learned from the private rows; they are named here and in `guarantee_`.

        Guarantee:
            Shapes, classes, scaling and settings depend on arguments and the number of rows only, no cell raises an exception,
            and the weights are those of a `privet.Training`: `guarantee_` covers the fitted model and all that it predicts.
        """
        prepared = self.prepare(X, y)
        remark = None if self.public_rows else warn_of_pipeline(self)
        plan = self.calibrate(prepared.plan)
        with self.begin(prepared, plan) as training:
            for warning in self._assess(prepared.architecture, training.plan, training.model).warnings:
                warnings.warn(warning, PrivetWarning, stacklevel=2)
            training.run()
            self.adopt(prepared, training)
        if remark is not None and isinstance(self.guarantee_, Guarantee):
            self.guarantee_ = replace(self.guarantee_, not_covered=(remark, *self.guarantee_.not_covered))
        if training.directory is not None:
            public = replace(training.guarantee(), epsilon=math.inf, meaning=tradeoff.NO_PRIVACY, reasons=(_PUBLIC,))
            stated = self.guarantee_ if isinstance(self.guarantee_, Guarantee) else public
            write_guarantee(training.directory, stated)
            write_model(
                training.directory / FOLDER,
                self.model_,
                stated,
                architecture=prepared.architecture,
                target=self.schema_.target,
                task=self.schema_.task,
                schema=self.schema_,
            )
        return self

    def prepare(self, X: Any, y: Any) -> Preparation:  # noqa: N803
        """Return the encoded rows with the plan and the network for them."""
        if self.public_rows and self.budget is not None:
            raise InvalidArgumentError("budget", str(self.budget), "left out for public rows", "They spend nothing.")
        check_device("device", self.device)
        frame = self._read(X, reset=True)
        values = public_facts.read_target(y, frame.rows)
        schema = self._declare(frame, values)
        table = public_facts.with_target(frame, schema, values)
        dataset = DataSet(
            name="the rows given to fit",
            train=to_tensors(schema.encode(table), schema.encode_target(table)),
            test=None,
            classes=None if schema.classes is None else len(schema.classes),
            provenance="",
            schema=schema,
        )
        task = task_of(dataset, schema.priors or None)
        facts: dict[str, Any] = {"task": task.name, "epsilon": self.epsilon, "delta": self.delta}
        name = self.model or choose_model(frame.rows, dataset.input_shape, schema=True, **facts)
        check_task(name, task.name)
        reads = max(_READS, _PASSES * frame.rows)
        chosen = choose_defaults(name, frame.rows, steps=self.steps, batch_size=self.batch_size, reads=reads, **facts)
        plan = Plan(
            examples=frame.rows,
            sampling=Poisson(min(chosen.batch_size, frame.rows)),
            steps=chosen.steps,
            clipping=Flat(chosen.bound if self.bound is None else self.bound),
            delta=self.delta,
            schema=schema,
        )
        options = network_options(name, schema)
        architecture = Architecture(name, dataset.input_shape, task.outputs, options | (self.model_options or {}))
        return Preparation(schema, dataset, task, plan, architecture, chosen)

    def calibrate(self, plan: Plan) -> Plan:
        """Return the plan with the noise for ε; an equal plan was calibrated before in this process at most once."""
        return replace(plan, noise=_calibrated(replace(plan, schema=None), self.epsilon).noise)

    def check_unspent(self) -> Budget | None:
        """Return the budget; without one, refuse a second training on private rows."""
        if self.budget is not None:
            return self.budget if isinstance(self.budget, Budget) else Budget(Path(self.budget))
        if getattr(self, "_spent", False):
            raise BudgetExhaustedError(_REPEATED)
        return None

    def mark_spent(self) -> None:
        """Record that this estimator trains on private rows, which it does once without a budget."""
        self._spent = not self.public_rows

    def begin(self, prepared: Preparation, plan: Plan) -> Training:
        """Return a new training of this estimator, for a plan with noise, unless it has no budget for it."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            architecture = prepared.architecture
            module = models.build(architecture.name, architecture.input_shape, architecture.outputs, **architecture.options)
        module.to(self.device)
        rate = self.learning_rate
        if rate is None:
            rate = choose_learning_rate(plan, architecture.name, task=prepared.task.name, momentum=prepared.defaults.momentum)
        record = {
            "kind": type(self).__name__,
            "by_position": self._by_position,
            "n_features_in_": self.n_features_in_,
            **{name: vars(self)[name].tolist() for name in _ARRAYS if name in vars(self)},
            "settings": {name: getattr(self, name) for name in ("epsilon", "delta", "public_rows", "purpose")},
        }
        files = {} if self.directory is None else {_RECORD: json.dumps(record, default=str) + "\n"}
        training = Training(
            plan,
            module,
            prepared.task.loss,
            torch.optim.SGD(module.parameters(), lr=rate, momentum=prepared.defaults.momentum),
            prepared.dataset.train,
            Storage(self.directory, budget=self.check_unspent(), files=files, purpose=self.purpose),
            physical_batch_size=prepared.defaults.physical_batch_size,
        )
        self.mark_spent()
        return training

    def adopt(self, prepared: Preparation, training: Training, guarantee: SelectionGuarantee | None = None) -> Any:
        """Take over the model of a finished training, and return the estimator; `guarantee` covers its choice, too."""
        self.schema_ = prepared.schema
        self.plan_ = training.plan
        self.model_ = training.model.eval()
        self.forecast_ = self._assess(prepared.architecture, training.plan, training.model)
        stated = guarantee or training.guarantee()
        self.guarantee_ = None if self.public_rows else replace(stated, not_covered=(*stated.not_covered, _NOT_COVERED))
        self.epsilon_ = math.inf if self.guarantee_ is None else self.guarantee_.epsilon
        return self

    def __sklearn_clone__(self) -> Any:
        if not self.public_rows:
            raise InvalidArgumentError("public_rows", False, "True for an estimator that is cloned", _CLONED)
        return super().__sklearn_clone__()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.non_deterministic = True  # noise has no seed, and `random_state` only decides the initial weights
        return tags

    @abstractmethod
    def _target(self, values: Labels, schema: Schema | None) -> Target:
        """Return the declaration of the target from the schema, the arguments, or public rows."""

    def _read(self, rows: Any, *, reset: bool) -> Frame:
        frame = public_facts.read_rows(self, rows, reset=reset, fewest=2 if reset else 1)
        self._by_position = self.schema is None if reset else self._by_position
        return public_facts.read_booleans(frame) if self._by_position else frame

    def _declare(self, frame: Frame, values: Labels) -> Schema:
        if self.schema is not None:
            if self.feature_bounds is not None:
                raise InvalidArgumentError("feature_bounds", self.feature_bounds, "left out with a schema", "It has the bounds.")
            schema = Schema.of(self.schema)
            if schema.user_column is not None:
                fix = "Here, one row is one unit of privacy; train users with `privet train`."
                raise InvalidArgumentError("schema", schema.user_column, "without a column of users", fix)
            self._target(values, schema)
            return schema
        bounds = self.feature_bounds
        if bounds is None and self.public_rows:
            bounds = {name: public_facts.find_range(cells) for name, cells in frame.columns.items()}
        return public_facts.declare_schema(frame, bounds, self._target(values, None))

    def _assess(self, architecture: Architecture, plan: Plan, module: torch.nn.Module) -> Feasibility:
        task = "regression" if plan.schema is None or plan.schema.classes is None else "classification"
        facts: dict[str, Any] = {"task": task, "schema": True, "epsilon": self.epsilon, "delta": self.delta}
        simpler = find_simpler_model(architecture.name, plan.examples, architecture.input_shape, **facts)
        return assess(plan, total_size(module.parameters()), epsilon=self.epsilon, simpler=simpler)

    def _outputs(self, rows: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "model_")
        frame = self._read(rows, reset=False)
        if self._by_position:
            names = [name for name, _ in self.schema_.columns]
            frame = replace(frame, columns=dict(zip(names, frame.columns.values(), strict=True)))
        found: NDArray[np.float64] = compute_outputs(self.model_, self.schema_.encode(frame), self.device).numpy()
        return found


def _read_record(path: Path) -> Mapping[str, Any]:
    """Return what `begin` wrote about the estimator of a directory: all of it is public."""
    try:
        record = from_json(read_text(path / _RECORD))
    except DocumentError as error:
        raise InvalidArgumentError("directory", str(path), "that of a fitted estimator", cause=f"{error}") from None
    if not isinstance(record, dict) or not {"by_position", "n_features_in_", "settings"} <= record.keys():
        raise InvalidArgumentError("the file", str(path / _RECORD), "as it was written", "Copy the directory again.")
    return record


@lru_cache(maxsize=128)
def _calibrated(plan: Plan, epsilon: float) -> Plan:
    return plan.calibrate(epsilon)
