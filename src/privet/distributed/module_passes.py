"""Passes in which a module's parameters are whole only around its forward and its backward pass, as under FSDP2 itself.

All ranks gather the same modules in the same order in each pass: that of a pass over public input. A rank whose
pass fails, or that has no examples, gathers the rest alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge
from torch.overrides import _get_current_function_mode_stack
from torch.utils import _pytree as pytree

from privet.distributed.sharded import ShardedModel
from privet.errors import USER_ERRORS, raise_interrupt
from privet.gradients.core.batching import get_unwrapped, is_batched
from privet.gradients.core.recorder import UntraceableError
from privet.gradients.methods.example_calls import ExampleCalls
from privet.gradients.methods.ghost import Program
from privet.gradients.methods.tape import Tape


class ModulePasses:
    """The passes of one sharded model. Its hooks must be Privet's (`ShardedModel.without_hooks`).

    Attributes:
        order: the modules in the order in which a pass gathers them; None before the first pass, which finds it.
    """

    def __init__(self, model: ShardedModel, program: Program) -> None:
        self.model, self._program = model, program
        self.order: list[int] | None = None
        self._begin()

    def _begin(self) -> None:
        self._gathered: list[int] = []
        self._open: set[int] = set()
        self._calls: dict[int, list[_Call]] = {}  # module → its calls whose forward pass runs
        self._running: dict[int, int] = {}  # module → its calls whose backward pass has begun and not ended
        self._marks: dict[tuple[Any, int], _Mark] = {}
        self._recorder: Any = None
        self._in_backward = False

    def run(self, record: Callable[[], Tape] | None) -> tuple[Tape | None, bool]:
        """Run a forward and a backward pass; return its tape, and whether it failed.

        A rank whose pass fails, or that has no examples (None), issues the same collectives as the others.

        Modules whose values the sum needs stay whole until `free` is called for them.
        """
        self._begin()
        tape, failed = None, False
        self.model.enter, self.model.leave, self._program.frees_parameters = self._enter, self._leave, True
        try:
            tape = None if record is None else record()
        except USER_ERRORS as error:
            raise_interrupt(error)
            if self.order is None:
                raise
            self.model.world.check_running()
            failed = True
        finally:
            self.model.enter, self.model.leave, self._program.frees_parameters = None, None, False
            for mark in self._marks.values():
                mark.remove()
            self._marks.clear()
        if self.order is None:
            self.order = self._gathered
        for key in self.order[len(self._gathered) :]:
            self.model.free(key)  # FSDP gathers nothing if it is whole
            self.model.gather(key)
            self._open.add(key)
        for key in tuple(self._open):
            self._free(key)
        return tape, failed

    def is_needed(self, key: int) -> bool:
        """Return whether the sum reads values of a module's parameters: tensors derived from them are differentiated again."""
        return self._recorder is not None and not self._recorder.reread.isdisjoint(self.model.members[key])

    def free(self, key: int) -> None:
        """Free the memory of a module that was kept for the sum."""
        self._open.discard(key)
        self.model.free(key)

    def _gather(self, key: int) -> None:
        if key in self._open:
            return
        place = len(self._gathered)
        if self.order is not None and self.order[place : place + 1] != [key]:
            raise UntraceableError("modules run in another order than on the input of the check")
        self._gathered.append(key)
        self._open.add(key)
        with torch.no_grad():
            self.model.gather(key)
        self._program.guard.forget_places()

    def _free(self, key: int) -> None:
        if key in self._open and not self.is_needed(key):
            self.free(key)
            self._program.guard.forget_places()

    # Called by the hooks of modules, inside vmap.

    def _enter(self, key: int, given: Any) -> Any:
        tensors = self._below(given, lambda: self._gather(key))
        call = _Call(self, key, len(tensors))
        for x in tensors:
            self._mark(x).frees.append(call.end)
        self._calls.setdefault(key, []).append(call)
        return given

    def _leave(self, key: int, output: Any) -> Any:
        call = self._calls[key].pop()

        def done() -> None:
            if not self._in_backward and key != self.model.root:
                self._free(key)

        for x in self._below(output, done):
            self._mark(x).gathers.append(call.begin)
        return output

    def _below(self, values: Any, act: Callable[[], None]) -> list[Tensor]:
        """Call a function below vmap; return the tensors of all examples among some values that require a gradient."""
        with torch._C.DisableTorchFunction():
            calls = next(mode for mode in reversed(_get_current_function_mode_stack()) if isinstance(mode, ExampleCalls))
            self._recorder = recorder = calls.recorder

            def run(token: Tensor) -> Tensor:
                act()
                return token

            recorder.run_on_physical_batch(run, recorder.token)
            found = [get_unwrapped(x) for x in pytree.tree_leaves(values) if is_batched(x)]
            return [x for x in found if x.requires_grad] if torch.is_grad_enabled() else []

    def _mark(self, x: Tensor) -> _Mark:
        with torch._C.DisableTorchFunction():
            edge = get_gradient_edge(x)
            place = edge.node, edge.output_nr
            if place not in self._marks:
                self._marks[place] = _Mark(x)
            return self._marks[place]

    def begin(self, key: int) -> None:
        """Gather a module before the backward pass of one of its calls."""
        self._in_backward = True
        self._running[key] = self._running.get(key, 0) + 1
        self._gather(key)

    def end(self, key: int) -> None:
        """Release a module after the backward pass of the last of its running calls."""
        self._running[key] -= 1
        if not self._running[key]:
            self._free(key)


class _Call:
    """One call of a module, and how far its backward pass is."""

    def __init__(self, passes: ModulePasses, key: int, inputs: int) -> None:
        self._passes, self._key, self._inputs, self._begun = passes, key, inputs, False

    def begin(self) -> None:
        """Note that the gradient of one output is known."""
        if not self._begun:
            self._begun = True
            self._passes.begin(self._key)

    def end(self) -> None:
        """Note that the gradient of one input is known; after the last, nothing of this call is left.

        Torch runs the latest node of a graph first, so the nodes of a call end before the node that made its input begins.
        """
        self._inputs -= 1
        if self._begun and not self._inputs:
            self._passes.end(self._key)


class _Mark:
    """What happens when the gradient of a tensor of all examples is known: modules are freed, and then others gathered."""

    def __init__(self, x: Tensor) -> None:
        self.frees: list[Callable[[], None]] = []
        self.gathers: list[Callable[[], None]] = []
        self._handle = x.register_hook(self._call)

    def _call(self, gradient: Tensor) -> None:
        for each in (*self.frees, *self.gathers):
            each()

    def remove(self) -> None:
        """Remove the hook, and with it all references to modules."""
        self._handle.remove()
