"""Options of a training that were left out: chosen from public facts, and noted for the run's files and summary."""

from __future__ import annotations

__all__ = ["Choice"]

import math
from typing import TypeVar

from privet import runs
from privet.cli import parts
from privet.data import DataSet
from privet.momentum import InnerOuter, Momentum
from privet.plan import Epochs, Plan
from privet.tuning.defaults import Defaults, choose_defaults, choose_learning_rate, choose_model

_Value = TypeVar("_Value")
# Schemes whose batch may be the whole data set; others need several batches.
_WHOLE, _FEWEST_BATCHES = ("poisson", "full-batch"), 10


class Choice:
    """Chooses what was left out, and keeps its name and value in `values`; what was given is returned as it is.

    Args:
        dataset: the data, of which only size, shape, task and schema are used; all of them are public.
        model: name of the network, if it is given.
        epsilon: target ε, if it is given.
        delta: δ.
    """

    def __init__(self, dataset: DataSet, model: str | None, epsilon: float | None, delta: float) -> None:
        self.values: dict[str, str | float] = {}
        self.task = "regression" if dataset.classes is None else "classification"
        self.epsilon, self.delta = epsilon, delta
        usual = choose_model(
            len(dataset.train),
            dataset.input_shape,
            task=self.task,
            schema=dataset.schema is not None,
            epsilon=epsilon,
            delta=delta,
        )
        self.model = self._pick("model", model, usual)
        self._usual = self._defaults(len(dataset.train))

    def bound(self, given: float | None) -> float:
        """Return the clip bound."""
        return self._pick("bound", given, self._usual.bound)

    def physical_batch_size(self, given: int | None) -> int:
        """Return the number of examples that go through the model at once; it does not change the result."""
        return self._usual.physical_batch_size if given is None else given

    def momentum(self, given: float | None, private: Momentum | None) -> float:
        """Return the optimizer's momentum; none in addition to momentum of released gradients."""
        return self._pick("momentum", given, 0.0 if isinstance(private, InnerOuter) else self._usual.momentum)

    def lengths(
        self,
        examples: int,
        sampling: str,
        *,
        batch_size: float | None,
        steps: int | None,
        epochs: float | None,
        fixed_noise: bool,
        most: float = math.inf,
    ) -> tuple[float, int | Epochs | None]:
        """Return the expected batch size, and steps or epochs, or None if the budget and given noise decide on the steps.

        A batch size that is chosen here is at most `most`.
        """
        given = parts.length(steps, epochs, needed=False)
        open_steps = fixed_noise and self.epsilon is not None
        whole = float(examples) if sampling == "full-batch" else None
        found = self._defaults(examples, steps=steps, epochs=epochs, batch_size=whole if batch_size is None else batch_size)
        size = found.batch_size
        if sampling not in _WHOLE and batch_size is None:
            size = min(size, max(1, examples // _FEWEST_BATCHES))
        if batch_size is None:
            size = min(size, most)
        size = self._pick("batch_size", batch_size, size)
        return size, given if given is not None or open_steps else self._pick("steps", None, found.steps)

    def learning_rate(self, given: float | None, setup: runs.Setup, plan: Plan) -> float:
        """Return the learning rate for a calibrated plan."""
        usual = choose_learning_rate(plan, self.model, task=self.task, optimizer=setup.optimizer, momentum=setup.momentum)
        return self._pick("learning_rate", given, usual)

    def _defaults(
        self, examples: int, *, steps: int | None = None, epochs: float | None = None, batch_size: float | None = None
    ) -> Defaults:
        return choose_defaults(
            self.model, examples, task=self.task, epsilon=self.epsilon, delta=self.delta, steps=steps, epochs=epochs,
            batch_size=batch_size,
        )  # fmt: skip

    def _pick(self, name: str, given: _Value | None, usual: _Value) -> _Value:
        if given is not None:
            return given
        self.values[name] = usual  # type: ignore[assignment]
        return usual
