"""Checks of the clipped sums of a user's model, loss and data, as training computes them: ORACLE, SENS and NOISE.

Each raises `UnsupportedModelError` if training would refuse the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from privet.audit._mechanism import noise
from privet.audit._program import oracle
from privet.audit._program.program import AuditedProgram, cast, seeded
from privet.audit.checks import Check, deterministic_check
from privet.audit.observations import Noise, unit_deviations
from privet.audit.probe import slices
from privet.clipping import Projected

# Relative tolerances of a sum and of the sensitivity, in double precision and in the model's own.
_TOLERANCE, _LOOSE = 1e-7, 3e-2
_SLACK, _LOOSE_SLACK = 1e-6, 1e-4
_RAISING = 8  # one of this many examples that raises is too many: the program, not an odd row, is at fault
_MOVED = 8  # number of examples, of which one is changed
_LEFT_OUT = 3  # number of examples that are left out in turn
_COORDINATES = 1 << 20  # largest number of coordinates of a model whose noise is checked


def oracle_checks(program: AuditedProgram) -> list[Check]:
    """Check that the sum that the optimizer receives equals the sum of a plain loop over examples."""
    method = program.method  # refuses what training would refuse
    if program.is_random:
        finding = f"{method!r}; random even in evaluation mode"
        return [deterministic_check("comparison with a plain loop is left out", finding, holds=True)]
    found, rule, failed = [], program.rule, 0
    for name, dtype, tolerance in (("in float64", program.precise_dtype, _TOLERANCE), ("as in training", None, _LOOSE)):
        if isinstance(rule, Projected) or (dtype is None and tolerance == _TOLERANCE):
            continue
        model, batches = program.without_dropout(dtype), [cast(batch, dtype) for batch in program.singles]
        gradients, failed = seeded(0, oracle.gradients_of_each, model, program.loss_fn, batches)
        each = [{name: value[i : i + 1] for name, value in gradients.items()} for i in range(len(batches))]
        largest = max(oracle.size(oracle.weighted_sum(one, rule)) for one in each) or 1.0
        total = program.first_step(model, batches)
        error = oracle.distance({name: total[name] for name in gradients}, oracle.weighted_sum(gradients, rule)) / largest
        finding = f"relative error {error:.1e}"
        found.append(deterministic_check(f"the sum equals that of plain autograd, {name}", finding, holds=error <= tolerance))
    if failed:
        examples = len(program.indices)
        remark = f"{failed} of {examples} raise an exception and contribute zero"
        found.append(deterministic_check("model and loss run on the examples", remark, holds=_RAISING * failed < examples))
    return found


def sensitivity_checks(program: AuditedProgram) -> list[Check]:
    """Check that one example, including adversarial variants of it, changes the sum by at most the sensitivity.

    Examples are summed as in training, in float64 if the model supports it. For a random program, the sum has a single example,
    because sums of several would differ by chance. Statistics that an adaptive rule releases are part of the mechanism's audit.
    """
    rule, dtype = program.rule, program.precise_dtype
    if isinstance(rule, Projected):
        return []
    slack, batches = _LOOSE_SLACK if dtype is None else _SLACK, program.singles[:_MOVED]

    def summed(some: Sequence[Any]) -> dict[str, Tensor]:
        return program.first_step(program.without_dropout(dtype), [cast(batch, dtype) for batch in some])

    def size(first: dict[str, Tensor], *rest: dict[str, Tensor]) -> float:
        """Return the size of the first sum minus the others, scaled like the noise, relative to the sensitivity."""
        units = unit_deviations([rule], first, first)
        return oracle.size({name: (value - sum(one[name] for one in rest)) / units[name].item() for name, value in first.items()})

    def check_within(kind: str, change: float) -> Check:
        finding = f"changes the sum by {change:.6g} of the sensitivity"
        return deterministic_check(f"an example that {kind}", finding, holds=change <= 1 + slack)

    others = [] if program.is_random else batches[1:]
    rest = summed(others)
    found = [check_within(f"is {kind}", size(summed([batch, *others]), rest)) for kind, batch in _variants(batches)]
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
    """Check that each parameter of the model gets the plan's noise, from two first steps minus their sums."""
    if program.is_random:
        finding = "random even in evaluation mode"
        return [deterministic_check("check of the model's noise is left out", finding, holds=True)]
    model = program.without_dropout()
    quiet, *loud = (program.first_step(model, program.singles, silent=silent) for silent in (True, False, False))
    multiplier = float(program.first_step_plan(len(program.singles), silent=False).multipliers()[0])
    units, most = unit_deviations([program.rule], quiet, quiet), max(1, _COORDINATES // len(quiet))
    parts = {
        name: torch.stack([(one[name] - total).flatten()[:most] for one in loud]).cpu().numpy() / (multiplier * units[name])
        for name, total in quiet.items()
    }
    values = np.concatenate([*parts.values()], axis=1)
    places = slices({name: part.shape[1] for name, part in parts.items()})
    return noise.checks(Noise(values, np.ones(values.shape, dtype=bool), places))


_Change = Callable[[Tensor], Tensor]
# Variants of the real numbers of an example, and of its integer sequences; unknown integers may be out of range.
_REAL: dict[str, _Change] = {
    "NaN": lambda leaf: torch.full_like(leaf, torch.nan),
    "infinite in one entry": lambda leaf: torch.where(
        torch.arange(leaf.numel()).view_as(leaf).to(leaf.device) == 0, torch.inf, leaf
    ),
    "zero": torch.zeros_like,
    "1e20": lambda leaf: torch.full_like(leaf, min(1e20, torch.finfo(leaf.dtype).max)),
    "a thousand times larger": lambda leaf: leaf * 1e3,
}
_WORDS: dict[str, _Change] = {
    "one token repeated": lambda leaf: leaf.flatten()[0].expand(leaf.shape).clone(),
    "all tokens zero": torch.zeros_like,
}


def _variants(batches: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    yield "unchanged", batches[0]
    leaves, tree = pytree.tree_flatten(batches[0])
    others = [flat for flat, structure in map(pytree.tree_flatten, batches[1:]) if structure == tree]

    def changed(made: Mapping[int, Tensor]) -> Any:
        return pytree.tree_unflatten([made.get(at, leaf) for at, leaf in enumerate(leaves)], tree)

    tensors = {at: leaf for at, leaf in enumerate(leaves) if _is_number(leaf)}
    real = {at: leaf for at, leaf in tensors.items() if leaf.is_floating_point()}
    words = {at: leaf for at, leaf in tensors.items() if at not in real and leaf.dim() > 1}
    for kinds, some in ((_REAL, real), (_WORDS, words)):
        for kind, change in kinds.items() if some else ():
            yield kind, changed({at: change(leaf) for at, leaf in some.items()})
    relabel = {
        at: next((flat[at] for flat in others if flat[at].shape == leaf.shape and not torch.equal(flat[at], leaf)), leaf)
        for at, leaf in tensors.items() if at not in real and at not in words
    }  # fmt: skip
    if relabel:
        yield "of another class", changed(relabel)
        yield "an outlier of another class", changed({at: leaf * 1e3 for at, leaf in real.items()} | relabel)
    # Leaves of variable length: those whose lengths differ, tokens, and leaves of the same length as one of these.
    long = {at: leaf.shape[1] for at, leaf in tensors.items() if leaf.dim() > 1}
    known = {length for at, length in long.items() if at in words or any(flat[at].shape[1] != length for flat in others)}
    if sequences := {at: tensors[at] for at, length in long.items() if length in known}:
        yield "of length 1", changed({at: leaf[:, :1] for at, leaf in sequences.items()})
        if all(leaf.device.type == "cpu" and leaf.shape[1] for leaf in sequences.values()):
            # On other devices, an index that is out of range terminates the process.
            longest = 2 * max(flat[at].shape[1] for flat in (leaves, *others) for at in sequences)
            yield (
                "twice as long as any",
                changed({at: leaf[:, torch.arange(longest) % leaf.shape[1]] for at, leaf in sequences.items()}),
            )


def _is_number(leaf: object) -> bool:
    if not isinstance(leaf, Tensor) or leaf.is_complex() or leaf.dtype == torch.bool:
        return False
    return leaf.layout is torch.strided and leaf.numel() > 0
