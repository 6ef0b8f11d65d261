"""The loop: reserve → sample → gradients → clip → noise → divide → optimizer, for every step alike."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import Dataset

from privet import checkpoint
from privet.accounting import default_accountant
from privet.accounting.statement import Guarantee
from privet.batches import Collate, PhysicalBatch, Rows, check_dataset, check_sizes, physical_batches, split
from privet.clipping import KINDS, CurrentRule, Projected, Rule
from privet.errors import InvalidArgumentError, LedgerError, UnsupportedModelError, count, real
from privet.files import write_text
from privet.gradients import METHODS, clipped_sum, empty_sum, trainable
from privet.gradients.averages import Averages
from privet.gradients.directions import Directions
from privet.gradients.interception import LossFunction
from privet.gradients.probe import probe as probe_model
from privet.gradients.probe import probe_projections
from privet.gradients.recorder import UntraceableError
from privet.gradients.trees import examples_in, to_device
from privet.ledger import Ledger
from privet.momentum import InnerOuter, Iterates, PerExample
from privet.noise import release
from privet.plan import Plan
from privet.sparsification import CurrentMasks, Masks
from privet.values import ClippedSum, total_size

_NOT_PROBED = (
    "The check that examples do not influence each other's gradients was switched off: if they do, nothing of this holds"
)


@dataclass(frozen=True)
class Step:
    """One completed step. It says nothing about the data: not even how many examples were drawn.

    Args:
        number: of the step within the run, from 1; steps lost to a crash are not numbered again.
        total: steps of the plan.
    """

    number: int
    total: int


class Training:
    """Trains a plain module with a plain optimizer so that the plan's guarantee holds.

    Args:
        plan: the promise; its noise and steps must be known (see `Plan.calibrate`).
        model: any `nn.Module`; it is not wrapped, and its state_dict keeps its names.
        loss_fn: (model, batch) → (B,) losses, one per example.
        optimizer: any first-order `torch.optim.Optimizer` over exactly the model's trainable parameters.
        dataset: map-style, of exactly `plan.examples` examples (users or groups, if those are the plan's unit).
        directory: where ledger and checkpoints are kept; None keeps the ledger in memory and cannot be resumed.
        physical_batch_size: most examples that go through the model at once; bounds memory, does not change the result.
        scheduler: of the learning rate, stepped once per step.
        average: a moving or uniform average of the model's parameters, updated after every step: post-processing, and so free.
        collate: list of examples → batch, for data sets that are not a `TensorDataset`.
        workers: processes that read examples ahead.
        checkpoint_every: steps between checkpoints.
        probe: whether to check on made-up examples that clipping this model means what it promises. Without it, examples
            that influence each other's gradients would go unnoticed and the guarantee would be void.
        probe_batch: a public batch to check with, for models that made-up numbers do not suit.
        method: how per-example gradients are computed: "tape", "vectorised", "loop"; "auto" is the fastest that the probe found
            right, and a method that it finds wrong is refused.

    Guarantee:
        Every release is a Gaussian mechanism on a draw of the plan's sampling scheme, with exactly its sensitivity and
        multiplier, reserved in the ledger before noise is drawn; empty samples are steps like any other; nothing else that
        depends on the data leaves this object. So parameters after any number of steps satisfy `guarantee()`.

    Raises:
        InvalidArgumentError: an argument is out of range, or data set and plan disagree.
        UnsupportedModelError: the model or loss cannot be trained with this guarantee.
        LedgerError: the directory holds a run already, or is in use.

    >>> import torch, privet
    >>> data = torch.utils.data.TensorDataset(torch.randn(100, 3), torch.randn(100))
    >>> model = torch.nn.Linear(3, 1)
    >>> plan = privet.Plan(
    ...     examples=100, sampling=privet.sampling.Poisson(batch_size=20), steps=5, delta=1e-5,
    ...     clipping=privet.clipping.Flat(bound=1.0), noise=privet.noise.Gaussian(multiplier=2.0),
    ... )
    >>> def loss_fn(model, batch):
    ...     return (model(batch[0])[:, 0] - batch[1]).square()
    >>> training = privet.Training(plan, model, loss_fn, torch.optim.SGD(model.parameters(), lr=0.1), data)
    >>> training.run()
    >>> training.steps_spent
    5
    """

    def __init__(
        self,
        plan: Plan,
        model: nn.Module,
        loss_fn: LossFunction,
        optimizer: torch.optim.Optimizer,
        dataset: Dataset[Any],
        directory: str | Path | None = None,
        *,
        physical_batch_size: int = 256,
        scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
        average: AveragedModel | None = None,
        collate: Collate | None = None,
        workers: int = 0,
        checkpoint_every: int = 100,
        probe: bool = True,
        probe_batch: Any = None,
        method: str = "auto",
        _resume: bool = False,
        _files: Mapping[str, str] | None = None,
    ) -> None:
        if not isinstance(plan, Plan):
            raise InvalidArgumentError("plan", type(plan).__name__, "a privet.Plan")
        self._total = plan.total_steps
        plan.check_covered()
        check_dataset(dataset, plan.examples, plan.unit)
        check_sizes(physical_batch_size, workers)
        count("checkpoint_every", checkpoint_every)
        if method not in ("auto", *METHODS):
            raise InvalidArgumentError("method", method, "one of 'auto', " + ", ".join(map(repr, METHODS)))
        self._plan, self.model, self.loss_fn, self.optimizer = plan, model, loss_fn, optimizer
        self._parameters = trainable(model)
        plan.clipping.groups(tuple(self._parameters))  # groups that do not fit the model are refused before the first step
        _check_optimizer(optimizer, self._parameters, fresh=not _resume)
        self._device = next(iter(self._parameters.values())).device
        self._rows = Rows(dataset, collate)
        self._physical_batch_size, self._workers = physical_batch_size, workers
        self._checkpoint_every = checkpoint_every
        self._rule = CurrentRule(plan.clipping, plan.bound_factors().tolist(), KINDS)
        self._stateful: dict[str, checkpoint.Stateful] = {"optimizer": optimizer, "rule": self._rule}
        self._masks: CurrentMasks | None = None
        times = plan.timetable()
        if plan.sparsification is not None and times is not None:
            self._masks = self._stateful["masks"] = CurrentMasks(plan.sparsification, times, self._parameters)
        self._scheduler = scheduler
        if scheduler is not None:
            self._stateful["scheduler"] = scheduler
        self.averaged_model = average
        if average is not None:
            _check_average(average, model, fresh=not _resume)
            self._stateful["average"] = average
        momentum = plan.momentum
        self._iterates = Iterates(momentum) if isinstance(momentum, InnerOuter) else Iterates()
        if isinstance(momentum, InnerOuter):
            self._stateful["momentum"] = self._iterates
        self._averages = Averages(momentum, plan.examples, self._parameters) if isinstance(momentum, PerExample) else None
        self._probed = probe
        self._method = self._choose_method(method, probe, probe_batch)
        self._source = plan.noise.make_source()
        self.directory = None if directory is None else Path(directory)
        self._completed = 0
        path = None
        if self.directory is not None:
            path = self.directory / "ledger"
            if not _resume:
                # Everything that resuming needs stands before the first step can be spent.
                _claim(self.directory)
                for name, text in {"plan.json": plan.to_json(indent=2) + "\n", **(_files or {})}.items():
                    write_text(self.directory / name, text)
        self._ledger = Ledger(plan.to_dict(), plan.multipliers().tolist(), path)
        if self.directory is not None and _resume:
            self._completed = checkpoint.load(self.directory / "checkpoint.pt", model, self._stateful, self._ledger)
        self._write_status()

    @classmethod
    def resume(
        cls,
        directory: str | Path,
        model: nn.Module,
        loss_fn: LossFunction,
        optimizer: torch.optim.Optimizer,
        dataset: Dataset[Any],
        **options: Any,
    ) -> Training:
        """Return the training of a run that was interrupted, from its last checkpoint and its ledger.

        Parameters, optimizer, scheduler and inner and outer momentum are restored to the last checkpoint; randomness is fresh,
        and the averages of `momentum.PerExample`, being private, begin anew. Steps that were reserved stay spent, also those
        whose result was lost, so ε never exceeds the plan's and fewer updates may remain.

        Args:
            directory: of the run; its `plan.json` is the plan.
            model, loss_fn, optimizer, dataset: as they were at the start.
            options: the keyword arguments of `Training`.

        Raises:
            LedgerError: there is no run there, or ledger and checkpoint do not belong together.
        """
        folder = Path(directory)
        plan = read_plan(folder)
        if not (folder / "ledger").exists():
            raise LedgerError(f"{folder} has lost its ledger: what was spent is not known, so it cannot be resumed")
        return cls(plan, model, loss_fn, optimizer, dataset, folder, _resume=True, **options)

    @property
    def plan(self) -> Plan:
        """The promise: fixed from the start, as sampling, noise and ledger were made by it."""
        return self._plan

    @property
    def steps_spent(self) -> int:
        """Steps that the ledger counts: those taken, and those lost to a crash."""
        return len(self) - self.steps_left

    @property
    def steps_left(self) -> int:
        """Steps that may still be taken."""
        upcoming = self._ledger.next_step
        return 0 if upcoming is None else self._total - upcoming + 1

    @property
    def method(self) -> str:
        """How per-example gradients are computed: "tape", "vectorised", "loop", or "auto" without a probe."""
        return self._method

    def __len__(self) -> int:
        """Return the number of steps of the plan."""
        return self._total

    def epsilon(self, accountant: str | None = None) -> float:
        """Return ε at the plan's δ for the steps spent so far, by the tightest sound accountant or the one named."""
        return self.plan.epsilon(accountant or default_accountant(self.plan.delta), steps=self.steps_spent)

    def guarantee(self) -> Guarantee:
        """Return the statement for the steps spent so far."""
        performed = f"{type(self.plan.sampling).__name__} sampling by privet.Training itself; no batches came from elsewhere"
        guarantee = replace(self.plan.guarantee(steps=self.steps_spent), performed=performed)
        return guarantee if self._probed else replace(guarantee, warnings=(*guarantee.warnings, _NOT_PROBED))

    def run(self, *, progress: bool = False) -> None:
        """Take all remaining steps.

        Args:
            progress: show steps, ε spent and the time left on standard error.
        """
        if not progress:
            for _ in self:
                pass
            return
        from privet.progress import shown

        for _ in shown(self):
            pass

    def __iter__(self) -> Iterator[Step]:
        """Take the remaining steps one by one; a checkpoint is written when the loop ends, however it ends."""
        try:
            self._finish_epoch()
            reading = iter(physical_batches(self._rows, self._draws(), self._workers))
            # Only now, when the reader's processes are forked: they had no second thread around.
            if self.plan.noise_multiplier > 0:
                self._source.draw_ahead(total_size(self._parameters.values()))
            while self._ledger.next_step is not None:
                yield self._step(reading)
        finally:
            self._source.draw_ahead(0)
            self._ledger.give_back()
            self.save()

    def save(self) -> None:
        """Write a checkpoint now (done by itself every `checkpoint_every` steps and when the loop ends)."""
        if self.directory is not None:
            checkpoint.save(self.directory / "checkpoint.pt", self._completed, self.model, self._stateful, self._ledger)
            self._write_status()

    def close(self) -> None:
        """Give back what was reserved and not used, and release the ledger."""
        self._ledger.close()
        self._write_status()

    def __enter__(self) -> Training:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _draws(self) -> Iterator[PhysicalBatch]:
        draws = self.plan.sampling.draws(self.plan.examples, self._source.words)
        for number, draw in enumerate(draws):
            yield from split(draw, number, self._physical_batch_size)

    def _finish_epoch(self) -> None:
        """Spend the steps of an epoch that an earlier loop left unfinished: a new partition must not draw its examples again."""
        upcoming = self._ledger.next_step
        if upcoming is None:
            return
        start = self.plan.sampling.resumes_at(upcoming, self.plan.examples)
        for _ in range(upcoming, min(start, self._total + 1)):
            self._ledger.reserve()

    def _step(self, reading: Iterator[tuple[PhysicalBatch, Any]]) -> Step:
        self._check_unchanged()
        token = self._ledger.reserve()
        # One mask for the whole step: a change between its physical batches would release data without noise.
        masks = None if self._masks is None else self._masks.at(token.step)
        clipped = self._clipped_sum(reading, self._rule.at(token.step), masks)
        if self.plan.sparsification is not None and self.plan.sparsification.ranks:
            clipped = clipped.with_dense_noise()
        noised = release(clipped, token, self._source) / self.plan.divisor
        self._rule.adapt(noised.tensors, self.plan.divisor)
        if self._masks is not None:
            self._masks.learn(noised.tensors)
        for name, direction in self._iterates.step(noised.tensors, self._parameters).items():
            self._parameters[name].grad = direction
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self._scheduler is not None:
            self._scheduler.step()
        if self.averaged_model is not None:
            self.averaged_model.update_parameters(self.model)
        self._completed += 1
        if self._completed % self._checkpoint_every == 0:
            self.save()
        return Step(token.step, self._total)

    def _clipped_sum(self, reading: Iterator[tuple[PhysicalBatch, Any]], rule: Rule, masks: Masks | None) -> ClippedSum:
        """Return the clipped sum over one whole draw, read in physical batches."""
        total: ClippedSum | None = None
        # One example must not change the directions of another, so they are the step's and not those of a physical batch.
        directions = Directions(self._source.words(4)) if isinstance(rule, Projected) else None
        for physical, content in reading:
            if content is None:
                summed = empty_sum(self._parameters, rule, physical.part, masks)
            else:
                summed = self._summed(to_device(content, self._device), physical, rule, masks, directions)
            total = summed if total is None else total.join(summed)
            if physical.last:
                break
        if total is None:
            raise LedgerError("the reader of the data set ended early; the step is counted")
        return total

    def _summed(
        self, batch: Any, physical: PhysicalBatch, rule: Rule, masks: Masks | None, directions: Directions | None
    ) -> ClippedSum:
        """Return the clipped sum over one physical batch."""
        _check_one_entry_each(batch, len(physical.indices))
        arguments = (self.model, self.loss_fn, batch, rule)

        def summed(method: str) -> ClippedSum:
            if self._averages is not None:
                return self._averages.clipped_sum(*arguments, physical.indices, method=method, part=physical.part, masks=masks)
            past = self._iterates.past()
            return clipped_sum(*arguments, method=method, part=physical.part, masks=masks, past=past, directions=directions)

        try:
            return summed(self._method)
        except UntraceableError:
            # A branch that only these examples take; stopping here would tell that they were drawn.
            return summed("loop")

    def _choose_method(self, method: str, probe: bool, probe_batch: Any) -> str:
        batch = probe_batch
        if batch is None:
            first = np.arange(min(3, self.plan.examples), dtype=np.int64)
            batch = to_device(self._rows.read(first), self._device)
            _check_one_entry_each(batch, len(first))
        if not probe:
            return method
        methods = tuple(METHODS) if method == "auto" else (method,)
        public = probe_batch is not None
        chosen = probe_model(self.model, self.loss_fn, batch, public=public, methods=methods)
        if isinstance(self.plan.clipping, Projected):
            probe_projections(self.model, self.loss_fn, batch, public=public)
        return chosen

    def _check_unchanged(self) -> None:
        """Refuse a step if what is trained is no longer what was checked."""
        now = {name: parameter for name, parameter in self.model.named_parameters() if parameter.requires_grad}
        if now.keys() != self._parameters.keys() or any(now[name] is not self._parameters[name] for name in now):
            raise UnsupportedModelError(
                "the set of trainable parameters changed after the training was set up; make a new Training for the new set"
            )
        _check_optimizer(self.optimizer, self._parameters, fresh=False)

    def _write_status(self) -> None:
        if self.directory is not None:
            done = self.steps_left == 0
            status = {
                "state": "trained" if done else "unfinished", "steps_done": self._completed,
                "steps_spent": self.steps_spent, "steps_planned": self._total, "written": math.floor(time.time()),
            }  # fmt: skip
            write_text(self.directory / "status.json", json.dumps(status) + "\n")


def _check_one_entry_each(batch: Any, examples: int) -> None:
    """Refuse a batch in which an example has several entries: each would be clipped by itself."""
    if examples_in(batch) != examples:
        raise InvalidArgumentError(
            "collate", f"a first dimension of {examples_in(batch)} for {examples} examples",
            "a batch with one entry per example along its first dimension",
        )  # fmt: skip


def read_plan(directory: Path) -> Plan:
    """Return the plan of the run in a directory.

    Raises:
        LedgerError: there is none.
    """
    try:
        return Plan.from_json((directory / "plan.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LedgerError(f"{directory} holds no run to resume: there is no plan.json") from None


def _claim(directory: Path) -> None:
    """Make the directory of a new run, refusing one in which something was spent already.

    Raises:
        LedgerError: it holds a run.
        InvalidArgumentError: it cannot be made.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgumentError("directory", str(directory), "a folder that can be made", f"{error.strerror}.") from None
    if (directory / "ledger").exists() or (directory / "checkpoint.pt").exists():
        raise LedgerError(f"{directory} holds a run already; resume it (Training.resume) or choose another directory")


def _check_average(average: AveragedModel, model: nn.Module, *, fresh: bool) -> None:
    if not isinstance(average, AveragedModel):
        raise InvalidArgumentError(
            "average", type(average).__name__, "a torch.optim.swa_utils.AveragedModel",
            "AveragedModel(model) averages uniformly; multi_avg_fn=get_ema_multi_avg_fn(0.999) exponentially.",
        )  # fmt: skip
    if [parameter.shape for parameter in average.module.parameters()] != [parameter.shape for parameter in model.parameters()]:
        raise InvalidArgumentError("average", "of another model", "made from the model that is trained")
    if fresh and int(average.n_averaged) > 0:
        raise InvalidArgumentError("average", "of earlier steps", "new", "Non-private parameters would carry their data along.")


def _check_optimizer(optimizer: torch.optim.Optimizer, parameters: dict[str, nn.Parameter], *, fresh: bool) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer) or isinstance(optimizer, torch.optim.LBFGS):
        raise InvalidArgumentError(
            "optimizer", type(optimizer).__name__, "a torch.optim optimizer that takes one gradient per step",
            "An optimizer that evaluates the loss again (LBFGS, closures) would see the data outside the plan.",
        )  # fmt: skip
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"] if parameter.requires_grad}
    names = {id(parameter): name for name, parameter in parameters.items()}
    if left_out := [name for key, name in names.items() if key not in held]:
        raise InvalidArgumentError(
            "optimizer", f"without {', '.join(left_out[:3])}", "over every trainable parameter of the model",
            "Pass model.parameters(), or freeze those with requires_grad_(False).",
        )  # fmt: skip
    if held - names.keys():
        raise InvalidArgumentError("optimizer", "over foreign parameters", "over the model's own trainable parameters only")
    if not fresh:
        return
    for group in optimizer.param_groups:
        real("optimizer.lr", float(group["lr"]))
    if any(float(state.get("step", 1)) > 0 for state in optimizer.state.values()):
        raise InvalidArgumentError(
            "optimizer",
            "with state from earlier steps",
            "new",
            "State from non-private steps would carry their data along.",
        )
