"""Per-example gradients of a physical batch in one forward and one backward pass, by user code that sees one example.

The model and the loss run inside of `torch.func.vmap`. Functions that use a parameter are computed on the physical batch by
autograd functions whose backward passes return the input gradient only and record factors, (B, T, d) and (B, T, p), whose first
dimension is vmap's. Norms, weights and sums follow from the factors.

An example's loss can depend on another's data only by a wrong batching rule of torch's, by a wrong rule of ours, or through
Python state that outlives the pass and that `core.state` does not see.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from privet.gradients import layers  # noqa: F401
from privet.gradients.core.batching import vectorise
from privet.gradients.core.examples import Examples
from privet.gradients.core.losses import LossFunction, checked_losses, uncompiled
from privet.gradients.core.norms import without_autocast
from privet.gradients.core.randomness import Draws, Watch
from privet.gradients.core.recorder import Recorder, UntraceableError
from privet.gradients.core.state import Guard
from privet.gradients.methods.assemble import assemble
from privet.gradients.methods.calls import ExampleCalls
from privet.gradients.methods.checkpointing import running_again_by
from privet.gradients.methods.physical import no_user_code_on_the_physical_batch
from privet.gradients.methods.tape import Tape


@dataclass(eq=False)
class Subject:
    """What is differentiated, and what is known of how.

    Args:
        model, loss_fn: user code: (model, batch) → (B,) losses.
        parameters: name → trainable parameter.

    Attributes:
        writes_into_new_tensors: whether the model was seen to fill tensors that it makes with an example's numbers, so that
            they have to belong to examples from the start.
        has_reentrant_checkpoints: whether a part of the model was seen to be checkpointed in the old way.
        low_precision: whether the last pass computed in less than float32.
        foreign: tensors that asked for a gradient in the last pass and are none of the parameters, as far as they are still
            there.
    """

    model: nn.Module
    loss_fn: LossFunction
    parameters: Mapping[str, Tensor]
    writes_into_new_tensors: bool = False
    has_reentrant_checkpoints: bool = False
    low_precision: bool = False
    foreign: list[weakref.ref[Tensor]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.guard = Guard(self.model, self.loss_fn, self.parameters)


def losses_in_vmap(
    subject: Subject, examples: Examples, recorder: Recorder, run: Callable[[Any], Tensor], *, batched_from_the_start: bool
) -> Tensor:
    """Return the losses of a physical batch, (B,), with their graph.

    Args:
        subject: what is run.
        examples: the batch; user code is handed copies, so that what it writes into them is gone.
        recorder: that follows the parameters, or none.
        run: one example as user code sees it → its losses, (1,).
        batched_from_the_start: whether new tensors and buffers belong to examples.
    """
    leaves = [leaf.clone() if own else leaf for leaf, own in zip(examples.leaves, examples.own, strict=True)]

    def one(token: Tensor, *example: Any) -> Tensor:
        recorder.token = token
        calls = ExampleCalls(subject.guard, recorder, recorder.draws, batched_from_the_start=batched_from_the_start)
        copied = _spread(recorder) if batched_from_the_start else None
        with subject.guard.fresh(copied), running_again_by(lambda: _again(subject, calls, recorder)), calls:
            return checked_losses(run(pytree.tree_unflatten(list(example), examples.tree)), 1).reshape(())

    token = torch.zeros(examples.count, device=recorder.anchor.device)
    return vectorise(one, token, leaves, examples.own)


def _spread(recorder: Recorder) -> Callable[[Tensor], Tensor]:
    def copied(buffer: Tensor) -> Tensor:
        assert recorder.token is not None
        found: Tensor = recorder.on_physical_batch(lambda t: buffer.expand(len(t), *buffer.shape).clone(), recorder.token)
        return found

    return copied


def _again(subject: Subject, calls: ExampleCalls, recorder: Recorder) -> Callable[[Callable[[], Any]], Any]:
    """Return what runs a checkpointed part once more: in a vmap that is numbered alike, with the same random numbers."""
    mark = recorder.draws.mark()

    def again(part: Callable[[], Any]) -> None:
        def inside(token: Tensor) -> Tensor:
            recorder.token = token
            with subject.guard.fresh(), calls.for_token(token):
                part()
            return token

        with recorder.draws.replayed_from(mark):
            vectorise(inside, torch.zeros(recorder.examples, device=recorder.anchor.device), (), ())

    return again


def record(
    subject: Subject, examples: Examples, draws: Draws, *, coefficient: float = 1.0, batched_from_the_start: bool = False
) -> Tape:
    """Return the tape of one forward and one backward pass; a compiled model runs uncompiled.

    Args:
        subject: what is differentiated.
        examples: the physical batch, B ≥ 1.
        draws: its random numbers.
        coefficient: of the losses.
        batched_from_the_start: whether new tensors and buffers belong to examples.

    Raises:
        SplitError: examples differ in what steers them.
        UntraceableError: a parameter was used in a way that no rule follows, or something drew from a generator that everybody
            uses.
        Exception: whatever user code, or torch inside of vmap, raises.
    """
    recorder, watch = Recorder(examples.count, subject.parameters, draws), Watch()
    try:
        _run(subject, examples, recorder, coefficient, batched_from_the_start=batched_from_the_start)
        if watch.moved():
            raise UntraceableError("random numbers are drawn from a generator that examples would share")
        return assemble(recorder)
    finally:
        recorder.forget()


def _run(subject: Subject, examples: Examples, recorder: Recorder, coefficient: float, *, batched_from_the_start: bool) -> None:
    with torch.enable_grad(), uncompiled(), no_user_code_on_the_physical_batch():
        total = losses_in_vmap(
            subject, examples, recorder, lambda example: subject.loss_fn(subject.model, example),
            batched_from_the_start=batched_from_the_start,
        ).sum()  # fmt: skip
        subject.foreign = [weakref.ref(tensor) for tensor in recorder.foreign]
        total = total if coefficient == 1 else coefficient * total
        if total.requires_grad:
            with without_autocast(total.device):
                missed = _backward(total, recorder)
            if missed:
                raise UntraceableError(f"no rule follows every use of {', '.join(missed)}")
    subject.low_precision = recorder.low_precision


def _backward(total: Tensor, recorder: Recorder) -> list[str]:
    """Run the backward pass of what the rules computed, and of nothing else; return the parameters that it reached itself."""
    found = torch.autograd.grad(total, [recorder.anchor, *recorder.parameters.values()], allow_unused=True)
    return [name for name, gradient in zip(recorder.parameters, found[1:], strict=True) if gradient is not None]


__all__ = ["Subject", "losses_in_vmap", "record"]
