"""Checks of the clipped sums of a user's model, loss and data: ORACLE, SENS and NOISE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from privet._utils.randomness import preserve_generators
from privet.audit._mechanism import noise
from privet.audit._program import oracle
from privet.audit._program.adversarial import variants
from privet.audit._program.audited_program import AuditedProgram, Batches, Items, cast, clone
from privet.audit.checks import Check, deterministic_check
from privet.audit.observations import Noise
from privet.clipping import Flat, Projected, Rule
from privet.clipping.clipped_sum import ClippedSum
from privet.gradients import empty_sum, trainable
from privet.reading.batches import BatchDataset
from privet.reading.tables import build_table

_Numbered = tuple[int, Any]

# Relative tolerances for deep models in double precision, in single precision, and in lower or unknown precision.
_TOLERANCE, _SINGLE, _LOOSE = 1e-7, 1e-3, 3e-2
# Tolerances of the sensitivity in double and in single precision.
_SLACK, _SINGLE_SLACK = 1e-6, 1e-4
_UNCLIPPED = 1e6  # factor of a bound above the largest gradient
_RAISING = 8  # one of this many examples that raises is too many: the program, not an odd row, is at fault
_MOVED = 8  # number of examples, of which one is changed
_LEFT_OUT = 3  # number of examples that are left out in turn
_COORDINATES = 1 << 20  # largest number of coordinates of a model whose noise is checked


def oracle_checks(subject: AuditedProgram) -> list[Check]:
    """Check that the sum that the optimizer receives equals the sum of a plain loop over examples.

    Raises:
        UnsupportedModelError: training would refuse the program.
    """
    method = subject.method
    if subject.is_random:
        finding = f"{method!r}; random even in evaluation mode"
        return [deterministic_check("comparison with a plain loop is left out", finding, holds=True)]
    own, dtype = subject.without_dropout(), subject.precise_dtype
    rule, found = subject.rule, []
    expected, failed = _plain_gradients(subject, None)
    tolerance = _LOOSE
    if dtype is not None:
        precise, _ = _plain_gradients(subject, dtype)
        model = subject.without_dropout(dtype)
        wide = Flat(_UNCLIPPED * max(1.0, float(oracle.norms_of(precise).max())))
        for name, each in (("gradients equal those", wide), ("the clipped sum equals that", rule)):
            if not isinstance(each, Projected):
                total = subject.sum_of(model, subject.selected, each, dtype=dtype).tensors
                found.append(_check_close(f"{name} of plain autograd", _error(precise, total, each), _TOLERANCE))
        rounding = oracle.relative_error_per_example(expected, precise)
        tolerance = min(max(_SINGLE, 3 * rounding), 0.1)
    if not isinstance(rule, Projected):
        received = subject.first_step(own, silent=True)
        found.append(_check_close("the optimizer receives this sum", _error(expected, received, rule), tolerance))
    if failed:
        examples = len(subject.indices)
        remark = f"{failed} of {examples} raise an exception and contribute zero"
        found.append(deterministic_check("model and loss run on the examples", remark, holds=_RAISING * failed < examples))
    return found


def _plain_gradients(subject: AuditedProgram, dtype: torch.dtype | None) -> tuple[dict[str, Tensor], int]:
    batches = [clone(batch if dtype is None else cast(batch, dtype)) for batch in subject.single_batches]
    with preserve_generators():
        return oracle.gradients_of_each(subject.without_dropout(dtype), subject.loss_fn, batches)


def _error(gradients: Mapping[str, Tensor], total: Mapping[str, Tensor], rule: Rule) -> float:
    """Return the error of a sum relative to its largest contribution."""
    longest = max(oracle.size(oracle.weighted_sum(_only(gradients, i), rule)) for i in range(_count(gradients)))
    return oracle.distance({name: total[name] for name in gradients}, oracle.weighted_sum(gradients, rule)) / (longest or 1.0)


def _only(gradients: Mapping[str, Tensor], position: int) -> dict[str, Tensor]:
    return {name: value[position : position + 1] for name, value in gradients.items()}


def _count(gradients: Mapping[str, Tensor]) -> int:
    return len(next(iter(gradients.values())))


def _check_close(name: str, error: float, tolerance: float) -> Check:
    return deterministic_check(name, f"relative error {error:.1e}", holds=error <= tolerance)


def sensitivity_checks(subject: AuditedProgram) -> list[Check]:
    """Check that one example, including adversarial variants of it, changes the sum by at most the sensitivity.

    Examples are read and summed as in training, in float64 if the model supports it. For a random program, the sum has a single
    example, because sums of several would differ by chance.

    Raises:
        UnsupportedModelError: training would refuse the program.
    """
    rule = subject.rule
    if isinstance(rule, Projected):
        return []
    dtype = subject.precise_dtype
    model, slack = subject.without_dropout(dtype), _SINGLE_SLACK if dtype is None else _SLACK
    batched = isinstance(subject.selected, BatchDataset)
    items = list(enumerate(_items(subject)[:_MOVED]))

    def summed(some: list[_Numbered]) -> ClippedSum:
        return subject.sum_of(model, _data(subject, some), rule, dtype=dtype) if some else empty_sum(trainable(model), rule)

    others = [] if subject.is_random else items[1:]
    rest, found = summed(others), []
    for kind, item in variants([item for _, item in items], batched=batched):
        change = oracle.moved(summed([(0, item), *others]), rest) / rule.sensitivity
        found.append(_check_within(f"an example that is {kind}", change, slack))
    if subject.is_random:
        return found
    whole = summed(items)
    found.append(
        _check_within("an example that occurs twice", oracle.moved(summed([items[0], *items]), whole) / rule.sensitivity, slack)
    )
    change = max(
        _change_of_others(whole, summed([*items[:i], *items[i + 1 :]]), summed([items[i]])) / rule.sensitivity
        for i in range(min(_LEFT_OUT, len(items)))
    )
    finding = f"changes by {change:.1e} without one example"
    found.append(deterministic_check("contribution of the other examples", finding, holds=change <= slack))
    return found


def _change_of_others(whole: ClippedSum, rest: ClippedSum, one: ClippedSum) -> float:
    """Return the distance between the sum without an example and the whole sum minus that example's contribution."""
    scales = whole.noise_scales
    return oracle.size({
        name: (value.double() - rest.tensors[name].double() - one.tensors[name].double()) / scales.get(name, 1.0)
        for name, value in whole.tensors.items()
    })  # fmt: skip


def _check_within(name: str, change: float, slack: float) -> Check:
    return deterministic_check(name, f"changes the sum by {change:.6g} of the sensitivity", holds=change <= 1 + slack)


def _items(subject: AuditedProgram) -> list[Any]:
    """Return the selected items of the data set, or batches of one if the data set builds its own batches."""
    selected, positions = subject.selected, range(len(subject.indices))
    if isinstance(selected, BatchDataset):
        return [subject.batch_of(selected, position) for position in positions]
    with preserve_generators():
        return [clone(selected[position]) for position in positions]


def _data(subject: AuditedProgram, numbered: list[_Numbered]) -> Dataset[Any]:
    """Return items, each with a seed, as a data set that is read like the subject's data set."""
    unit, items = str(subject.plan.unit), [item for _, item in numbered]
    if isinstance(subject.selected, BatchDataset):
        return Batches(items, unit)
    if (
        subject.collate is None
        and build_table(subject.selected) is not None
        and len({tuple(leaf.shape for leaf in x) for x in items}) == 1
    ):
        return TensorDataset(*(torch.stack(column) for column in zip(*items, strict=True)))
    return Items(items, [seed for seed, _ in numbered], unit)


def noise_checks(subject: AuditedProgram) -> list[Check]:
    """Check that each parameter of the model gets the plan's noise, from two first steps minus their sums.

    Raises:
        UnsupportedModelError: training would refuse the program.
    """
    if subject.is_random:
        finding = "random even in evaluation mode"
        return [deterministic_check("check of the model's noise is left out", finding, holds=True)]
    quiet, *loud = (subject.first_step(subject.without_dropout(), silent=silent) for silent in (True, False, False))
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
