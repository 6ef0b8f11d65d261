"""What is asked of somebody's own model, loss and data about sums: ORACLE, SENS and NOISE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from privet._utils.randomness import generators_kept
from privet.audit.checks import Check, certain
from privet.audit.mechanism import noise
from privet.audit.observations import Noise
from privet.audit.program import oracle
from privet.audit.program.adversarial import contents
from privet.audit.program.subject import Batches, Items, Subject, cast, clone
from privet.clipping import Flat, Projected, Rule
from privet.clipping.clipped_sum import ClippedSum
from privet.gradients import empty_sum, trainable
from privet.reading.batches import BatchDataset
from privet.reading.tables import build_table

_Numbered = tuple[int, Any]

# Of double precision on models of some depth, of single precision, and of lower ones or those that cannot be asked.
_TOLERANCE, _SINGLE, _LOOSE = 1e-7, 1e-3, 3e-2
# Of the shrinking of every contribution; of sums in single precision.
_SLACK, _SINGLE_SLACK = 1e-6, 1e-4
_UNCLIPPED = 1e6  # times the longest gradient
_MOVED = 8  # examples among which one is changed
_LEFT_OUT = 3  # of them that are left out in turn
_COORDINATES = 1 << 20  # of a model whose noise is looked at


def oracle_checks(subject: Subject) -> list[Check]:
    """Return whether what a training's optimizer is handed is the sum that a plain loop over examples finds.

    Raises:
        UnsupportedModelError: training would refuse the program.
    """
    method = subject.method
    if subject.is_random:
        return [certain("a plain loop is not asked", f"{method!r}; random even in evaluation mode", holds=True)]
    own, dtype = subject.steady(), subject.precise
    rule, found = subject.rule, []
    expected, failed = _each(subject, None)
    tolerance = _LOOSE
    if dtype is not None:
        precise, _ = _each(subject, dtype)
        model = subject.steady(dtype)
        wide = Flat(_UNCLIPPED * max(1.0, float(oracle.norms_of(precise).max())))
        for name, each in (("gradients are those", wide), ("the clipped sum is that", rule)):
            if not isinstance(each, Projected):
                total = subject.sum_of(model, subject.few, each, dtype=dtype).tensors
                found.append(_close(f"{name} of plain autograd", _error(precise, total, each), _TOLERANCE))
        rounding = oracle.relative_error_per_example(expected, precise)
        tolerance = min(max(_SINGLE, 3 * rounding), 0.1)
    if not isinstance(rule, Projected):
        handed = subject.first_step(own, silent=True)
        remark = f"; {failed} of {len(subject.indices)} examples raise, and contribute zero" if failed else ""
        found.append(_close("the optimizer is handed that sum", _error(expected, handed, rule), tolerance, remark))
    return found


def _each(subject: Subject, dtype: torch.dtype | None) -> tuple[dict[str, Tensor], int]:
    batches = [clone(batch if dtype is None else cast(batch, dtype)) for batch in subject.alone]
    with generators_kept():
        return oracle.gradients_of_each(subject.steady(dtype), subject.loss_fn, batches)


def _error(gradients: Mapping[str, Tensor], total: Mapping[str, Tensor], rule: Rule) -> float:
    """Return how far a sum is from what it should be, relative to the longest contribution to it."""
    longest = max(oracle.size(oracle.weighted_sum(_only(gradients, i), rule)) for i in range(_number(gradients)))
    return oracle.distance({name: total[name] for name in gradients}, oracle.weighted_sum(gradients, rule)) / (longest or 1.0)


def _only(gradients: Mapping[str, Tensor], position: int) -> dict[str, Tensor]:
    return {name: value[position : position + 1] for name, value in gradients.items()}


def _number(gradients: Mapping[str, Tensor]) -> int:
    return len(next(iter(gradients.values())))


def _close(name: str, error: float, tolerance: float, remark: str = "") -> Check:
    return certain(name, f"relative error {error:.1e}{remark}", holds=error <= tolerance)


def sensitivity_checks(subject: Subject) -> list[Check]:
    """Return whether one of the examples, also with contents that no data set should have, moves the sum by what it may.

    Everything is read and summed as training does it, in float64 where the model can. Of a program that is random by itself the
    sum over one example is looked at, as others would differ by chance.

    Raises:
        UnsupportedModelError: training would refuse the program.
    """
    rule = subject.rule
    if isinstance(rule, Projected):
        return []
    dtype = subject.precise
    model, slack = subject.steady(dtype), _SINGLE_SLACK if dtype is None else _SLACK
    batched = isinstance(subject.few, BatchDataset)
    items = list(enumerate(_items(subject)[:_MOVED]))

    def summed(some: list[_Numbered]) -> ClippedSum:
        return subject.sum_of(model, _data(subject, some), rule, dtype=dtype) if some else empty_sum(trainable(model), rule)

    others = [] if subject.is_random else items[1:]
    rest, found = summed(others), []
    for kind, item in contents([item for _, item in items], batched=batched):
        moved = oracle.moved(summed([(0, item), *others]), rest) / rule.sensitivity
        found.append(_within(f"an example that is {kind}", moved, slack))
    if subject.is_random:
        return found
    whole = summed(items)
    found.append(
        _within("an example that is there twice", oracle.moved(summed([items[0], *items]), whole) / rule.sensitivity, slack)
    )
    left = max(
        _left_by_others(whole, summed([*items[:i], *items[i + 1 :]]), summed([items[i]])) / rule.sensitivity
        for i in range(min(_LEFT_OUT, len(items)))
    )
    found.append(certain("what the others contribute", f"differs by {left:.1e} without one of them", holds=left <= slack))
    return found


def _left_by_others(whole: ClippedSum, rest: ClippedSum, one: ClippedSum) -> float:
    """Return how far the sum without an example is from the whole less what that example contributes alone."""
    scales = whole.noise_scales
    return oracle.size({
        name: (value.double() - rest.tensors[name].double() - one.tensors[name].double()) / scales.get(name, 1.0)
        for name, value in whole.tensors.items()
    })  # fmt: skip


def _within(name: str, moved: float, slack: float) -> Check:
    return certain(name, f"moves the sum by {moved:.6g} of what it may", holds=moved <= 1 + slack)


def _items(subject: Subject) -> list[Any]:
    """Return the examples that are looked at as the data set gives them; batches of one if it makes its batches itself."""
    few, positions = subject.few, range(len(subject.indices))
    if isinstance(few, BatchDataset):
        return [subject.batch_of(few, position) for position in positions]
    with generators_kept():
        return [clone(few[position]) for position in positions]


def _data(subject: Subject, numbered: list[_Numbered]) -> Dataset[Any]:
    """Return items, each with a seed, as a data set that is read as the subject's own is."""
    unit, items = subject.plan.unit, [item for _, item in numbered]
    if isinstance(subject.few, BatchDataset):
        return Batches(items, unit)
    if (
        subject.collate is None
        and build_table(subject.few) is not None
        and len({tuple(leaf.shape for leaf in x) for x in items}) == 1
    ):
        return TensorDataset(*(torch.stack(column) for column in zip(*items, strict=True)))
    return Items(items, [seed for seed, _ in numbered], unit)


def noise_checks(subject: Subject) -> list[Check]:
    """Return whether every parameter of the model gets the plan's noise: of two first steps, less what is summed in them.

    Raises:
        UnsupportedModelError: training would refuse the program.
    """
    if subject.is_random:
        return [certain("noise is told from what is summed", "not asked: random even in evaluation mode", holds=True)]
    quiet, *loud = (subject.first_step(subject.steady(), silent=silent) for silent in (True, False, False))
    plan, rule = subject.first_step_plan(silent=False), subject.rule
    names = tuple(quiet)
    scales = rule.noise_scales(names)
    common = float(plan.multipliers()[0]) * rule.sensitivity
    each = max(1, _COORDINATES // len(names))
    parts = {
        name: np.stack([
            ((one[name] - quiet[name]).flatten()[:each] / (common * scales.get(name, 1.0))).cpu().numpy() for one in loud
        ])
        for name in names
    }  # fmt: skip
    ends = np.cumsum([part.shape[1] for part in parts.values()]).tolist()
    places = {name: slice(end - part.shape[1], end) for end, (name, part) in zip(ends, parts.items(), strict=True)}
    values = np.concatenate(list(parts.values()), axis=1)
    return noise.checks(Noise(values, np.ones(values.shape, dtype=bool), places))
