"""A study of a training: its user shows it the model between steps, and it keeps what it saw."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import nn

from privet._utils.files import write_text
from privet.errors import InvalidArgumentError, count, positive
from privet.evaluation.studies.gradients import Observation, observe
from privet.evaluation.studies.marking import WARNING
from privet.evaluation.studies.mechanism import Mechanism
from privet.gradients.core.examples import count_examples
from privet.gradients.core.losses import LossFunction
from privet.plan import Plan

FILE = "study.json"


class Study:
    """Observes the gradients of a probe batch while a model trains. What it keeps is NOT PRIVATE.

    A training never calls it, so nothing is observed that its user did not ask for; and what was observed takes no part in the
    training, whose parameters, gradients and random numbers it leaves alone. If the probe batch is private, the observations are
    a release outside the guarantee: keep them with the data.

    Args:
        plan: of the training; says how gradients are clipped and how much noise their mean gets at every step.
        model: that is trained.
        loss_fn: (model, batch) → (B,) losses.
        probe: a batch of at least one example, the same at every look; better public, or at least not needed for anything else.
        every: steps between looks, ≥ 1.

    Raises:
        InvalidArgumentError: an argument is out of range, or the plan's rule adapts its bound, which the plan does not know.

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
    NOT PRIVATE: computed from raw gradients. 3 looks at 30 examples, steps 2 to 6
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
        """Look at the model after a step, if it is one of those that are looked at.

        Args:
            step: `Step.number` of the step that was taken.
        """
        if step % self._every == 0:
            mechanism = Mechanism.of(self._plan, step)
            found = observe(self._model, self._loss_fn, self._probe, mechanism, step=step, seed=step)
            self.observations.append(found)

    def of_last_epochs(self, epochs: float = 10) -> tuple[Observation, ...]:
        """Return the observations of the last so many epochs of the plan."""
        steps = positive("epochs", epochs) / self._plan.sampling_rate
        return tuple(one for one in self.observations if one.step > self._plan.total_steps - steps)

    def save(self, directory: str | Path) -> Path:
        """Write the observations into a run's directory as `study.json`, where its report finds them.

        Whoever passes the run on has to leave the file and the report out: the file says so, and the report too.
        """
        content = {"private": False, "warning": WARNING, "observations": [one.to_dict() for one in self.observations]}
        return write_text(Path(directory) / FILE, json.dumps(content, allow_nan=False) + "\n")

    def __repr__(self) -> str:
        seen = self.observations
        steps = f", steps {seen[0].step} to {seen[-1].step}" if seen else ""
        return f"{WARNING}. {len(seen)} looks at {count_examples(self._probe)} examples{steps}"


def read_observations(content: Any) -> tuple[Observation, ...]:
    """Return the observations in what `Study.save` wrote, parsed from JSON."""
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
