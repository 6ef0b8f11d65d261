"""ISOLATION: check that user code does not combine examples, or carry state from one example to the next.

Training runs user code on one example at a time, so a program that relies on a batch would train a different program than it
was written for. These checks also find what isolation cannot prevent, such as a data set that changes when it is read.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from privet._utils.randomness import Seeds, preserve_generators
from privet.audit._program.program import AuditedProgram, cast, seeded
from privet.audit.checks import Check, deterministic_check
from privet.collate import copy_batch
from privet.errors import PrivetError, UnsupportedModelError
from privet.gradients import trainable
from privet.gradients.core.examples import select_examples, to_device
from privet.gradients.methods.ghost import Program
from privet.gradients.probe.joint import losses_differ
from privet.reading.batches import group_examples
from privet.reading.rows import join_rows

_ANOTHER_PROGRAM = (
    "the program computes different losses in a batch and for each example alone, as training does. The loss, the model or "
    "collate (for example padding to the longest) makes an example depend on others"
)
_FEW = 3  # examples in a batch whose effect on the model's state is checked
_OF_MODULES = frozenset(vars(nn.Module()))


def isolation_checks(program: AuditedProgram) -> list[Check]:
    """Check that examples are independent in the data set, in collate, in model and loss, and in their state."""
    found = [_accepted("training accepts the program and the data set", lambda: program.method, "by its check before a step")]
    if not program.names:
        return found
    if program.dataset is not None:
        found.append(_accepted("reading an example is repeatable", lambda: _check_reads(program), "in two orders"))
    together, alone = _join(program)
    if together is not None:
        dtype = program.precise_dtype
        model = program.without_dropout(dtype)
        tested = Program(model, program.loss_fn, trainable(model))
        with preserve_generators():
            differs = losses_differ(tested, [cast(one, dtype) for one in alone], cast(together, dtype), reordered=True)
        remark = _ANOTHER_PROGRAM if differs else f"{len(alone)} examples"
        found.append(deterministic_check("losses in a batch equal losses of each example alone", remark, holds=not differs))
    changed = _find_dependent_state(program, together)
    remark = f"{', '.join(changed[:3])} depend on earlier examples. Training restores them after each example; store no data"
    state = "buffers, parameters and attributes hold nothing of earlier examples"
    return [*found, deterministic_check(state, remark if changed else "the same after other examples", holds=not changed)]


def _accepted(name: str, call: Callable[[], object], remark: str) -> Check:
    """Check that a call does not raise a PrivetError, whose message is the finding."""
    try:
        call()
    except PrivetError as error:
        return deterministic_check(name, str(error), holds=False)
    return deterministic_check(name, remark, holds=True)


def _check_reads(program: AuditedProgram) -> None:
    """Refuse a data set whose reads change what later reads return; random numbers are the same for each index."""

    def read(index: int) -> Any:
        return cast(program.reader.examples(np.array([index], dtype=np.int64), Seeds(bytes(32)), strict=True)[0], None)

    listed = program.indices.tolist()
    forwards, backwards = [read(index) for index in listed], [read(index) for index in reversed(listed)][::-1]
    for index, one, other in zip(listed, forwards, backwards, strict=True):
        if not _same(one, other):
            raise UnsupportedModelError(
                f"reading example {index} of the {type(program.dataset).__name__} again returns something else: the data set or "
                "collate keeps state between reads, so one example could change another. Write to copies, and draw random "
                "numbers from the global generators of torch, NumPy or Python, which Privet seeds for every example"
            )


def _join(program: AuditedProgram) -> tuple[Any, Sequence[Any]]:
    """Return several examples as one batch, by the user's collate if possible, and as batches of one; None if that fails."""
    singles, data = program.singles, program.dataset
    collate = None if data is None else program.reader.collate
    if data is not None and collate is not None:

        def joined() -> Any:
            return copy_batch(collate([copy.deepcopy(data[index]) for index in program.indices.tolist()]))

        with suppress(Exception):  # collate may accept single items only
            made = [seeded(seed, joined) for seed in (0, 1)]
            if _same(*made):  # else what is read or collated is random
                return to_device(made[0], next(program.model.parameters()).device), singles
    largest = max(group_examples(singles), key=lambda group: group.examples.count)
    alike = [singles[position] for position in largest.positions.tolist()]
    with suppress(PrivetError):
        return (None, ()) if len(alike) < 2 else (join_rows(alike), alike)
    return None, ()


def _find_dependent_state(program: AuditedProgram, together: Any) -> list[str]:
    """Return the names of state that depends on more than the last of two passes, which the next one overwrites.

    What depends on parameters and the number of passes only, such as the vectors of spectral norm, is left out.
    """
    parts = (slice(_FEW), slice(-_FEW + 1, None))
    try:
        first, second = (program.singles[part] if together is None else [select_examples(together, part)] for part in parts)
        one, other = (_state_after(program, batches) for batches in ([*first, *second], [*second, *second]))
    except Exception:  # other checks run the examples one by one
        return []
    return sorted(name.lstrip(".") for name, value in one.items() if not _same(value, other.get(name)))


def _state_after(program: AuditedProgram, batches: Sequence[Any]) -> dict[str, Any]:
    """Return name → numbers and texts in modules of copies of model and loss after passes in training mode."""
    model, loss_fn = copy.deepcopy(program.model), program.loss_fn
    roots = {"": model}
    if isinstance(loss_fn, nn.Module):
        roots["loss_fn"] = loss_fn = copy.deepcopy(loss_fn)
    if not model.training:
        for module in model.train().modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()  # frozen
    for batch in batches:
        seeded(0, loss_fn, model, cast(batch, None))
    return {
        f"{path}.{name}": [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor | str | int | float)]
        for prefix, root in roots.items()
        for path, module in root.named_modules(prefix=prefix)
        for name, value in {**vars(module), **module._buffers, **module._parameters}.items()
        if name not in _OF_MODULES
    }


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
