"""Study of gradients during training: the user calls it between steps, and it records observations."""

from __future__ import annotations

__all__ = ["FILE", "Study", "read_observations"]

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import nn

from privet._utils.files import write_text
from privet.errors import InvalidArgumentError, count, positive
from privet.gradients.core.examples import count_examples
from privet.gradients.core.losses import LossFunction
from privet.plan import Plan
from privet_experiments.studies.gradients import Observation, observe
from privet_experiments.studies.marking import WARNING
from privet_experiments.studies.mechanism import Mechanism

FILE = "study.json"


class Study:
    """Record the gradients of a probe batch during training. The observations are NOT PRIVATE.

    Training never calls a study: nothing is observed unless the user calls `look`, and observations change neither parameters,
    gradients nor random numbers of the training. If the probe batch is private, the observations are a release outside the
    guarantee: store them with the data.

    Args:
        plan: plan of the training, which determines clipping and noise at each step.
        model: the model in training.
        loss_fn: (model, batch) → (B,) losses.
        probe: a batch of at least one example, used at every observation; preferably public.
        every: number of steps between observations, ≥ 1.

    Raises:
        InvalidArgumentError: an argument is out of range, or the plan's rule adapts its bound during training, so the plan does
            not determine it.

    >>> import torch, privet
    >>> data = torch.utils.data.TensorDataset(torch.randn(60, 3), torch.randn(60))
    >>> model = torch.nn.Linear(3, 1)
    >>> def loss_fn(model, batch):
    ...     return (model(batch[0])[:, 0] - batch[1]).square()
    >>> plan = privet.Plan(
    ...     examples=60, sampling=privet.sampling.Poisson(batch_size=20), steps=6, delta=1e-5,
    ...     clipping=privet.clipping.Flat(bound=0.5), noise=privet.noise.Gaussian(multiplier=2.0),
    ... )
    >>> study = Study(plan, model, loss_fn, data[:30], every=2)
    >>> for step in privet.Training(plan, model, loss_fn, torch.optim.SGD(model.parameters(), lr=0.1), data):
    ...     study.look(step.number)
    >>> study
    NOT PRIVATE: computed from raw gradients. 3 observations of 30 examples, steps 2 to 6
    """

    def __init__(self, plan: Plan, model: nn.Module, loss_fn: LossFunction, probe: Any, *, every: int = 1) -> None:
        Mechanism.of(plan)
        if count_examples(probe) == 0:
            raise InvalidArgumentError("probe", "empty", "a batch of at least one example")
        self._plan, self._model, self._loss_fn, self._probe = plan, model, loss_fn, probe
        self._every = count("every", every)
        self.observations: list[Observation] = []

    @property
    def private(self) -> bool:
        """False, always."""
        return False

    def look(self, step: int) -> None:
        """Observe the model after a step (`Step.number`), if the number is a multiple of `every`."""
        if step % self._every == 0:
            mechanism = Mechanism.of(self._plan, step)
            found = observe(self._model, self._loss_fn, self._probe, mechanism, step=step, seed=step)
            self.observations.append(found)

    def of_last_epochs(self, epochs: float = 10) -> tuple[Observation, ...]:
        """Return the observations in the last `epochs` epochs of the plan."""
        steps = positive("epochs", epochs) / self._plan.sampling_rate
        return tuple(one for one in self.observations if one.step > self._plan.total_steps - steps)

    def save(self, directory: str | Path) -> Path:
        """Write the observations into a run's directory as `study.json`, which its report lists as unprotected.

        Do not share this file with the run; it is marked as not private.
        """
        content = {"private": False, "warning": WARNING, "observations": [one.to_dict() for one in self.observations]}
        return write_text(Path(directory) / FILE, json.dumps(content, allow_nan=False) + "\n")

    def __repr__(self) -> str:
        seen = self.observations
        steps = f", steps {seen[0].step} to {seen[-1].step}" if seen else ""
        return f"{WARNING}. {len(seen)} observations of {count_examples(self._probe)} examples{steps}"


def read_observations(content: Any) -> tuple[Observation, ...]:
    """Return the observations from the parsed JSON of `study.json`."""
    rows: Iterable[Any] = content["observations"]
    return tuple(
        Observation(
            step=int(row["step"]),
            norms=tuple(map(float, row["norms"])),
            signal_to_noise={name: float(value) for name, value in row["signal_to_noise"].items()},
            **{name: float(row[name]) for name in _NUMBERS},
        )
        for row in rows
    )


_NUMBERS = ("gradient_norm", "mean_weight", "clipped_share", "clipped_similarity", "noised_similarity")
