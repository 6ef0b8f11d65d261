"""Clipped sums of a sharded model, of which each rank gets its shards: by module, or with the whole model gathered."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from privet._utils.randomness import preserve_generators
from privet._utils.signals import hold_signals
from privet.clipping.clipped_sum import ClippedSum
from privet.clipping.weighing import read_scales, weigh
from privet.distributed.module_passes import ModulePasses
from privet.distributed.sharded import ShardedModel
from privet.distributed.world import GATHER, PASS
from privet.errors import USER_ERRORS, PrivetWarning, raise_interrupt
from privet.gradients.core.consensus import SplitError
from privet.gradients.core.examples import Examples
from privet.gradients.core.randomness import Draws
from privet.gradients.engine import Clipper, Engine
from privet.gradients.methods import ghost
from privet.gradients.methods.passes import describe
from privet.gradients.methods.tape import Groups, Tape, Weights, weigh_examples
from privet.reading.batches import Group, PhysicalBatch, move_groups

Batches = Iterator[tuple[PhysicalBatch, list[Group]]]
SumGradients = Callable[[Engine, Batches, Clipper], ClippedSum]


@dataclass(eq=False)
class ShardedSums:
    """The clipped sums of a training of a sharded model.

    By module, passes gather one module after another, as FSDP does, and sums are reduced module by module: a rank never holds
    the whole model, nor its gradient. Gathered, it holds both during a step, and any passes are possible, without collectives.
    """

    model: ShardedModel
    passes: ModulePasses | None = None  # None to gather the whole model

    @staticmethod
    def of(model: ShardedModel, engine: Engine, public: Sequence[Examples]) -> ShardedSums:
        """Return the sums by module if a pass over one of some public inputs works; all ranks choose alike.

        Otherwise, each step gathers the whole model, and a warning says why.
        """
        passes, why = ModulePasses(model, engine.program), "the check of the model on public input is switched off"
        model.world.vote(GATHER)  # what one rank has refused, all others refuse before they gather
        if model.world.gathered:
            return ShardedSums(model)
        if engine.method == "loop":
            why = "examples are computed one by one"
        elif model.shared:
            why = "several modules are sharded together"
        else:
            for examples in public:
                if not (why := _try(passes, engine, examples)):
                    break
        told = model.world.gather((why, passes.order))
        if not any(reason for reason, _ in told):
            return ShardedSums(model, passes)
        reason = next(reason for reason, _ in told if reason)
        warnings.warn(f"each step gathers the whole model on every rank, because {reason}", PrivetWarning, stacklevel=2)
        return ShardedSums(model)

    def sum(self, sum_gradients: SumGradients, engine: Engine, batches: Batches, clipper: Clipper) -> ClippedSum:
        """Return the clipped sum: this rank's shards of that over all ranks, or its own part by a function of one process."""
        if self.passes is not None:
            return self._sum_by_module(self.passes, engine, batches, clipper)
        with self.model.gathered():
            return sum_gradients(engine, batches, clipper)

    def reduce(self, clipped: ClippedSum) -> ClippedSum:
        """Return this rank's shards of a sum of which every rank has a part; by module, it has them already."""
        if self.passes is not None:
            return clipped
        return replace(clipped, tensors=self.model.reduce_all(dict(clipped.tensors)))

    def _sum_by_module(self, passes: ModulePasses, engine: Engine, batches: Batches, clipper: Clipper) -> ClippedSum:
        world, rule, groups = self.model.world, clipper.rule, _list_groups(batches, engine.device)
        norms = torch.zeros(len(clipper.groups), 0, dtype=torch.float64, device=engine.device)
        total = {**self.model.zero_shards(), **weigh(rule, norms, clipper.groups)[1]}
        failed: Examples | None = None
        error: BaseException | None = None
        with self.model.without_hooks(), preserve_generators():
            while True:
                examples = None
                try:
                    examples = None if error is not None else next(groups, None)
                except BaseException as problem:  # all ranks raise
                    error = problem
                with hold_signals():
                    told = world.exchange(PASS, float(examples is not None), float(failed is not None), error)
                    if any(again for _, again in told):
                        self._repeat(engine, failed, clipper, total)
                    if not any(more for more, _ in told):
                        break
                    has_failed, error = self._run(passes, engine, examples, clipper, total)
                    failed = examples if has_failed else None
        scales, sensitivity = read_scales(rule, tuple(clipper.summed))
        return ClippedSum(total, sensitivity, torch.zeros(0, dtype=torch.float64, device="cpu"), None, scales)

    def _run(
        self, passes: ModulePasses, engine: Engine, examples: Examples | None, clipper: Clipper, total: dict[str, Tensor]
    ) -> tuple[bool, BaseException | None]:
        """Add the sum of one pass; a rank without examples takes part. Return whether the pass failed, and a later error.

        After the first module is reduced, the examples must not be summed again: they would count twice.
        """
        tape, failed = passes.run(None if examples is None else lambda: _record(engine, examples))
        weights, later = Weights(torch.empty(0)), None
        if tape is not None:
            try:
                weights, statistics, _, _ = weigh_examples(tape, clipper.rule, clipper.groups)
            except USER_ERRORS as error:
                raise_interrupt(error)
                tape, failed = None, True
            else:
                _add(total, statistics)
        for key, names in enumerate(self.model.members):
            if names:
                sums = None
                if tape is not None and later is None:
                    try:
                        sums = _sum_of(tape, weights, clipper.groups, names)
                    except USER_ERRORS as error:
                        later = error
                _add(total, self.model.reduce(self.model.zeros(names) if sums is None else sums))
            passes.free(key)
        return failed, later

    def _repeat(self, engine: Engine, examples: Examples | None, clipper: Clipper, total: dict[str, Tensor]) -> None:
        """Add the sum over examples whose pass failed, by other passes: with the whole model, so without collectives."""
        keys = range(len(self.model.modules))
        self.model.gather(*keys)
        sums = {} if examples is None else engine.clipped_sum(examples, clipper).sums
        own = {name: sums.pop(name) for name in self.model.whole if name in sums}
        _add(total, sums)
        _add(total, self.model.reduce_all(own or self.model.zeros(list(self.model.whole))))
        self.model.free(*keys)


def _list_groups(batches: Batches, device: torch.device) -> Iterator[Examples]:
    for _, groups in batches:
        for group in move_groups(groups, device):
            yield group.examples


def _try(passes: ModulePasses, engine: Engine, examples: Examples) -> str:
    """Return why a pass by module over public examples does not work, or nothing."""
    reasons, program = [], engine.program
    for program.takes_gradients, program.writes_into_new_tensors in itertools.product((False, True), repeat=2):
        try:
            with passes.model.without_hooks(), preserve_generators():
                tape, _ = passes.run(lambda: _record(engine, examples))
                assert tape is not None
                groups, ones = [tuple(engine.parameters)], Weights(torch.ones(1, tape.examples, device=engine.device))
                tape.group_norms(groups)
                for key, names in enumerate(passes.model.members):
                    if names:
                        _sum_of(tape, ones, groups, names)
                    passes.free(key)
        except USER_ERRORS as error:
            raise_interrupt(error)
            differ = isinstance(error, SplitError)
            reasons.append("examples differ in a value that controls the model" if differ else describe(error))
        else:
            return ""
    return reasons[0]


def _record(engine: Engine, examples: Examples) -> Tape:
    program = engine.program
    fresh = program.writes_into_new_tensors
    return ghost.record(program, examples, Draws(examples.count, engine.seeds), batched_from_the_start=fresh)


def _sum_of(tape: Tape, weights: Weights, groups: Groups, names: Sequence[str]) -> dict[str, Tensor]:
    """Return the sums of some parameters' gradients, which the tape then lacks."""
    own = {name: tape.parameters[name] for name in names}
    part = Tape(tape.examples, own, {name: tape.grads.pop(name) for name in names if name in tape.grads})
    return weights.sum(part, [[name for name in group if name in own] for group in groups])


def _add(total: dict[str, Tensor], sums: Mapping[str, Tensor]) -> None:
    for name, value in sums.items():
        total[name] += value
