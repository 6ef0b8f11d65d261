"""Options of a training that were left out: chosen from public facts, and noted for the run's files and summary."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from privet import runs
from privet.cli.options import LengthOptions
from privet.data import DataSet
from privet.errors import InvalidArgumentError
from privet.plan import Plan
from privet.plan.mechanism import Epochs
from privet.runs.run import read_setup
from privet.training.directory import read_plan
from privet.tuning import Setting, diagonal
from privet.tuning.defaults import choose_defaults, choose_learning_rate, choose_model

_Value = TypeVar("_Value")
# Schemes whose batch may be the whole data set; others need several batches.
_WHOLE, _FEWEST_BATCHES = ("poisson", "full-batch"), 10
# Optimizers that the scaling rule is known for → its case.
_SCALED = {
    "sgd": "sgd", "heavy-ball": "sgd", "nesterov": "sgd", "adam": "adam", "adamw": "adam", "adam-uncorrected": "adam",
}  # fmt: skip


class Choice:
    """Chooses what was left out by public facts, and keeps its name and value in `values`; what was given is returned as it is.

    Of the data, only size, shape, task and schema are used. The usual values for data and model are in `usual`; `names` has the
    option of a command that calls a setting of `privet train` by another name.
    """

    def __init__(
        self, dataset: DataSet, model: str | None, epsilon: float | None, delta: float, names: Mapping[str, str] | None = None
    ) -> None:
        self._names = names or {}
        self.values: dict[str, str | float] = {}
        self.task = "regression" if dataset.classes is None else "classification"
        self.epsilon, self.delta = epsilon, delta
        usual = choose_model(
            len(dataset.train), dataset.input_shape, task=self.task, schema=dataset.schema is not None, epsilon=epsilon,
            delta=delta,
        )  # fmt: skip
        self.model = self.pick("model", model, usual)
        self._defaults = partial(choose_defaults, self.model, task=self.task, epsilon=epsilon, delta=delta)
        self.usual = self._defaults(len(dataset.train))

    def lengths(
        self, examples: int, given: LengthOptions, *, fixed_noise: bool = False, most: float = math.inf
    ) -> tuple[float, int | Epochs | None]:
        """Return the expected batch size, at most `most`, and steps or epochs; None if budget and given noise decide on them."""
        full = float(examples) if given.sampling == "full-batch" else None
        found = self._defaults(examples, steps=given.steps, epochs=given.epochs, batch_size=given.batch_size or full)
        largest = math.inf if given.sampling in _WHOLE else max(1, examples // _FEWEST_BATCHES)
        chosen = self.pick("batch_size", given.batch_size, min(found.batch_size, most, largest))
        known = given.steps if given.epochs is None else Epochs(given.epochs)
        open_steps = fixed_noise and self.epsilon is not None
        return chosen, known if known is not None or open_steps else self.pick("steps", None, found.steps)

    def learning_rate(self, given: float | None, setup: runs.Setup, plan: Plan, source: Path | None = None) -> float:
        """Return the learning rate for a calibrated plan: by default, or that of the run in `source` by the scaling rule."""
        if source is not None:
            self.values["learning_rate"] = rate = _scale_rate(source, setup, plan)
            self.values["scaled_from"] = str(source)
            return rate
        usual = choose_learning_rate(plan, self.model, task=self.task, optimizer=setup.optimizer, momentum=setup.momentum)
        return self.pick("learning_rate", given, usual)

    def pick(self, name: str, given: _Value | None, usual: _Value) -> _Value:
        """Return what was given, or else the usual value, which is noted under this name."""
        if given is not None:
            return given
        self.values[self._names.get(name, name)] = usual  # type: ignore[assignment]
        return usual


def _scale_rate(source: Path, setup: runs.Setup, plan: Plan) -> float:
    """Return the rate with which the noise moves the parameters as in another run.

    The rule knows bounds, momenta and noise multipliers. Whatever else changes the sum of the noise has to be the same.
    """
    base_setup, base = read_setup(source), read_plan(source)
    if setup.optimizer not in _SCALED:
        raise InvalidArgumentError("--optimizer", setup.optimizer, f"with --scale-from, one of {', '.join(_SCALED)}")
    old, new = _fixed(base_setup, base), _fixed(setup, plan)
    for name, value in new.items():
        if value != old[name]:
            fix = f"It has {old[name]}, and the rule covers bound, momentum and noise only."
            raise InvalidArgumentError("--scale-from", str(source), f"a run with the {name} of this one, {value}", fix)
    (found,) = diagonal(
        Setting(base_setup.learning_rate, base.clipping.sensitivity, base_setup.momentum, base.noise_multiplier),
        bounds=(plan.clipping.sensitivity,), momenta=(setup.momentum,), noise_multipliers=(plan.noise_multiplier,),
        optimizer=_SCALED[setup.optimizer],
    )  # fmt: skip
    return found.learning_rate


def _fixed(setup: runs.Setup, plan: Plan) -> dict[str, Any]:
    """Return name → what two runs must have in common for the scaling rule."""
    return {
        "optimizer": setup.optimizer,
        "kind of noise": type(plan.noise).__name__,
        "expected batch size": plan.sampling.expected_batch_size(plan.examples),
        "number of steps": plan.total_steps,
        "bound schedule": plan.bound_schedule,
        "momentum of gradients": plan.momentum,
        "sparsification": plan.sparsification,
        "embeddings": plan.embeddings,
    }
