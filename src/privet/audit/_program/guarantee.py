"""Checks of a user's model, loss, data and plan before training."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.utils.data import Dataset

from privet.audit._mechanism.whitebox import MechanismAudit, mechanism
from privet.audit._program import isolation, sums
from privet.audit._program.program import AuditedProgram
from privet.audit.checks import Certificate, Check, add_prefix, deterministic_check, find_rejected, table
from privet.clipping import Flat
from privet.collate import Collate
from privet.errors import InvalidArgumentError, PrivetError
from privet.gradients.core.examples import count_examples
from privet.gradients.core.losses import LossFunction
from privet.plan import Plan
from privet.reading.batches import check_map_style
from privet.sampling import Poisson

# Families of checks of the model, in the order of their execution.
FAMILIES: dict[str, Callable[[AuditedProgram], list[Check]]] = {
    "ORACLE": sums.oracle_checks,
    "ISOLATION": isolation.isolation_checks,
    "SENS": sums.sensitivity_checks,
    "NOISE": sums.noise_checks,
}


@dataclass(frozen=True)
class GuaranteeCheck(Certificate):
    """The result of checking a model, a loss, examples and a plan.

    Args:
        checks: checks of the model, by family: ORACLE, ISOLATION, SENS, NOISE.
        failed: names of the failed checks of the model.
        mechanism: the audit of the plan's mechanism: SENS, NOISE, SAMPLER and AUDIT.
        seconds: duration of the checks.
    """

    checks: tuple[Check, ...]
    failed: tuple[str, ...]
    mechanism: MechanismAudit
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether all checks of the model and the mechanism passed."""
        return not self.failed and self.mechanism.passed

    def __str__(self) -> str:
        own = [f"{self._verdict}: model, loss and examples.", "", *table(self.checks, self.failed)]
        return "\n".join([*own, "", "The plan's mechanism:", "", str(self.mechanism)])

    def to_dict(self) -> dict[str, Any]:
        """Return the result as values for JSON."""
        mechanism = self.mechanism.to_dict()
        bounds = {name: mechanism[name] for name in ("epsilon_lower_bound", "epsilon_claimed")}
        return bounds | super().to_dict() | {"mechanism": mechanism}


def check(
    model: nn.Module,
    loss_fn: LossFunction,
    batch: Any = None,
    plan: Plan | None = None,
    *,
    dataset: Dataset[Any] | None = None,
    collate: Collate | None = None,
    probe_batch: Any = None,
    observations: int = 200_000,
    progress: Callable[[str], object] | None = None,
) -> GuaranteeCheck:
    """Check a model, a loss and data for what training by the plan relies on, and audit the plan's mechanism.

    Pass the data set and collate function for training: only they show how several examples are processed together.

    Args:
        model: the model, in the mode for training; it is copied, not changed.
        loss_fn: (model, batch) → (B,) losses.
        batch: at least two examples, instead of a data set. The collate function cannot be checked.
        plan: plan with its noise; None for a typical plan, with a data set only.
        dataset: map-style data set of the plan's size, with at least two examples. At most sixteen of them, evenly spaced, are
            used.
        collate, probe_batch: as for `privet.Training`.
        observations: as for `mechanism`.
        progress: called with the name of each part before it starts.

    The result depends on the examples without noise: use public ones, or keep the result private.

    Raises:
        InvalidArgumentError: an argument is out of range.
    """
    started, report = time.monotonic(), progress or (lambda part: None)
    if (batch is None) == (dataset is None):
        given = "neither" if batch is None else "both"
        raise InvalidArgumentError(
            "batch", f"{given} of batch and dataset", "one of the two", "Prefer the data set, which allows more checks."
        )
    if batch is not None and plan is None:
        raise InvalidArgumentError("plan", None, "a privet.Plan, with a batch", "Without a data set, its size is unknown.")
    if batch is not None and collate is not None:
        raise InvalidArgumentError("collate", collate, "left out with a batch", "Give the data set for which it is meant.")
    number = count_examples(batch) if dataset is None else check_map_style(dataset)
    if number < 2:
        name = "dataset" if batch is None else "batch"
        raise InvalidArgumentError(name, number, "at least two examples", "The checks compare an example with others.")
    program = AuditedProgram(model, loss_fn, plan or usual_plan(number), dataset, collate, batch, probe_batch)
    found: list[Check] = []
    for family in FAMILIES:
        report(family)
        found += run_family(program, family)
    audited = mechanism(program.plan, names=program.names or None, observations=observations, progress=progress)
    return GuaranteeCheck(tuple(found), find_rejected(found), audited, time.monotonic() - started)


def run_family(program: AuditedProgram, family: str) -> list[Check]:
    """Return the checks of one family; if any fails, they are repeated once, as a check may fail by chance."""
    try:
        found = FAMILIES[family](program)
        if find_rejected(found):
            found = FAMILIES[family](program)
    except PrivetError as error:
        found = [deterministic_check("the model can be trained", str(error), holds=False)]
    return add_prefix(family, found)


def usual_plan(examples: int, epsilon: float = 3.0) -> Plan:
    """Return a typical plan: ten batches per epoch, a hundred epochs.

    Args:
        examples: number of examples, ≥ 20.
        epsilon: target ε of the calibration.
    """
    return Plan(
        examples=examples, sampling=Poisson(batch_size=examples / 10), steps=1000, clipping=Flat(1.0), delta=0.1 / examples
    ).calibrate(epsilon)
