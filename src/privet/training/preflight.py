"""The check of model, loss and data on public input, before the first step and after every change of the model."""

from __future__ import annotations

import math
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.utils import _pytree as pytree

from privet._utils.randomness import preserve_generators
from privet.accounting.privacy_unit import find_unit
from privet.collate import Padded, check_collate, collate_one, copy_batch, find_floats, first_dimensions
from privet.errors import USER_ERRORS, InvalidArgumentError, PrivetError, PrivetWarning, UnsupportedModelError, raise_interrupt
from privet.gradients.core.examples import Examples, signature, split_batch, split_rows, stack
from privet.gradients.core.losses import LossFunction
from privet.gradients.methods.ghost import Program
from privet.gradients.parameters import trainable
from privet.gradients.probe.joint import compute_losses, refuse_mixed_losses
from privet.gradients.probe.probe import MADE_UP, probe, probe_first_suitable
from privet.gradients.probe.slow import warn_of_groups
from privet.gradients.probe.synthetic_batch import KINDS, common_objects, is_joinable, make_synthetic, make_synthetic_items
from privet.plan import Plan
from privet.reading.batches import BatchDataset, Group, group_examples
from privet.reading.rows import ExampleReader
from privet.reading.transfer import find_unsendable

_FEW = 3
_BATCHED = (Tensor, np.ndarray, np.generic, int, float, str, bytes)

SHAPES_WERE_READ = (
    "Before the first step, Privet read the structure, types and shapes of the data of the first three {unit}s, and made up "
    "public data like them. A field with a float there is read as floats everywhere. These facts are assumed public, and so is "
    "that the three can be read. Pass reading=privet.Reading(spec=…) or reading=privet.Reading(probe_batch=…) to avoid this"
)
NOT_PROBED = (
    "The check on public input was switched off: whether the program writes to parameters or keeps examples in hidden state is "
    "unknown"
)
RUNS_UNCOMPILED = (
    "the model or loss is compiled, and private steps run it uncompiled, because a compiled graph hides where parameters are "
    "used; train the module that you compiled, and use the compiled one, which shares its parameters, for evaluation"
)
COMPUTED_FROM_PUBLIC_INPUT = "Model and loss were checked on public input before the first step, without reading any data"


@dataclass(eq=False)
class Preflight:
    """The check of a training, which can be repeated; `note` is the sentence for the statement on what was read.

    It uses a public batch of several examples, or a made-up item (`spec`) with the structure of the data set's items, if given.
    """

    plan: Plan
    model: nn.Module
    loss_fn: LossFunction
    rows: ExampleReader
    method: str
    largest: int  # examples that go through the model at once
    probe_batch: Any = None
    spec: Any = None
    workers: int = 0
    note: str = COMPUTED_FROM_PUBLIC_INPUT
    _inputs: list[list[Examples]] | None = field(default=None, init=False)
    _made: bool = field(default=False, init=False)  # whether the inputs were collated from made-up items
    _joined: list[tuple[list[Any], Any]] = field(default_factory=list, init=False)  # batches of one, and the joined one

    def check(self) -> str:
        """Return the method to use; refuse a model or loss that cannot be trained, and examples that workers cannot send."""
        if self._inputs is None:
            _warn_if_compiled(self.model, self.loss_fn)
            device = next(self.model.parameters()).device
            found = self._find()
            self._refuse_what_workers_cannot_send(found)
            self._inputs = [[examples.to(device) for examples in groups] for groups in found]
        public = self.probe_batch is not None
        usual = min(self.largest, math.ceil(self.plan.sampling.expected_batch_size(self.plan.examples)))
        if self._made:
            what = MADE_UP if self.spec is None else "an example made up like spec"
            chosen = probe_first_suitable(self.model, self.loss_fn, self._inputs, what, self.method, usual)
        else:
            chosen = probe(self.model, self.loss_fn, self._inputs[0], public=public, method=self.method, usual=usual)
        for rows, joined in self._joined:
            refuse_mixed_losses(Program(self.model, self.loss_fn, trainable(self.model)), rows, joined)
        if len(self._inputs[0]) > 1 and not isinstance(self.rows.collate, Padded):
            why = "their shapes or types differ (pad them, say by collate=privet.collate.Padded(multiple=16))"
            warn_of_groups(len(self._inputs[0]), sum(each.count for each in self._inputs[0]), why)
        return chosen

    def list_public(self) -> list[Examples]:
        """Return a few public examples for each of several inputs, on the first of which the program may not run."""
        inputs = self._inputs or []
        if self._made or self.probe_batch is not None:
            return [groups[0].select(slice(_FEW)) for groups in inputs]
        kept = common_objects(inputs[0])
        return [make_synthetic(inputs[0][0], _FEW, kind=kind, kept=kept) for kind in range(len(KINDS))]

    def _find(self) -> list[list[Examples]]:
        """Return one or more inputs to check with: groups of examples with the structure, shapes and types of the data."""
        collate = self.rows.collate
        if self.probe_batch is not None:
            batch = copy_batch(self.probe_batch)
            rows = split_rows(batch)
            if rows is None and collate is not None and len(first_dimensions(batch)) != 1:
                self._refuse_several(batch)
                return [[stack([batch] * _FEW)]]
            return [[split_batch(batch)] if rows is None else [group.examples for group in group_examples(rows)]]
        if self.spec is not None:
            self.rows.floats = frozenset(find_floats(self.spec))
            return self._collate_made([*_make_items(self.spec, public=True), [self.spec] * _FEW])
        self.note = SHAPES_WERE_READ.format(unit=find_unit(self.plan.unit).counted)
        groups = self._first_examples()
        if not isinstance(self.rows.dataset, BatchDataset) and collate is not None:
            with preserve_generators():
                try:
                    made = _make_items(self.rows.dataset[0])
                except UnsupportedModelError:  # items hold objects that cannot be made up
                    made = []
            if made and not all(is_joinable(group.examples) for group in groups):
                return self._collate_made(made)
            check_collate(collate, made[0] if made else [])
        return [[group.examples for group in groups]]

    def _refuse_several(self, batch: Any) -> None:
        """Refuse a public batch that has no common first dimension, and a loss for each of several examples."""
        found = tuple(compute_losses(Program(self.model, self.loss_fn, trainable(self.model)), batch).shape)
        if found != (1,):
            given = f"a batch whose tensors have no common first dimension, with losses of shape {found}"
            allowed = "the batch of one example, collate([item]), with losses of shape (1,)"
            fix = "Several examples can be told apart only where each tensor has one row for each."
            raise InvalidArgumentError("probe_batch", given, allowed, fix)

    def _collate_made(self, attempts: Sequence[list[Any]]) -> list[list[Examples]]:
        """Return inputs that collate makes of made-up items, for each attempt of which it can."""
        collate, found, failures = self.rows.collate, [], []
        for made in attempts:
            check_collate(collate, made)
            with preserve_generators():
                try:
                    rows = [collate_one(item, collate, self.rows.floats) for item in made]
                    if collate is not None and len(first_dimensions(rows[0])) > 1:
                        joined = copy_batch(collate(made))
                        self._joined += [(rows, joined)] if signature(joined) != signature(rows[0]) else []
                except Exception as error:
                    failures.append(error)
                else:
                    found.append([group.examples for group in group_examples(rows)])
        if not found:
            raise failures[0]
        self._made = True
        return found

    def _first_examples(self) -> list[Group]:
        try:
            return self.rows.read_first(min(_FEW, self.plan.examples))
        except PrivetError:
            raise
        except USER_ERRORS as error:
            raise_interrupt(error)
            *_, (frame, line) = traceback.walk_tb(error.__traceback__)
            if self.rows.collate is None and str(frame.f_globals.get("__name__", "")).startswith("torch.utils.data"):
                raise UnsupportedModelError(
                    f"{_name_objects(self.rows.dataset)}, which torch cannot put in a batch: convert it to tensors, numbers or "
                    "text (an image by torchvision's ToTensor), leave it out, or pass collate=, which makes [item] a batch of one"
                ) from None
            place = f"{frame.f_code.co_name}, line {line} of {frame.f_code.co_filename}"  # the message may be private
            raise UnsupportedModelError(
                f"one of the first three examples of the data set cannot be read: {type(error).__name__} in {place}. Data set "
                "and collate are called for one example at a time, collate([item]); a made-up item, "
                "reading=privet.Reading(spec=…), shows the whole error"
            ) from None

    def _refuse_what_workers_cannot_send(self, inputs: list[list[Examples]]) -> None:
        """Refuse examples that cannot be sent to this process: in a step they are lost without a word, as an error would tell."""
        public = self.probe_batch is not None or self.spec is not None
        for groups in inputs if self.workers else ():
            kept = common_objects(groups)
            for made in groups if public else [make_synthetic(group, 1, kept=kept) for group in groups]:
                if (why := find_unsendable(made)) is not None:
                    allowed = "0 for examples that cannot be pickled and unpickled, and so not be sent"
                    fix = (
                        f"{why}. Leave the object out of what the data set and collate return, define its class at the top of a "
                        "file, or pass reading=privet.Reading(workers=0)."
                    )
                    raise InvalidArgumentError("workers", self.workers, allowed, fix)


def _make_items(item: Any, *, public: bool = False) -> list[list[Any]]:
    """Return items with the structure of a given one, with made-up numbers of each kind."""
    return [make_synthetic_items(item, _FEW, kind, public=public) for kind in range(len(KINDS))]


def _name_objects(dataset: Any) -> str:
    with preserve_generators():
        leaves, _ = pytree.tree_flatten_with_path(dataset[0])
    found = [f"item{pytree.keystr(path)} is a {type(leaf).__name__}" for path, leaf in leaves if not isinstance(leaf, _BATCHED)]
    return ", ".join(found[:_FEW]) or "an item of the data set holds an object"


def _warn_if_compiled(model: nn.Module, loss_fn: LossFunction) -> None:
    modules = [*model.modules(), *(loss_fn.modules() if isinstance(loss_fn, nn.Module) else ())]
    if not model.training and any(isinstance(module, _DropoutNd) and module.p for module in modules):
        text = "the model is in eval() mode, in which its dropout does nothing: call model.train()"
        warnings.warn(text, PrivetWarning, stacklevel=2)
    compiled = any(hasattr(module, "_orig_mod") or module._compiled_call_impl is not None for module in modules)
    if compiled or hasattr(loss_fn, "_torchdynamo_orig_callable"):
        warnings.warn(RUNS_UNCOMPILED, PrivetWarning, stacklevel=2)
