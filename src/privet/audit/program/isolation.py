"""ISOLATION: does anything that the user hands in compute with two examples at once, or keep something of one for the next?

Training shows user code one example at a time, so a program that needs a batch is trained as another program than it was written
as. What isolation cannot see, such as a data set that changes when it is read, has to be found here.
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

from privet._utils.randomness import generators_kept, seed_generators
from privet.audit.checks import Check, certain
from privet.audit.program.subject import BatchData, Subject, clone
from privet.collate import Collate, copy_batch
from privet.errors import PrivetError
from privet.gradients import trainable
from privet.gradients.core.examples import Examples, select_examples, signature, to_device
from privet.gradients.core.losses import LossFunction
from privet.gradients.methods.ghost import Subject as Differentiated
from privet.gradients.probe.joint import find_differing_losses
from privet.reading.batches import BatchDataset
from privet.reading.rows import ExampleReader, join_rows
from privet.training.preflight import couples

_ANOTHER_PROGRAM = (
    "in a batch this program computes something else than for each example alone; training computes it alone. The loss, the "
    "model or collate (padding to the longest, say) lets an example depend on others"
)
_FEW = 3  # examples in a batch whose traces in the model are looked at


def isolation_checks(subject: Subject) -> list[Check]:
    """Return whether examples are apart: in the data set, in collate, in model and loss, and in what these keep."""
    found = [
        _accepted("training accepts the data set", subject.check_data, "of the plan's size and unit, no entry twice"),
        _accepted("training accepts the program", lambda: subject.method, "by its check before the first step"),
    ]
    if not any(parameter.requires_grad for parameter in subject.model.parameters()):
        return found
    if not isinstance(subject.few, BatchData):
        found += _data_checks(subject)
    batch, positions = _joint(subject)
    if batch is not None:
        found.append(_loss_check(subject, batch, [subject.alone[position] for position in positions]))
    found += _state_checks(subject, batch)
    return found


def _accepted(name: str, ask: Callable[[], object], remark: str) -> Check:
    """Return whether something is not refused, with what is said if it is."""
    try:
        ask()
    except PrivetError as error:
        return certain(name, str(error), holds=False)
    return certain(name, remark, holds=True)


def _data_checks(subject: Subject) -> list[Check]:
    rows_, indices = ExampleReader(subject.dataset, subject.collate), subject.indices.tolist()
    found = [_accepted("reading an example again returns the same", lambda: rows_.check_repeatable(indices), "in two orders")]
    if isinstance(subject.dataset, BatchDataset):
        return found
    if not _reads_rows(subject.dataset, subject.indices.tolist()):
        remark = "__getitems__ returns other examples than __getitem__; training reads one at a time and never calls it"
        found.append(certain("examples are read alone as together", remark, holds=False))
    collate = subject.collate
    if collate is not None:
        mixes = couples(collate, _items(subject))
        remark = "collate computes with several examples at once; training calls collate([item])" if mixes else "as one by one"
        found.append(certain("collate makes a batch of what each item is", remark, holds=not mixes))
    return found


def _reads_rows(dataset: Dataset[Any], indices: list[int]) -> bool:
    """Return whether `__getitems__`, where there is one of the user's, returns what `__getitem__` does."""
    read = getattr(dataset, "__getitems__", None)
    if read is None or isinstance(dataset, Subset | TensorDataset):
        return True
    try:
        one, again = ([_seeded(lambda index=index: dataset[index], seed) for index in indices] for seed in (0, 1))
        if not _same(one, again):  # random: nothing to compare
            return True
        return _same(one, _seeded(lambda: list(read(indices)), 0))
    except Exception:
        return True  # it is not called in training either


def _seeded(read: Any, seed: int) -> Any:
    with generators_kept():
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


def _items(subject: Subject) -> list[Any]:
    with generators_kept():
        return [copy.deepcopy(subject.few[position]) for position in range(len(subject.indices))]


def _joint(subject: Subject) -> tuple[Any, list[int]]:
    """Return several examples as one batch, by the user's collate if it makes one, and which they are; None if there is none."""
    everyone = list(range(len(subject.indices)))
    device = next(subject.model.parameters()).device
    if not isinstance(subject.few, BatchDataset):
        collate: Collate = subject.collate or default_collate
        with suppress(Exception):  # it is made for one item, or examples differ in shape
            taken = [_items(subject) for _ in range(2)]  # first, as reading seeds the generators too
            made = [_seeded(lambda items=items: copy_batch(collate(items)), seed) for seed, items in enumerate(taken)]
            if _same(*made):
                return to_device(made[0], device), everyone
    kinds = [signature(batch) for batch in subject.alone]
    ((most, number),) = Counter(kinds).most_common(1)
    positions = [position for position in everyone if kinds[position] == most]
    if number < 2:
        return None, []
    try:
        return join_rows([subject.alone[position] for position in positions]), positions
    except PrivetError:
        return None, []


class _Bag:
    """Batches that are computed one after another."""

    def __init__(self, batches: Sequence[Any]) -> None:
        self.batches = batches


def _sorted_losses(loss_fn: LossFunction, model: nn.Module, bag: _Bag) -> Tensor:
    """Return all losses in order of size: a collate function may put its items in another order."""
    return torch.cat([loss_fn(model, clone(batch)) for batch in bag.batches]).sort().values


def _loss_check(subject: Subject, batch: Any, alone: Sequence[Any]) -> Check:
    model = subject.copy()
    differentiated = Differentiated(model, partial(_sorted_losses, subject.loss_fn), trainable(model))
    examples = Examples((_Bag(alone),), (False,), pytree.tree_structure(0), 1)
    with generators_kept():
        differing = find_differing_losses(differentiated, examples, _Bag([batch]))
    if differing is None:
        return certain("losses in a batch are those of each example alone", f"of {len(alone)} examples", holds=True)
    return certain("losses in a batch are those of each example alone", _ANOTHER_PROGRAM, holds=False)


def _state_checks(subject: Subject, batch: Any) -> list[Check]:
    """Return whether forward passes leave nothing of their examples in the model."""
    first, second = (_piece(subject, batch, part) for part in (slice(0, _FEW), slice(-_FEW + 1, None)))
    found = []
    for mode, model in _modes(subject):
        kept = _kept(subject, model, first, second)
        remark = "as they were, or the same after other examples"
        if kept:
            remark = (
                f"{', '.join(kept[:3])} depend on the examples of the pass. Training puts them back after every example; keep "
                "nothing of the data in the model"
            )
        found.append(certain(f"buffers, parameters and attributes after a batch, {mode}", remark, holds=not kept))
    return found


def _piece(subject: Subject, batch: Any, part: slice) -> list[Any]:
    """Return a few examples as batches: one batch where they can stand in one."""
    if batch is not None:
        with suppress(PrivetError):
            return [select_examples(batch, part)]
    return subject.alone[part]


def _modes(subject: Subject) -> list[tuple[str, nn.Module]]:
    """Return the model in its own mode and, if that is evaluation, in training mode; batch norm stays as it is frozen."""
    found = [("in its own mode", subject.copy())]
    if not subject.model.training:
        model = subject.copy().train()
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
        found.append(("in training mode", model))
    return found


def _kept(subject: Subject, model: nn.Module, first: list[Any], second: list[Any]) -> list[str]:
    """Return the names of what holds something of the examples after passes over them.

    Buffers and parameters must be the same whichever examples there were; those that follow from the parameters alone are, such
    as spectral norm's. Attributes may hold the last pass, which the next one overwrites, but no earlier one.
    """
    try:
        before, one, other = (_after(subject, model, batches) for batches in ([], first, second))
        history, repeated = (_after(subject, model, batches) for batches in ([*first, *second], [*second, *second]))
    except Exception:  # what fails in a batch is asked of each alone, elsewhere
        return []
    stored = {name for name in before["stored"] if not _equal_values(before["stored"], one["stored"], name)}
    written = [name for name in stored if not _equal_values(one["stored"], other["stored"], name)]
    attributes = [name for name in history["held"] if not _equal_values(history["held"], repeated["held"], name)]
    return [*sorted(written), *sorted(attributes)]


def _after(subject: Subject, model: nn.Module, batches: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Return what a copy of the model holds after some passes."""
    twin = copy.deepcopy(model)
    loss_fn = copy.deepcopy(subject.loss_fn) if isinstance(subject.loss_fn, nn.Module) else subject.loss_fn
    with generators_kept():
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
