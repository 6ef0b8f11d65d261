"""Passes that cover a batch: one if its examples agree, else one for each group that does, else a loop over examples."""

from __future__ import annotations

__all__ = ["METHODS", "Passes"]

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from privet._utils.torch_state import has_modes
from privet.errors import USER_ERRORS, InvalidArgumentError, UnsupportedModelError
from privet.gradients.combine.sums import sum_grads
from privet.gradients.core.consensus import SplitError
from privet.gradients.core.examples import Examples
from privet.gradients.core.private import raise_interrupt
from privet.gradients.core.randomness import Draws, SeedSource
from privet.gradients.core.recorder import UntraceableError
from privet.gradients.methods import ghost, loop
from privet.gradients.methods.ghost import Program
from privet.gradients.methods.past_iterates import Past, swap_parameters, swap_values
from privet.gradients.methods.tape import Tape

METHODS = ("ghost", "loop")
# Examples, their positions in the batch and their draws; and which of them are meant, all if None.
_Tried = tuple[Tape | None, Sequence[Tensor] | None, Sequence[Draws]]
_Part = tuple[Examples, Tensor, Sequence[Draws], Tensor | None]


@dataclass
class Passes:
    """The passes over a batch.

    Args:
        method: "auto" or "ghost": all examples of a pass at once, and the loop for those that cannot be; "loop": one example at a
            time. "ghost" raises where "auto" falls back, unless `skip_errors` is set.
        past: parameter sets with coefficients; the gradients at these are added.
        skip_errors: whether an example whose own computation raises contributes zero instead of raising.
        looped: number of examples computed by the loop.
        groups: number of passes.
    Attributes:
        draws: of the pass whose tape was last yielded.
    """

    program: Program
    seeds: SeedSource
    method: str = "auto"
    past: Past = ()
    skip_errors: bool = False
    looped: int = 0
    groups: int = 0
    draws: Draws = field(init=False)

    def tapes(self, examples: Examples) -> Iterator[tuple[Tensor, Tape]]:
        """Yield positions of examples, and their tape, until the batch is covered.

        Parts wait in a list: user code runs equally deep in the stack, which a recursive model may fill, for all splits.
        """
        if not examples.count:
            return
        draws: Sequence[Draws] = [Draws(examples.count, self.seeds) for _ in range(1 + len(self.past))]
        waiting: list[_Part] = [(examples, _positions(examples.count), draws, None)]
        while waiting:
            part = waiting.pop()
            examples, index, draws = _select(*part)
            tape, groups, draws = self._try_together(examples, draws)
            if tape is not None:
                self.groups += 1
                yield index, tape
            elif groups is not None:
                waiting += [(examples, index, draws, group) for group in reversed(groups)]
            else:
                yield from self._one_by_one(examples, index, draws)

    def _try_together(self, examples: Examples, draws: Sequence[Draws]) -> _Tried:
        """Return the tape of all examples, or the parts of them that are to be tried instead; neither, if each goes alone.

        And the draws of the last attempt: what it drew is drawn again, since its numbers decided whether it was given up.
        """
        if self.method == "loop" or _has_backward_hooks(self.program):
            return None, None, draws
        for fresh in (False, True) if not self.program.writes_into_new_tensors else (True,):
            draws = draws if not fresh or self.program.writes_into_new_tensors else _restart(draws, _positions(examples.count))
            try:
                tape = self._record_together(examples, draws, batched_from_the_start=fresh)
            except SplitError as split:
                return None, split.groups, draws
            except (InvalidArgumentError, UnsupportedModelError):
                if not self.skip_errors:
                    raise
            except USER_ERRORS as error:  # and torch raises many kinds for what it cannot vectorise
                raise_interrupt(error)
                if self.method == "ghost" and fresh and not self.skip_errors:
                    raise
            else:
                self.program.writes_into_new_tensors, self.draws = fresh, draws[0]
                return tape, None, draws
        # One example that raises must not send all others through the loop: it is isolated by bisection.
        bisects = self.skip_errors and examples.count > 1
        return None, _positions(examples.count).tensor_split(2) if bisects else None, draws

    def _record_together(self, examples: Examples, draws: Sequence[Draws], *, batched_from_the_start: bool) -> Tape:
        tape = ghost.record(self.program, examples, draws[0], batched_from_the_start=batched_from_the_start)
        for (coefficient, values), own in zip(self.past, draws[1:], strict=True):
            # Separate parameter objects: tensors derived from them are differentiated later, when the sum is computed.
            others = {name: nn.Parameter(value.detach()) for name, value in values.items()}
            with swap_parameters(self.program.model, self.program.parameters, others):
                program = replace(self.program, parameters=others)
                earlier = ghost.record(program, examples, own, batched_from_the_start=batched_from_the_start)
                if any(known() is p for known in program.foreign for p in self.program.parameters.values()):
                    raise UntraceableError("a parameter is stored outside the modules")
            tape = _add_tapes(tape, earlier, coefficient)
        return tape

    def _one_by_one(self, examples: Examples, index: Tensor, draws: Sequence[Draws]) -> Iterator[tuple[Tensor, Tape]]:
        for position in range(examples.count):
            where = _positions(examples.count)[position : position + 1]
            one, own = examples.select(where), _restart(draws, where)
            self.looped += 1
            try:
                tape = self._differentiate_one(one, own)
            except USER_ERRORS as error:
                raise_interrupt(error)
                if not self.skip_errors:
                    raise
                tape = Tape(1, self.program.parameters, {})
            yield index[where], tape

    def _differentiate_one(self, one: Examples, draws: Sequence[Draws]) -> Tape:
        tape = loop.differentiate(self.program, one, draws[0], self.seeds())
        for (coefficient, values), own in zip(self.past, draws[1:], strict=True):
            with swap_values(self.program.parameters, values):
                tape = _add_tapes(tape, loop.differentiate(self.program, one, own, self.seeds()), coefficient)
        return tape


def _select(
    examples: Examples, index: Tensor, draws: Sequence[Draws], group: Tensor | None
) -> tuple[Examples, Tensor, Sequence[Draws]]:
    """Return the examples that a part means, their positions and draws."""
    return (examples, index, draws) if group is None else (examples.select(group), index[group], _restart(draws, group))


def _positions(count: int) -> Tensor:
    """Return 0, 1, …, count − 1, kept because a new tensor takes as long as a small product; new inside a mode of the user's."""
    return torch.arange(count, device="cpu") if has_modes() else _known_positions(count)


@functools.lru_cache(maxsize=64)
def _known_positions(count: int) -> Tensor:
    return torch.arange(count, device="cpu")


def _restart(draws: Sequence[Draws], index: Tensor) -> list[Draws]:
    return [each.restart(index) for each in draws]


def _add_tapes(one: Tape, other: Tape, coefficient: float) -> Tape:
    """Return the tape of each example's gradients on one tape plus a multiple of those on another.

    Not the gradients of a multiple of the loss: a backward pass of the user's need not be linear.
    """
    grads = dict(one.grads)
    for name, grad in other.grads.items():
        more = grad.scale(coefficient)
        grads[name] = sum_grads([grads[name], more]) if name in grads else more
    return Tape(one.examples, one.parameters, grads)


def _has_backward_hooks(program: Program) -> bool:
    """Return whether backward hooks are registered: in a pass they would see the gradients of all examples.

    Those of modules that only the pass finds ask whether tensors require a gradient, and are refused then.
    """
    table: Any = nn.modules.module
    if table._global_backward_hooks or table._global_backward_pre_hooks:
        return True
    hooked = [module for module in program.guard.modules if module._backward_hooks or module._backward_pre_hooks]
    asked = [parameter for parameter in program.parameters.values() if parameter._backward_hooks]
    return bool(hooked or asked)
