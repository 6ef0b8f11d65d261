"""Per-example gradients of a physical batch in one forward and one backward pass, while user code sees one example.

The model and the loss run inside `torch.func.vmap`. Functions with parameters are computed on the physical batch by autograd
functions whose backward passes return the input gradient only and record factors, (B, T, d) and (B, T, p), whose first dimension
is vmap's. Norms, weights and sums follow from the factors.

An example's loss can depend on another's data only through an incorrect batching rule of torch, an incorrect rule of this
package, or Python state that outlives the pass and is not found by `isolation`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import starmap
from typing import Any

import torch
from torch import Tensor, nn

from privet.gradients import layers  # noqa: F401
from privet.gradients.combine.sums import group_rows, pull_back, sum_grads
from privet.gradients.core.batching import vectorise
from privet.gradients.core.examples import Examples, unflatten
from privet.gradients.core.losses import LossFunction, check_losses
from privet.gradients.core.norms import without_autocast
from privet.gradients.core.patches import forbid_user_code_on_physical_batch, force_eager, patch_recomputation
from privet.gradients.core.per_example import PerExampleGrad, store_small
from privet.gradients.core.randomness import Draws, GeneratorWatch
from privet.gradients.core.recorder import Recorder, UntraceableError
from privet.gradients.isolation import Guard
from privet.gradients.methods.example_calls import ExampleCalls
from privet.gradients.methods.tape import Tape


@dataclass(eq=False)
class Program:
    """The model and loss that are differentiated, and their properties found so far.

    Attributes:
        writes_into_new_tensors: whether the model writes values of an example into tensors that it creates, which must then be
            created per example.
        takes_gradients: whether it takes gradients itself, as for a penalty on the norm of an input's gradient.
        low_precision: whether the last pass computed in less than float32.
        frees_parameters: whether parameters have values only while their module runs, as a shard's do.
        foreign: weak references to tensors that required a gradient in the last pass and are not parameters.
        reached: to those that a gradient reached in the last loss that the loop computed, which were not detached.
    """

    model: nn.Module
    loss_fn: LossFunction
    parameters: Mapping[str, Tensor]
    writes_into_new_tensors: bool = False
    has_reentrant_checkpoints: bool = False
    low_precision: bool = False
    takes_gradients: bool = False
    frees_parameters: bool = False
    foreign: list[weakref.ref[Tensor]] = field(default_factory=list)
    reached: list[weakref.ref[Tensor]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.guard = Guard(self.model, self.loss_fn, self.parameters)


def compute_losses(
    program: Program, examples: Examples, recorder: Recorder, run: Callable[[Any], Tensor], *, batched_from_the_start: bool
) -> Tensor:
    """Return the losses of a physical batch, (B, 1), with their graph.

    Args:
        examples: the batch; user code receives copies, so that writes to them are discarded.
        recorder: of the pass; it may follow no parameters.
        run: one example as user code sees it → its losses, (1,).
        batched_from_the_start: whether new tensors and buffers are created per example.
    """

    def one(token: Tensor, *example: Any) -> Tensor:
        recorder.token = token
        calls = ExampleCalls(program.guard, recorder, recorder.draws, batched_from_the_start=batched_from_the_start)
        copied = _copies_per_example(recorder) if batched_from_the_start else None
        with program.guard.isolate(copied, examples.shared), patch_recomputation(lambda: _make_rerun(program, calls, recorder)):
            with calls:
                losses = run(unflatten(example, examples.tree))
                if type(losses) is not Tensor:  # a subclass, whose attributes may be user code
                    return check_losses(losses, 1)
            return check_losses(losses, 1)  # out here, reading a shape is not intercepted

    token = torch.zeros(examples.count, device=recorder.anchor.device)
    return vectorise(one, token, examples.copy_leaves(), examples.own)


def _copies_per_example(recorder: Recorder) -> Callable[[Tensor], Tensor]:
    def copied(buffer: Tensor) -> Tensor:
        found: Tensor = recorder.run_on_physical_batch(lambda t: buffer.expand(len(t), *buffer.shape).clone(), recorder.token)
        return found

    return copied


def _make_rerun(program: Program, calls: ExampleCalls, recorder: Recorder) -> Callable[[Callable[[], Any]], Any]:
    """Return a function that recomputes a checkpointed part, in a vmap of the same level and with the same random numbers."""
    mark = recorder.draws.mark()

    def again(part: Callable[[], Any]) -> None:
        def inside(token: Tensor) -> Tensor:
            recorder.token = token
            with program.guard.isolate(), calls.for_token(token):
                part()
            return token

        with recorder.draws.replay_from(mark):
            vectorise(inside, torch.zeros(recorder.examples, device=recorder.anchor.device), (), ())

    return again


def record(program: Program, examples: Examples, draws: Draws, *, batched_from_the_start: bool = False) -> Tape:
    """Return the tape of one forward and one backward pass over B ≥ 1 examples; a compiled model runs eagerly.

    Raises:
        SplitError: examples differ in a value that controls the model.
        UntraceableError: a parameter is used in a way that no rule supports, or a global generator was drawn from.
        Exception: whatever user code, or torch inside vmap, raises.
    """
    recorder = Recorder(
        examples.count, program.parameters, draws, twice=program.takes_gradients, frees_parameters=program.frees_parameters
    )
    watch = GeneratorWatch()
    try:
        with torch.enable_grad(), force_eager(), forbid_user_code_on_physical_batch():
            losses = compute_losses(
                program, examples, recorder, partial(program.loss_fn, program.model),
                batched_from_the_start=batched_from_the_start,
            )  # fmt: skip
            program.foreign = list(map(weakref.ref, recorder.foreign))
            if losses.requires_grad:
                with without_autocast(losses.device):
                    recorder.backpropagate(losses)
        del losses  # frees the graph
        program.low_precision = recorder.low_precision
        if watch.has_advanced():
            raise UntraceableError("random numbers are drawn from a generator that examples would share")
        return _assemble(recorder)
    finally:
        recorder.forget()


def _assemble(recorder: Recorder) -> Tape:
    found: dict[str, list[PerExampleGrad]] = {}
    seen: set[int] = set()
    for leaf in recorder.leaves.values():
        if not leaf.gradients or id(leaf.gradients) in seen:
            continue
        seen.add(id(leaf.gradients))
        (used, rows), *others = leaf.gradients
        if others or rows > 1:
            used = sum_grads(list(starmap(group_rows, leaf.gradients)))
        if not leaf.derivations:
            found.setdefault(leaf.name, []).append(used)
            continue
        if len(leaf.derivations) > 1:
            used = store_small(used)
        for name, derivation in leaf.derivations.items():
            found.setdefault(name, []).append(pull_back(used, derivation))
    grads = {name: each[0] if len(each) == 1 else sum_grads(each) for name, each in found.items()}
    return Tape(recorder.examples, recorder.parameters, grads)
