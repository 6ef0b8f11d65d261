"""Checks of the clipped sums of a user's model, loss and data: ORACLE, SENS and NOISE."""

from __future__ import annotations

__all__ = ["noise_checks", "oracle_checks", "sensitivity_checks"]

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privet.audit._mechanism import noise
from privet.audit._program import oracle
from privet.audit._program.program import AuditedProgram, cast, seeded
from privet.audit._program.variants import variants
from privet.audit.checks import Check, deterministic_check
from privet.audit.observations import Noise
from privet.clipping import Flat, Projected, Rule

# Relative tolerances for deep models in double precision, in single precision, and in lower or unknown precision.
_TOLERANCE, _SINGLE, _LOOSE = 1e-7, 1e-3, 3e-2
# Tolerances of the sensitivity in double and in single precision.
_SLACK, _SINGLE_SLACK = 1e-6, 1e-4
_UNCLIPPED = 1e6  # factor of a bound above the largest gradient
_RAISING = 8  # one of this many examples that raises is too many: the program, not an odd row, is at fault
_MOVED = 8  # number of examples, of which one is changed
_LEFT_OUT = 3  # number of examples that are left out in turn
_COORDINATES = 1 << 20  # largest number of coordinates of a model whose noise is checked


def oracle_checks(program: AuditedProgram) -> list[Check]:
    """Check that the sum that the optimizer receives equals the sum of a plain loop over examples.

    Raises:
        UnsupportedModelError: training would refuse the program.
    """
    method = program.method
    if program.is_random:
        finding = f"{method!r}; random even in evaluation mode"
        return [deterministic_check("comparison with a plain loop is left out", finding, holds=True)]
    dtype, rule, found, tolerance = program.precise_dtype, program.rule, [], _LOOSE
    expected, failed = _plain_gradients(program, None)
    if dtype is not None:
        precise, _ = _plain_gradients(program, dtype)
        wide = Flat(_UNCLIPPED * max(1.0, float(oracle.norms_of(precise).max())))
        for name, each in (("gradients equal those", wide), ("the clipped sum equals that", rule)):
            if not isinstance(each, Projected):
                total = _sum(program, program.singles, dtype, each)
                found.append(_check_close(f"{name} of plain autograd", _error(precise, total, each), _TOLERANCE))
        rounding = max(
            oracle.distance(_only(expected, i), _only(precise, i)) / (oracle.size(_only(precise, i)) or 1.0)
            for i in range(len(program.singles))
        )
        tolerance = min(max(_SINGLE, 3 * rounding), 0.1)
    if not isinstance(rule, Projected):
        received = _sum(program, program.singles, None, rule)
        found.append(_check_close("the optimizer receives this sum", _error(expected, received, rule), tolerance))
    if failed:
        examples = len(program.indices)
        remark = f"{failed} of {examples} raise an exception and contribute zero"
        found.append(deterministic_check("model and loss run on the examples", remark, holds=_RAISING * failed < examples))
    return found


def _sum(program: AuditedProgram, batches: list[Any], dtype: torch.dtype | None, rule: Rule) -> dict[str, Tensor]:
    return program.first_step(program.without_dropout(dtype), [cast(batch, dtype) for batch in batches], clipping=rule)


def _plain_gradients(program: AuditedProgram, dtype: torch.dtype | None) -> tuple[dict[str, Tensor], int]:
    batches = [cast(batch, dtype) for batch in program.singles]
    return seeded(0, oracle.gradients_of_each, program.without_dropout(dtype), program.loss_fn, batches)


def _error(gradients: Mapping[str, Tensor], total: Mapping[str, Tensor], rule: Rule) -> float:
    """Return the error of a sum relative to its largest contribution."""
    examples = len(next(iter(gradients.values())))
    longest = max(oracle.size(oracle.weighted_sum(_only(gradients, i), rule)) for i in range(examples))
    return oracle.distance({name: total[name] for name in gradients}, oracle.weighted_sum(gradients, rule)) / (longest or 1.0)


def _only(gradients: Mapping[str, Tensor], position: int) -> dict[str, Tensor]:
    return {name: value[position : position + 1] for name, value in gradients.items()}


def _check_close(name: str, error: float, tolerance: float) -> Check:
    return deterministic_check(name, f"relative error {error:.1e}", holds=error <= tolerance)


def sensitivity_checks(program: AuditedProgram) -> list[Check]:
    """Check that one example, including adversarial variants of it, changes the sum by at most the sensitivity.

    Examples are summed as in training, in float64 if the model supports it. For a random program, the sum has a single example,
    because sums of several would differ by chance. Statistics that an adaptive rule releases are part of the mechanism's audit.

    Raises:
        UnsupportedModelError: training would refuse the program.
    """
    rule, dtype = program.rule, program.precise_dtype
    if isinstance(rule, Projected):
        return []
    slack, batches = _SINGLE_SLACK if dtype is None else _SLACK, program.singles[:_MOVED]

    def summed(some: list[Any]) -> dict[str, Tensor]:
        return _sum(program, some, dtype, rule)

    def size(*sums: dict[str, Tensor]) -> float:
        """Return the size of the first sum minus the others, scaled like the noise, relative to the sensitivity."""
        scales = rule.noise_scales(tuple(sums[0]))
        first, *rest = sums
        left = {name: (value - sum(other[name] for other in rest)) / scales.get(name, 1.0) for name, value in first.items()}
        return oracle.size(left) / rule.sensitivity

    def check_within(kind: str, change: float) -> Check:
        finding = f"changes the sum by {change:.6g} of the sensitivity"
        return deterministic_check(f"an example that {kind}", finding, holds=change <= 1 + slack)

    others = [] if program.is_random else batches[1:]
    rest = summed(others)
    found = [check_within(f"is {kind}", size(summed([batch, *others]), rest)) for kind, batch in variants(batches)]
    if program.is_random:
        return found
    whole = summed(batches)
    found.append(check_within("occurs twice", size(summed([batches[0], *batches]), whole)))
    change = max(
        size(whole, summed([*batches[:i], *batches[i + 1 :]]), summed([batches[i]])) for i in range(min(_LEFT_OUT, len(batches)))
    )
    finding = f"changes by {change:.1e} without one example"
    return [*found, deterministic_check("contribution of the other examples", finding, holds=change <= slack)]


def noise_checks(program: AuditedProgram) -> list[Check]:
    """Check that each parameter of the model gets the plan's noise, from two first steps minus their sums.

    Raises:
        UnsupportedModelError: training would refuse the program.
    """
    if program.is_random:
        finding = "random even in evaluation mode"
        return [deterministic_check("check of the model's noise is left out", finding, holds=True)]
    model, rule = program.without_dropout(), program.rule
    quiet, *loud = (program.first_step(model, program.singles, silent=silent) for silent in (True, False, False))
    names = tuple(quiet)
    scales = rule.noise_scales(names)
    common = float(program.first_step_plan(len(program.singles), silent=False).multipliers()[0]) * rule.sensitivity
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
