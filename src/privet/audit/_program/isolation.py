"""ISOLATION: check that user code does not combine examples, or carry state from one example to the next.

Training runs user code on one example at a time, so a program that relies on a batch would train a different program than it
was written for. These checks also find what isolation cannot prevent, such as a data set that changes when it is read.
"""

from __future__ import annotations

__all__ = ["isolation_checks"]

import copy
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.data import default_collate

from privet._utils.randomness import Seeds
from privet.audit._program.program import AuditedProgram, cast, clone, seeded
from privet.audit.checks import Check, deterministic_check
from privet.collate import copy_batch
from privet.errors import PrivetError, UnsupportedModelError
from privet.gradients.core.examples import select_examples, signature, to_device
from privet.reading.rows import ExampleReader, join_rows

_LOSSES = "losses in a batch equal losses of each example alone"
_ANOTHER_PROGRAM = (
    "the program computes different losses in a batch and for each example alone, as training does. The loss, the model or "
    "collate (for example padding to the longest) makes an example depend on others"
)
_FEW = 3  # examples in a batch whose effect on the model's state is checked
_MOVED = 0.1  # standard deviation of a change to parameters, as initial zeros may hide that losses differ
_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}
_LOOSE = 3e-2


def isolation_checks(program: AuditedProgram) -> list[Check]:
    """Check that examples are independent in the data set, in collate, in model and loss, and in their state."""
    found = [_accepted("training accepts the program and the data set", lambda: program.method, "by its check before a step")]
    if not program.names:
        return found
    if program.dataset is not None:
        found.append(_accepted("reading an example is repeatable", lambda: _check_reads(program), "in two orders"))
    together, positions = _join(program)
    if together is not None:
        differs = _losses_differ(program, together, [program.singles[position] for position in positions])
        remark = _ANOTHER_PROGRAM if differs else f"{len(positions)} examples"
        found.append(deterministic_check(_LOSSES, remark, holds=not differs))
    return found + _state_checks(program, together)


def _accepted(name: str, call: Callable[[], object], remark: str) -> Check:
    """Check that a call does not raise a PrivetError, whose message is the finding."""
    try:
        call()
    except PrivetError as error:
        return deterministic_check(name, str(error), holds=False)
    return deterministic_check(name, remark, holds=True)


def _check_reads(program: AuditedProgram) -> None:
    """Refuse a data set whose reads change what later reads return; random numbers are the same for each index.

    Raises:
        UnsupportedModelError: a repeated read returned something else.
    """
    assert program.dataset is not None
    reader = ExampleReader(program.dataset, program.collate if program.has_items else None)

    def read(index: int) -> Any:
        return copy.deepcopy(reader.examples(np.array([index], dtype=np.int64), Seeds(bytes(32)), strict=True)[0])

    listed = program.indices.tolist()
    forwards, backwards = [read(index) for index in listed], [read(index) for index in reversed(listed)][::-1]
    for index, one, other in zip(listed, forwards, backwards, strict=True):
        if not _same(one, other):
            raise UnsupportedModelError(
                f"reading example {index} of the {type(program.dataset).__name__} again returns something else: the data set or "
                "collate keeps state between reads, so one example could change another. Write to copies, and draw random "
                "numbers from the global generators of torch, NumPy or Python, which Privet seeds for every example"
            )


def _same(one: Any, other: Any) -> bool:
    (leaves, tree), (others, structure) = pytree.tree_flatten(one), pytree.tree_flatten(other)
    return tree == structure and all(map(_equal, leaves, others))


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and torch.allclose(one.double(), other.double(), rtol=1e-6, equal_nan=True)
    try:
        return bool(one == other)
    except Exception:
        return True


def _join(program: AuditedProgram) -> tuple[Any, Sequence[int]]:
    """Return several examples as one batch, by the user's collate if possible, and their positions; None if that fails."""
    singles, collate = program.singles, program.collate or default_collate
    if program.has_items:
        with suppress(Exception):  # collate may accept single items only, or examples differ in shape
            made = [seeded(seed, lambda: copy_batch(collate(copy.deepcopy(program.items)))) for seed in (0, 1)]
            if _same(*made):
                return to_device(made[0], next(program.model.parameters()).device), range(len(singles))
    kinds = [signature(batch) for batch in singles]
    ((most, number),) = Counter(kinds).most_common(1)
    alike = [position for position, kind in enumerate(kinds) if kind == most]
    with suppress(PrivetError):
        return (None, ()) if number < 2 else (join_rows([singles[position] for position in alike]), alike)
    return None, ()


def _losses_differ(program: AuditedProgram, together: Any, alone: Sequence[Any]) -> bool:
    """Return whether losses differ, sorted because a collate function may reorder its items; False if they cannot be compared."""
    if program.is_random:
        return False
    dtype = program.precise_dtype
    model, generator = program.without_dropout(dtype), torch.Generator().manual_seed(0)

    def losses(batches: Sequence[Any]) -> Tensor:
        found = [seeded(0, program.loss_fn, copy.deepcopy(model), cast(batch, dtype)) for batch in batches]
        return torch.cat(found).sort().values

    for step in (0.0, _MOVED):
        with torch.no_grad(), suppress(Exception):  # a program that accepts only one example cannot depend on a batch
            for parameter in model.parameters():
                parameter.add_(step * torch.randn(parameter.shape, generator=generator, device="cpu").to(parameter))
            one, other = losses([together]), losses(alone)
            tolerance = _TOLERANCE.get(one.dtype, _LOOSE)
            size = tolerance * float(torch.cat([one, other]).nan_to_num().abs().max())
            if one.shape == other.shape and not torch.allclose(one, other, rtol=tolerance, atol=size, equal_nan=True):
                return True
    return False


def _state_checks(program: AuditedProgram, together: Any) -> list[Check]:
    """Check that forward passes store nothing about their examples in the model."""
    first, second = (_few(program, together, part) for part in (slice(0, _FEW), slice(-_FEW + 1, None)))
    modes = {"in its own mode": program.copy()}
    if not program.model.training:
        modes["in training mode"] = model = program.copy().train()
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()  # frozen
    found = []
    for mode, model in modes.items():
        changed = _find_dependent_state(program, model, first, second)
        remark = "unchanged, or the same after other examples"
        if changed:
            remark = (
                f"{', '.join(changed[:3])} depend on the examples of the pass. Training restores them after each example; do not "
                "store data in the model"
            )
        name = f"buffers, parameters and attributes after a batch, {mode}"
        found.append(deterministic_check(name, remark, holds=not changed))
    return found


def _few(program: AuditedProgram, together: Any, part: slice) -> list[Any]:
    """Return a few examples as one batch if possible, or else as batches of one."""
    if together is not None:
        with suppress(PrivetError):
            return [select_examples(together, part)]
    return program.singles[part]


def _find_dependent_state(program: AuditedProgram, model: nn.Module, first: list[Any], second: list[Any]) -> list[str]:
    """Return the names of state that depends on the examples of earlier passes.

    Buffers and parameters must not depend on the examples; buffers that depend on parameters only, such as those of spectral
    norm, pass. Attributes may depend on the last pass, which the next one overwrites, but not on earlier passes.
    """
    try:
        one, other = (_state_after(program, model, batches) for batches in (first, second))
        history, repeated = (_state_after(program, model, batches) for batches in ([*first, *second], [*second, *second]))
    except Exception:  # other checks run the examples one by one
        return []
    stored = [name for name, value in one.items() if isinstance(value, Tensor) and not _same(value, other.get(name))]
    attributes = [name for name, value in history.items() if type(value) is list and not _same(value, repeated.get(name))]
    return sorted(stored) + sorted(attributes)


def _state_after(program: AuditedProgram, model: nn.Module, batches: Sequence[Any]) -> dict[str, Any]:
    """Return the state of a copy of the model after some passes: tensors of buffers and parameters, attributes as lists."""
    twin = copy.deepcopy(model)
    loss_fn = copy.deepcopy(program.loss_fn) if isinstance(program.loss_fn, nn.Module) else program.loss_fn
    for batch in batches:
        seeded(0, loss_fn, twin, clone(batch))
    found: dict[str, Any] = {}
    for prefix, root in {"": twin, "loss_fn": loss_fn}.items():
        for name, module in root.named_modules(prefix=prefix) if isinstance(root, nn.Module) else ():
            stored = *module.named_buffers(name, recurse=False), *module.named_parameters(name, recurse=False)
            found |= {key: value.detach().clone() for key, value in stored}
            held = {".".join(filter(None, (name, key))): value for key, value in vars(module).items() if key not in _PLAIN}
            found |= {key: [_snapshot(value)] for key, value in held.items()}
    return found


_PLAIN = frozenset(vars(nn.Module()))


def _snapshot(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {str(key): _snapshot(part) for key, part in value.items()}
    if isinstance(value, list | tuple | deque):
        return [_snapshot(part) for part in value]
    return value if isinstance(value, str | int | float | bool) else None
