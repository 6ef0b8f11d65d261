"""Everything that can be asked about a training before it begins, on the user's own model, loss and data."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn
from torch.utils.data import Dataset

from privet.audit.checks import Check, certain
from privet.audit.mechanism.whitebox import ALPHA, MechanismAudit, mechanism
from privet.audit.program import isolation, model_checks
from privet.audit.program.subject import Subject
from privet.audit.reporting import table, verdict
from privet.clipping import Flat
from privet.collate import Collate
from privet.errors import InvalidArgumentError, PrivetError
from privet.gradients.core.losses import LossFunction
from privet.plan import Plan
from privet.reading.batches import check_map_style
from privet.sampling import Poisson

_OBSERVATIONS = 200_000
# What is asked of the model, in the order in which it is asked.
FAMILIES: dict[str, Callable[[Subject], list[Check]]] = {
    "ORACLE": model_checks.oracle_checks,
    "ISOLATION": isolation.isolation_checks,
    "SENS": model_checks.sensitivity_checks,
    "NOISE": model_checks.noise_checks,
}


@dataclass(frozen=True)
class GuaranteeCheck:
    """What was found about a model, a loss, examples and a plan.

    Args:
        checks: of the model, by family: ORACLE, ISOLATION, SENS, NOISE.
        failed: names of those that failed.
        mechanism: the audit of the plan's mechanism: SENS, NOISE, SAMPLER and AUDIT.
        seconds: it took.
    """

    checks: tuple[Check, ...]
    failed: tuple[str, ...]
    mechanism: MechanismAudit
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against training this model by this plan."""
        return not self.failed and self.mechanism.passed

    def __str__(self) -> str:
        return "\n".join([
            f"{verdict(self.passed)}: model, loss and examples.",
            "",
            *table(self.checks, self.failed),
            "",
            "The plan's mechanism:",
            "",
            str(self.mechanism),
        ])  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON values."""
        return {
            "passed": self.passed,
            "epsilon_lower_bound": self.mechanism.to_dict()["epsilon_lower_bound"],
            "epsilon_claimed": self.mechanism.epsilon_claimed,
            **asdict(self),
            "mechanism": self.mechanism.to_dict(),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the result as one JSON object."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)


def check(
    model: nn.Module,
    loss_fn: LossFunction,
    batch: Any = None,
    plan: Plan | None = None,
    *,
    dataset: Dataset[Any] | None = None,
    collate: Collate | None = None,
    probe_batch: Any = None,
    observations: int = _OBSERVATIONS,
    progress: Callable[[str], object] | None = None,
) -> GuaranteeCheck:
    """Ask of a model, a loss and data what a training by the plan relies on, and audit the plan's mechanism.

    Give the data set and collate that training is to be given: what they do to several examples at once shows nowhere else.

    Args:
        model: in the mode in which it is to be trained; it is copied, not changed.
        loss_fn: (model, batch) → (B,) losses.
        batch: at least two examples, in the place of a data set. What collate did to them is not asked.
        plan: with its noise; for a data set, a usual one if None.
        dataset: map-style, at least two examples, of the plan's size. At most sixteen, spread over it, are looked at.
        collate, probe_batch: as for `privet.Training`.
        observations: as for `mechanism`.
        progress: called with the name of every part before it begins.

    What is found says something about the examples that are looked at, so they should be public, or the result kept.

    Raises:
        InvalidArgumentError: an argument is out of range.
    """
    started, tell = time.monotonic(), progress or (lambda part: None)
    subject = subject_of(model, loss_fn, plan, batch, dataset, collate, probe_batch)
    found: list[Check] = []
    for family in FAMILIES:
        tell(family)
        found += family_checks(subject, family)
    audited = mechanism(subject.plan, names=subject.names or None, observations=observations, progress=progress)
    failed = rejected(found)
    return GuaranteeCheck(tuple(found), failed, audited, time.monotonic() - started)


def subject_of(
    model: nn.Module,
    loss_fn: LossFunction,
    plan: Plan | None,
    batch: Any = None,
    dataset: Dataset[Any] | None = None,
    collate: Collate | None = None,
    probe_batch: Any = None,
) -> Subject:
    """Return what is asked about; the arguments are those of `check`.

    Raises:
        InvalidArgumentError: there are not both or neither of batch and data set, or fewer than two examples.
    """
    if (batch is None) == (dataset is None):
        given = "neither" if batch is None else "both"
        raise InvalidArgumentError("batch", f"{given} of batch and dataset", "one of the two", "The data set shows more.")
    if batch is not None:
        if plan is None:
            raise InvalidArgumentError("plan", None, "a privet.Plan, with a batch", "A data set would tell its size.")
        if collate is not None:
            raise InvalidArgumentError("collate", collate, "left out with a batch", "Give the data set, which it is called with.")
        subject = Subject.of_batch(model, loss_fn, batch, plan, probe_batch)
        number = check_map_style(subject.dataset)
    else:
        number = check_map_style(dataset)
        assert dataset is not None
        subject = Subject(model, loss_fn, dataset, plan or usual_plan(number), collate, probe_batch=probe_batch)
    if number < 2:
        name = "dataset" if batch is None else "batch"
        raise InvalidArgumentError(name, number, "at least two examples", "One is left out, the others stay.")
    return subject


def family_checks(subject: Subject, family: str) -> list[Check]:
    """Return the checks of one family; what chance alone could have rejected is asked once more."""
    found = _asked(subject, family)
    return _asked(subject, family) if rejected(found) else found


def rejected(checks: list[Check]) -> tuple[str, ...]:
    """Return the names of the checks that fail, which right code does with chance `ALPHA` at most."""
    return tuple(check.name for check in checks if not check.p_value >= ALPHA / len(checks))


def _asked(subject: Subject, family: str) -> list[Check]:
    try:
        found = FAMILIES[family](subject)
    except PrivetError as error:
        found = [certain("the model can be trained", str(error), holds=False)]
    return [Check(f"{family}: {check.name}", check.finding, check.p_value) for check in found]


def usual_plan(examples: int, epsilon: float = 3.0) -> Plan:
    """Return a plan for so many examples where none was given: ten batches an epoch, a hundred epochs.

    Args:
        examples: of the data set, ≥ 20.
        epsilon: that it is calibrated to.
    """
    return Plan(
        examples=examples, sampling=Poisson(batch_size=examples / 10), steps=1000, clipping=Flat(1.0), delta=0.1 / examples
    ).calibrate(epsilon)
