"""Passes that cover a batch: one if its examples agree, else one for each group that does, else a loop over examples."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from privet.errors import USER_ERRORS, InvalidArgumentError, PrivetError, UnsupportedModelError, raise_interrupt, real
from privet.gradients.combine.sums import sum_grads
from privet.gradients.core.consensus import SplitError
from privet.gradients.core.examples import Examples
from privet.gradients.core.randomness import Draws, SeedSource
from privet.gradients.core.recorder import TakesGradientsError, UntraceableError
from privet.gradients.methods import ghost, loop
from privet.gradients.methods.ghost import Program
from privet.gradients.methods.tape import Tape

# Pairs of a coefficient and the named parameters at which gradients are taken, multiplied by it, and added before the norm is
# taken: in one pass for each, whose gradients of a parameter are combined like those of several uses in one pass.
Past = Sequence[tuple[float, Mapping[str, Tensor]]]
METHODS = ("ghost", "loop")
_LONGEST = 200  # most characters of a message of torch's
# Examples, their positions in the batch and their draws; and which of them are meant, all if None.
_Tried = tuple[Tape | None, Sequence[Tensor] | None, Sequence[Draws]]
_Part = tuple[Examples, Tensor, Sequence[Draws], Tensor | None]


@dataclass
class Passes:
    """The passes over a batch: of all examples at once, and the loop for those that cannot be."""

    program: Program
    seeds: SeedSource
    method: str = "auto"  # or "loop": one example at a time; or "ghost", which raises where "auto" loops
    past: Past = ()  # the gradients at these parameters are added
    skip_errors: bool = False  # whether an example whose own computation raises contributes zero instead
    looped: int = 0  # number of examples computed by the loop
    groups: int = 0  # number of passes that were completed
    begun: int = 0  # number of passes, with those that were given up
    explain: bool = False  # whether to keep in `reason` what errors say: not of private data, and `str(error)` is user code
    reason: str = ""  # why the last pass was given up, for groups or the loop
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
            examples, index, draws, group = waiting.pop()
            if group is not None:
                examples, index, draws = examples.select(group), index[group], _restart(draws, group)
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
            self.reason = "backward hooks would see the gradients of all examples"
            return None, None, draws
        why = ""
        for fresh in (False, True) if not self.program.writes_into_new_tensors else (True,):
            draws = draws if not fresh or self.program.writes_into_new_tensors else _restart(draws, _positions(examples.count))
            self.begun += 1
            try:
                tape = ghost.record(self.program, examples, draws[0], batched_from_the_start=fresh)
                if self.past:
                    tape = self._add_past(tape, examples, draws[1:], batched_from_the_start=fresh)
            except SplitError as split:
                self.reason = f"{split.call or 'the program'} reads a value that differs among them"
                return None, _as_tensors(split.groups), draws
            except (InvalidArgumentError, UnsupportedModelError):
                if not self.skip_errors:
                    raise
            except USER_ERRORS as error:  # and torch raises many kinds for what it cannot vectorise
                raise_interrupt(error)
                if isinstance(error, TakesGradientsError):
                    self.program.takes_gradients = True
                    return self._try_together(examples, [each.restart(_positions(examples.count)) for each in draws])
                why = describe(error) if self.explain else type(error).__name__
                if isinstance(error, TypeError) and examples.constants:  # C code read a constant, and asked for its real type
                    self.reason = why
                    return None, _split_constants(examples), draws
                if self.method == "ghost" and fresh and not self.skip_errors:
                    raise
            else:
                self.program.writes_into_new_tensors, self.draws = fresh, draws[0]
                return tape, None, draws
        self.reason = why
        # One example that raises must not send all others through the loop: it is isolated by bisection.
        bisects = self.skip_errors and examples.count > 1
        return None, _positions(examples.count).tensor_split(2) if bisects else None, draws

    def _add_past(self, tape: Tape, examples: Examples, draws: Sequence[Draws], *, batched_from_the_start: bool) -> Tape:
        for (coefficient, values), own in zip(self.past, draws, strict=True):
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


def describe(error: BaseException) -> str:
    """Return what an error says, in one line."""
    if isinstance(error, PrivetError):
        call = getattr(error, "call", "")
        return f"{error} ({call})" if call else str(error)
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:_LONGEST]}"


def _split_constants(examples: Examples) -> Sequence[Tensor]:
    try:
        examples.constants[0].split()
    except SplitError as split:
        return _as_tensors(split.groups)


def _as_tensors(groups: Sequence[Sequence[int]]) -> list[Tensor]:
    return [torch.tensor(group, device="cpu") for group in groups]


def _positions(count: int) -> Tensor:
    """Return 0, 1, …, count − 1, kept because a new tensor takes as long as a small product; new inside a mode of the user's."""
    has_modes = torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack()
    return torch.arange(count, device="cpu") if has_modes else _known_positions(count)


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
    for module in program.guard.modules:
        if module._backward_hooks or module._backward_pre_hooks:
            return True
    return any(map(_HOOKS_OF_TENSOR, program.parameters.values()))


_HOOKS_OF_TENSOR = operator.attrgetter("_backward_hooks")


def check_past(past: Past, parameters: Mapping[str, Tensor]) -> None:
    """Refuse parameter sets that are not those of the model, and coefficients that are not finite."""
    expected = {name: parameter.shape for name, parameter in parameters.items()}
    for coefficient, values in past:
        real("past", coefficient, "Each set comes as (coefficient, {name: tensor}).")
        if {name: value.shape for name, value in values.items()} != expected:
            raise InvalidArgumentError("past", sorted(values), "values for exactly the trainable parameters, of their shapes")


@contextlib.contextmanager
def swap_values(parameters: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> Iterator[None]:
    """Return a context in which the parameters hold other values; do not differentiate its results outside it."""
    before = {name: parameter.data for name, parameter in parameters.items()}
    try:
        for name, parameter in parameters.items():
            parameter.data = values[name].detach()
        yield
    finally:
        for name, parameter in parameters.items():
            parameter.data = before[name]


@contextlib.contextmanager
def swap_parameters(model: nn.Module, parameters: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> Iterator[None]:
    """Return a context in which other parameters replace the model's, in all of its modules."""
    names = {id(parameter): name for name, parameter in parameters.items()}
    places = [
        (module, own, parameter)
        for module in model.modules()
        for own, parameter in module.named_parameters(recurse=False, remove_duplicate=False)
        if id(parameter) in names
    ]
    try:
        for module, own, parameter in places:
            module._parameters[own] = others[names[id(parameter)]]  # type: ignore[assignment]
        yield
    finally:
        for module, own, parameter in places:
            module._parameters[own] = parameter
