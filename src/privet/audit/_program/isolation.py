"""ISOLATION: check that user code does not combine examples, or carry state from one example to the next.

Training runs user code on one example at a time, so a program that relies on a batch would train a different program than it
was written for. These checks also find what isolation cannot prevent, such as a data set that changes when it is read.
"""

from __future__ import annotations

import copy
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate

from privet._utils.randomness import preserve_generators, seed_generators
from privet.audit._program.audited_program import AuditedProgram, BatchData, clone
from privet.audit.checks import Check, deterministic_check
from privet.collate import Collate, copy_batch
from privet.errors import PrivetError
from privet.gradients import trainable
from privet.gradients.core.examples import Examples, select_examples, signature, to_device
from privet.gradients.core.losses import LossFunction
from privet.gradients.methods.ghost import Program as Differentiated
from privet.gradients.probe.joint import find_differing_losses
from privet.reading.batches import BatchDataset
from privet.reading.rows import ExampleReader, join_rows
from privet.training.preflight import couples

_LOSS_CHECK = "losses in a batch equal losses of each example alone"
_ANOTHER_PROGRAM = (
    "the program computes different losses in a batch and for each example alone, as training does. The loss, the model or "
    "collate (for example padding to the longest) makes an example depend on others"
)
_FEW = 3  # examples in a batch whose effect on the model's state is checked


def isolation_checks(subject: AuditedProgram) -> list[Check]:
    """Check that examples are independent in the data set, in collate, in model and loss, and in their state."""
    found = [
        _check_accepted("training accepts the data set", subject.check_data, "size and unit of the plan, no duplicate entry"),
        _check_accepted("training accepts the program", lambda: subject.method, "by the check before the first step"),
    ]
    if not any(parameter.requires_grad for parameter in subject.model.parameters()):
        return found
    if not isinstance(subject.selected, BatchData):
        found += _data_checks(subject)
    batch, positions = _build_joint_batch(subject)
    if batch is not None:
        found.append(_loss_check(subject, batch, [subject.single_batches[position] for position in positions]))
    found += _state_checks(subject, batch)
    return found


def _check_accepted(name: str, call: Callable[[], object], remark: str) -> Check:
    """Check that a call does not raise a PrivetError, whose message is the finding."""
    try:
        call()
    except PrivetError as error:
        return deterministic_check(name, str(error), holds=False)
    return deterministic_check(name, remark, holds=True)


def _data_checks(subject: AuditedProgram) -> list[Check]:
    rows_, indices = ExampleReader(subject.dataset, subject.collate), subject.indices.tolist()
    found = [_check_accepted("reading an example is repeatable", lambda: rows_.check_repeatable(indices), "in two orders")]
    if isinstance(subject.dataset, BatchDataset):
        return found
    if not _reads_rows(subject.dataset, subject.indices.tolist()):
        remark = "__getitems__ returns other examples than __getitem__; training reads one example at a time and never calls it"
        found.append(deterministic_check("examples read together equal examples read alone", remark, holds=False))
    collate = subject.collate
    if collate is not None:
        mixes = couples(collate, _items(subject))
        remark = "collate combines several examples; training calls collate([item])" if mixes else "same as one by one"
        found.append(deterministic_check("collate does not combine examples", remark, holds=not mixes))
    return found


def _reads_rows(dataset: Dataset[Any], indices: list[int]) -> bool:
    """Return whether a user-defined `__getitems__`, if any, returns the same examples as `__getitem__`."""
    read = getattr(dataset, "__getitems__", None)
    if read is None or isinstance(dataset, Subset | TensorDataset):
        return True
    try:
        one, again = ([_call_seeded(lambda index=index: dataset[index], seed) for index in indices] for seed in (0, 1))
        if not _same(one, again):  # random reads cannot be compared
            return True
        return _same(one, _call_seeded(lambda: list(read(indices)), 0))
    except Exception:
        return True  # training does not call it


def _call_seeded(read: Any, seed: int) -> Any:
    with preserve_generators():
        seed_generators(seed)
        return clone(read())


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


def _items(subject: AuditedProgram) -> list[Any]:
    with preserve_generators():
        return [copy.deepcopy(subject.selected[position]) for position in range(len(subject.indices))]


def _build_joint_batch(subject: AuditedProgram) -> tuple[Any, list[int]]:
    """Return several examples as one batch, by the user's collate if possible, and their positions; None if that fails."""
    positions = list(range(len(subject.indices)))
    device = next(subject.model.parameters()).device
    if not isinstance(subject.selected, BatchDataset):
        collate: Collate = subject.collate or default_collate
        with suppress(Exception):  # collate may accept single items only, or examples differ in shape
            taken = [_items(subject) for _ in range(2)]  # read first, because reading seeds the generators too
            made = [_call_seeded(lambda items=items: copy_batch(collate(items)), seed) for seed, items in enumerate(taken)]
            if _same(*made):
                return to_device(made[0], device), positions
    kinds = [signature(batch) for batch in subject.single_batches]
    ((most, number),) = Counter(kinds).most_common(1)
    alike = [position for position in positions if kinds[position] == most]
    if number < 2:
        return None, []
    try:
        return join_rows([subject.single_batches[position] for position in alike]), alike
    except PrivetError:
        return None, []


class _Bag:
    """Batches whose losses are computed one after another."""

    def __init__(self, batches: Sequence[Any]) -> None:
        self.batches = batches


def _sorted_losses(loss_fn: LossFunction, model: nn.Module, bag: _Bag) -> Tensor:
    """Return all losses, sorted, because a collate function may reorder its items."""
    return torch.cat([loss_fn(model, clone(batch)) for batch in bag.batches]).sort().values


def _loss_check(subject: AuditedProgram, batch: Any, alone: Sequence[Any]) -> Check:
    model = subject.copy()
    differentiated = Differentiated(model, partial(_sorted_losses, subject.loss_fn), trainable(model))
    examples = Examples((_Bag(alone),), (False,), pytree.tree_structure(0), 1)
    with preserve_generators():
        differing = find_differing_losses(differentiated, examples, _Bag([batch]))
    if differing is None:
        return deterministic_check(_LOSS_CHECK, f"{len(alone)} examples", holds=True)
    return deterministic_check(_LOSS_CHECK, _ANOTHER_PROGRAM, holds=False)


def _state_checks(subject: AuditedProgram, batch: Any) -> list[Check]:
    """Check that forward passes store nothing about their examples in the model."""
    first, second = (_few_batches(subject, batch, part) for part in (slice(0, _FEW), slice(-_FEW + 1, None)))
    found = []
    for mode, model in _modes(subject):
        changed = _find_dependent_state(subject, model, first, second)
        remark = "unchanged, or the same after other examples"
        if changed:
            remark = (
                f"{', '.join(changed[:3])} depend on the examples of the pass. Training restores them after each example; do not "
                "store data in the model"
            )
        name = f"buffers, parameters and attributes after a batch, {mode}"
        found.append(deterministic_check(name, remark, holds=not changed))
    return found


def _few_batches(subject: AuditedProgram, batch: Any, part: slice) -> list[Any]:
    """Return a few examples as one batch if possible, or else as batches of one."""
    if batch is not None:
        with suppress(PrivetError):
            return [select_examples(batch, part)]
    return subject.single_batches[part]


def _modes(subject: AuditedProgram) -> list[tuple[str, nn.Module]]:
    """Return the model in its own mode and, if that is evaluation mode, also in training mode, with frozen batch norm."""
    found = [("in its own mode", subject.copy())]
    if not subject.model.training:
        model = subject.copy().train()
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
        found.append(("in training mode", model))
    return found


def _find_dependent_state(subject: AuditedProgram, model: nn.Module, first: list[Any], second: list[Any]) -> list[str]:
    """Return the names of state that depends on the examples of earlier passes.

    Buffers and parameters must not depend on the examples; buffers that depend on parameters only, such as those of spectral
    norm, pass. Attributes may depend on the last pass, which the next one overwrites, but not on earlier passes.
    """
    try:
        before, one, other = (_state_after(subject, model, batches) for batches in ([], first, second))
        history, repeated = (_state_after(subject, model, batches) for batches in ([*first, *second], [*second, *second]))
    except Exception:  # other checks run the examples one by one
        return []
    stored = {name for name in before["stored"] if not _equal_values(before["stored"], one["stored"], name)}
    written = [name for name in stored if not _equal_values(one["stored"], other["stored"], name)]
    attributes = [name for name in history["held"] if not _equal_values(history["held"], repeated["held"], name)]
    return [*sorted(written), *sorted(attributes)]


def _state_after(subject: AuditedProgram, model: nn.Module, batches: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Return the state of a copy of the model after some passes."""
    twin = copy.deepcopy(model)
    loss_fn = copy.deepcopy(subject.loss_fn) if isinstance(subject.loss_fn, nn.Module) else subject.loss_fn
    with preserve_generators():
        for batch in batches:
            seed_generators(0)
            loss_fn(twin, clone(batch))
    roots = {"": twin, "loss_fn.": loss_fn} if isinstance(loss_fn, nn.Module) else {"": twin}
    stored, held = {}, {}
    for prefix, root in roots.items():
        for name, value in (*root.named_buffers(), *root.named_parameters()):
            stored[prefix + name] = value.detach().clone()
        for name, module in root.named_modules():
            for key, value in vars(module).items():
                if key not in _OF_EVERY_MODULE:
                    held[prefix + ".".join(filter(None, (name, key)))] = _snapshot(value)
    return {"stored": stored, "held": held}


_OF_EVERY_MODULE = frozenset(vars(nn.Module()))


def _snapshot(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {str(key): _snapshot(part) for key, part in value.items()}
    if isinstance(value, list | tuple | deque):
        return [_snapshot(part) for part in value]
    return value if isinstance(value, str | int | float | bool) else None


def _equal_values(one: Mapping[str, Any], other: Mapping[str, Any], name: str) -> bool:
    return name in other and _same(one[name], other[name])
