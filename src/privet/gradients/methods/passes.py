"""From a batch to tapes that cover it: one pass where its examples agree, a pass for each group where they do not, else one by
one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from privet.errors import InvalidArgumentError, UnsupportedModelError
from privet.gradients.combine.sums import sum_grads
from privet.gradients.core.consensus import SplitError
from privet.gradients.core.examples import Examples
from privet.gradients.core.randomness import Draws, Seeds
from privet.gradients.core.recorder import UntraceableError
from privet.gradients.methods import ghost, loop
from privet.gradients.methods.ghost import Subject
from privet.gradients.methods.past_iterates import Past, holding, replaced
from privet.gradients.methods.tape import Tape

METHODS = ("ghost", "loop")


@dataclass
class Passes:
    """How a batch is gone through.

    Args:
        subject: what is differentiated.
        seeds: source of seeds.
        method: "auto" or "ghost": all examples of a pass at once, with the loop for those that cannot be; "loop": one example
            at a time. "ghost" raises where "auto" falls back, unless it is forgiving.
        past: parameter sets with coefficients; the gradients at these are added.
        forgiving: whether an example whose own computation raises contributes zero, instead of raising.

    Attributes:
        draws: of the pass whose tape was last yielded.
        looped: how many examples went one at a time.
        groups: how many passes there were.
    """

    subject: Subject
    seeds: Seeds
    method: str = "auto"
    past: Past = ()
    forgiving: bool = False
    looped: int = 0
    groups: int = 0
    draws: Draws = field(init=False)

    def tapes(self, examples: Examples) -> Iterator[tuple[Tensor, Tape]]:
        """Yield the positions of some examples of the batch, and their tape, until all are covered."""
        if not examples.count:
            return
        draws = [Draws(examples.count, self.seeds) for _ in range(1 + len(self.past))]
        yield from self._cover(examples, torch.arange(examples.count), draws)

    def _cover(self, examples: Examples, index: Tensor, draws: Sequence[Draws]) -> Iterator[tuple[Tensor, Tape]]:
        if self.method == "loop" or _has_backward_hooks(self.subject):
            yield from self._one_by_one(examples, index, draws)
            return
        groups: Sequence[Tensor] | None = None
        tape: Tape | None = None
        for fresh in (False, True) if not self.subject.writes_into_new_tensors else (True,):
            if groups is not None or tape is not None:
                break
            draws = draws if not fresh or self.subject.writes_into_new_tensors else _again(draws, torch.arange(examples.count))
            try:
                tape = self._together(examples, draws, batched_from_the_start=fresh)
                self.subject.writes_into_new_tensors = fresh
            except SplitError as split:
                groups = split.groups
            except (InvalidArgumentError, UnsupportedModelError):
                if not self.forgiving:
                    raise
            except Exception:  # torch raises many kinds for what it cannot vectorise
                if self.method == "ghost" and fresh and not self.forgiving:
                    raise
        if tape is not None:
            self.groups, self.draws = self.groups + 1, draws[0]
            yield index, tape
        elif groups is not None:
            for group in groups:
                yield from self._cover(examples.select(group), index[group], _again(draws, group))
        elif self.forgiving and examples.count > 1:
            # One example that raises must not send all others through the loop: it is found by halving.
            for half in torch.arange(examples.count).tensor_split(2):
                yield from self._cover(examples.select(half), index[half], _again(draws, half))
        else:
            yield from self._one_by_one(examples, index, draws)

    def _together(self, examples: Examples, draws: Sequence[Draws], *, batched_from_the_start: bool) -> Tape:
        tape = ghost.record(self.subject, examples, draws[0], batched_from_the_start=batched_from_the_start)
        for (coefficient, values), own in zip(self.past, draws[1:], strict=True):
            # Parameters of their own: what is derived from them is differentiated when the sum is taken, and has to find them
            # again.
            others = {name: nn.Parameter(value.detach()) for name, value in values.items()}
            with replaced(self.subject.model, self.subject.parameters, others):
                subject = replace(self.subject, parameters=others)
                earlier = ghost.record(
                    subject, examples, own, coefficient=coefficient, batched_from_the_start=batched_from_the_start
                )
                if any(known() is p for known in subject.foreign for p in self.subject.parameters.values()):
                    raise UntraceableError("a parameter is kept outside of the modules")
            tape = _added(tape, earlier)
        return tape

    def _one_by_one(self, examples: Examples, index: Tensor, draws: Sequence[Draws]) -> Iterator[tuple[Tensor, Tape]]:
        for position in range(examples.count):
            where = torch.tensor([position])
            one, own = examples.select(where), _again(draws, where)
            self.looped += 1
            try:
                tape = self._alone(one, own)
            except Exception:
                if not self.forgiving:
                    raise
                tape = Tape(1, self.subject.parameters, {})
            yield index[where], tape

    def _alone(self, one: Examples, draws: Sequence[Draws]) -> Tape:
        tape = loop.differentiate(self.subject, one, draws[0], self.seeds())
        for (coefficient, values), own in zip(self.past, draws[1:], strict=True):
            with holding(self.subject.parameters, values):
                tape = _added(tape, loop.differentiate(self.subject, one, own, self.seeds(), coefficient))
        return tape


def _again(draws: Sequence[Draws], index: Tensor) -> list[Draws]:
    return [each.again(index) for each in draws]


def _added(one: Tape, other: Tape) -> Tape:
    """Return the tape of the sum of two gradients of each example."""
    names = dict.fromkeys([*one.uses, *other.uses])
    uses = {name: sum_grads([tape.uses[name] for tape in (one, other) if name in tape.uses]) for name in names}
    return Tape(one.examples, one.parameters, uses)


def _has_backward_hooks(subject: Subject) -> bool:
    """Return whether somebody's hooks change gradients on their way back: in a pass they would see those of all examples."""
    table: Any = nn.modules.module
    if table._global_backward_hooks or table._global_backward_pre_hooks:
        return True
    hooks = any(module._backward_hooks or module._backward_pre_hooks for module in subject.model.modules())
    return hooks or any(parameter._backward_hooks for parameter in subject.parameters.values())


__all__ = ["METHODS", "Passes"]
