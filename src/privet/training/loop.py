"""The training loop: reserve → sample → gradients → clip → noise → divide → optimizer, the same for every step."""

from __future__ import annotations

__all__ = ["Training"]

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import Dataset

from privet._utils.tensors import total_size
from privet._utils.unique import Unique
from privet.accounting import DEFAULT_ACCOUNTANT
from privet.accounting.guarantee.statement import Guarantee
from privet.clipping.clipped_sum import ClippedSum
from privet.clipping.weighing import check_rule
from privet.collate import Collate
from privet.errors import LedgerError
from privet.gradients import trainable
from privet.gradients.core.losses import LossFunction
from privet.gradients.per_example_momentum import Averages
from privet.noise import release
from privet.plan import Plan
from privet.reading.batches import Group, PhysicalBatch
from privet.reading.rows import ExampleReader
from privet.training.answers import answer_query
from privet.training.checks import check_arguments, check_optimizer, check_plan_suits, check_same_parameters
from privet.training.clipped_sums import ClippedSummer
from privet.training.directory import read_plan
from privet.training.fresh import check_average, check_scheduler
from privet.training.manifest.description import Parts
from privet.training.observation.callbacks import Callback
from privet.training.observation.metrics_file import TIMES
from privet.training.observation.observers import Observers, learning_rate
from privet.training.observation.steps import Step
from privet.training.options import Reading, Storage
from privet.training.preflight import NOT_PROBED, Preflight, advance_parametrizations
from privet.training.reading import DrawReader
from privet.training.record import RunRecorder
from privet.training.state.training_state import TrainingState

_READING = Reading()


class Training(Unique):
    """Trains a plain module with a plain optimizer under the plan's guarantee.

    Args:
        plan: plan with known noise and steps (see `Plan.calibrate`).
        model: any `nn.Module`; it is not wrapped, and its state_dict keeps its names.
        loss_fn: (model, batch) → (B,) losses, one per example.
        optimizer: any first-order `torch.optim.Optimizer` over exactly the model's trainable parameters.
        dataset: map-style, of exactly `plan.examples` examples (users or groups, if those are the plan's unit).
        directory: directory of ledger, checkpoints and metrics, or a `privet.Storage`, which also names a budget, an anchor and
            how often to save; None keeps the ledger in memory, and such a run cannot be resumed.
        scheduler: learning-rate scheduler, stepped once per step.
        average: moving or uniform average of the model's parameters, updated after every step; as post-processing, it is free.
        collate: list of one item → batch of one; called for one item at a time.
        physical_batch_size: largest number of examples that go through the model at once; it limits memory use and does not
            change the result.
        method: how per-example gradients are computed: "ghost" (many examples in one pass), "loop" (one at a time), or "auto"
            (the faster one that passes the check before the first step). A method that fails the check is refused.
        reading: how examples are read, and what the check before the first step uses.

    Guarantee:
        Every release is a Gaussian mechanism on a draw of the plan's sampling scheme, with exactly its sensitivity and
        multiplier, reserved in the ledger before noise is drawn; empty samples are steps like any other; nothing else that
        depends on the data leaves this object. So parameters after any number of steps satisfy `guarantee()`.

    Raises:
        InvalidArgumentError: an argument is out of range, or data set and plan disagree.
        UnsupportedModelError: the model or loss cannot be trained with this guarantee.
        BudgetExhaustedError: the budget does not hold the plan.
        LedgerError: the directory holds a run already, is in use, or cannot be written.

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

    no_copy = (
        "The same steps would be taken twice, and the ledger would count them once. To continue a run elsewhere, close it and "
        "use Training.resume; for another run, pass the plan (plan.to_json, Plan.from_json) and another model to a new Training."
    )

    def __init__(
        self,
        plan: Plan,
        model: nn.Module,
        loss_fn: LossFunction,
        optimizer: torch.optim.Optimizer,
        dataset: Dataset[Any],
        directory: str | Path | Storage | None = None,
        *,
        scheduler: LRScheduler | None = None,
        average: AveragedModel | None = None,
        collate: Collate | None = None,
        physical_batch_size: int = 256,
        method: str = "auto",
        reading: Reading = _READING,
    ) -> None:
        storage = Storage.of(directory)
        parts = Parts(model, loss_fn, optimizer, dataset, scheduler, average, collate)
        self._assemble(plan, parts, physical_batch_size, method, reading, fresh=True)
        self.directory, self._checkpoint_every = storage.folder, storage.checkpoint_every
        self._record = RunRecorder.begin(plan, storage, self._state, parts)
        self._observers = Observers(plan, self.directory, lambda: self._record.saved)

    @classmethod
    def resume(
        cls,
        directory: str | Path | Storage,
        model: nn.Module,
        loss_fn: LossFunction,
        optimizer: torch.optim.Optimizer,
        dataset: Dataset[Any],
        *,
        adopt: bool = False,
        scheduler: LRScheduler | None = None,
        average: AveragedModel | None = None,
        collate: Collate | None = None,
        physical_batch_size: int = 256,
        method: str = "auto",
        reading: Reading = _READING,
    ) -> Training:
        """Return the training of an interrupted run, from its last checkpoint and its ledger.

        Parameters, optimizer, scheduler and inner and outer momentum are restored from the last checkpoint. Randomness is fresh,
        and the averages of `momentum.PerExample`, which are private, start again. Reserved steps stay spent, even if their result
        was lost, so ε never exceeds the plan's, and fewer updates may remain.

        Args:
            directory: directory of the run, or a `privet.Storage` with it; its `plan.json` is the plan.
            model, loss_fn, optimizer, dataset, scheduler, average, collate: as at the start; other ones are refused before
                anything is restored or spent.
            adopt: continue a run of another machine, or from before this one rebooted. You guarantee that no other copy of the
                directory continues.
            physical_batch_size, method, reading: as for `Training`; they may differ from the start.

        Raises:
            LedgerError: there is no run, it was started with other parts (the message lists the differences), or ledger and
                checkpoint do not belong together.
            InvalidArgumentError: an argument is out of range.
        """
        storage = Storage.of(directory)
        folder = storage.check_resumable()
        training, plan = cls.__new__(cls), read_plan(folder)
        parts = Parts(model, loss_fn, optimizer, dataset, scheduler, average, collate)
        training._assemble(plan, parts, physical_batch_size, method, reading, fresh=False)
        training.directory, training._checkpoint_every = folder, storage.checkpoint_every
        training._record = RunRecorder.resume(plan, folder, training._state, parts, budget=storage.budget, adopt=adopt)
        training._observers = Observers(plan, folder, lambda: training._record.saved)
        return training

    def _assemble(
        self, plan: Plan, parts: Parts, physical_batch_size: int, method: str, reading: Reading, *, fresh: bool
    ) -> None:
        """Check everything that is public, and create what takes the steps; nothing is spent, drawn or written yet."""
        model, optimizer, average = parts.model, parts.optimizer, parts.average
        check_arguments(plan, parts.dataset, physical_batch_size, method, reading)
        self._plan, self.model, self.optimizer, self.averaged_model = plan, model, optimizer, average
        self._total = plan.total_steps
        self._parameters = trainable(model)
        check_rule(plan.clipping, tuple(self._parameters))  # also refuses groups that do not fit the model
        check_optimizer(optimizer, self._parameters, fresh=fresh)
        check_plan_suits(optimizer, plan, self._parameters)
        self._rows = ExampleReader(parts.dataset, parts.collate)
        if parts.scheduler is not None:
            check_scheduler(parts.scheduler, optimizer, fresh=fresh)
        if average is not None:
            check_average(average, model, fresh=fresh)
        self._state = TrainingState(plan, model, self._parameters, optimizer, parts.scheduler, average)
        averages = Averages.of(plan.momentum, plan.examples, self._parameters)
        self._preflight: Preflight | None = None
        if reading.probe:
            self._preflight = Preflight(plan, model, parts.loss_fn, self._rows, method, reading.probe_batch, reading.spec)
            method = self._preflight.check()
        # Two sources, so that sampling and noise do not depend on the random numbers that user code draws.
        self._source, self._seeds = plan.noise.make_source(), plan.noise.make_source()
        self._summer = ClippedSummer(
            model, parts.loss_fn, self._parameters, method, self._source.words, self._seeds.words, self._state.iterates, averages
        )
        seeds = self._seeds.words if self._rows.runs_user_code else None
        self._reader = DrawReader(
            plan.sampling, plan.examples, self._source.words, seeds, self._rows, physical_batch_size, reading.workers
        )
        self._loops, self._stepping = 0, threading.Lock()

    @property
    def plan(self) -> Plan:
        """The plan: fixed from the start, because sampling, noise and ledger follow it."""
        return self._plan

    @property
    def steps_spent(self) -> int:
        """Number of steps that the ledger counts: those taken, and those lost to a crash."""
        return len(self) - self.steps_left

    @property
    def steps_left(self) -> int:
        """Number of steps that may still be taken."""
        return self._record.steps_left

    @property
    def method(self) -> str:
        """How per-example gradients are computed: "ghost", "loop", or "auto" without a check."""
        return self._summer.method

    @property
    def seconds(self) -> float:
        """Running time in seconds, over all sessions of the run, from the first step of each."""
        return self._observers.seconds

    def __len__(self) -> int:
        """Return the number of steps of the plan."""
        return self._total

    def epsilon(self, accountant: str | None = None) -> float:
        """Return ε at the plan's δ for the steps spent so far, by the tightest sound accountant or the one named."""
        return self.plan.epsilon(accountant or DEFAULT_ACCOUNTANT, steps=self.steps_spent)

    def guarantee(self) -> Guarantee:
        """Return the statement for the steps spent so far, and for the total of a shared budget."""
        found = self.plan.guarantee(steps=self.steps_spent)
        return replace(
            found,
            performed=f"{type(self.plan.sampling).__name__} sampling by privet.Training itself; no batches came from elsewhere",
            notes=(*found.notes, *self._record.remarks, *([] if self._preflight is None else [self._preflight.note])),
            warnings=(*found.warnings, *([NOT_PROBED] if self._preflight is None else [])),
            beside=(*found.beside, *([] if self.directory is None else [TIMES])),
        )

    def answer(self, name: str, compute: Callable[[], ClippedSum]) -> tuple[float, ...] | None:
        """Return what a query of the plan releases: recorded in the ledger, else computed, paid for, noised and recorded.

        Args:
            name: "holdout", after the last step, or "class counts", before the first.
            compute: returns the sum over the entries that the query is about, with its sensitivity. Called at most once.

        Returns:
            The noised sum, one tensor after another; None if a process that was killed had paid for it: it is never drawn again.

        Raises:
            BudgetExhaustedError: it is no query of the plan.
        """
        return answer_query(self._record.ledger, name, compute, self._plan.noise.make_source())

    def run(self, *, progress: bool = False, callbacks: Iterable[Callback] = ()) -> None:
        """Take all remaining steps.

        Args:
            progress, callbacks: as for `steps`.
        """
        for _ in self.steps(progress=progress, callbacks=callbacks):
            pass

    def steps(self, *, progress: bool = False, callbacks: Iterable[Callback] = ()) -> Iterator[Step]:
        """Take the remaining steps one by one, as iterating over the training does.

        Args:
            progress: show steps, ε spent and the time left, on a terminal or in a notebook.
            callbacks: called after each step, after each checkpoint and at the end of the loop.

        Raises:
            InvalidArgumentError: one of the callbacks is no `privet.Callback`.
        """
        return self._observers.watch(self._take(), callbacks, progress=progress)

    def log(self, metrics: Mapping[str, float | None]) -> None:
        """Write numbers of your own to `metrics.jsonl`, beside those of the last step, and pass them to callbacks.

        Args:
            metrics: name → number, such as the accuracy on public test data. The guarantee does not cover them: numbers from
                private data, such as a training loss, do not belong there.

        Raises:
            InvalidArgumentError: no step was taken in this session, or a value is not a number.
        """
        self._observers.log(metrics)

    def __iter__(self) -> Iterator[Step]:
        """Take the remaining steps one by one; a checkpoint is written when the loop ends, however it ends.

        Loops that follow one another, or run side by side, take their steps from one ledger and one stream of draws: a loop
        continues where the last one stopped, within the same epoch.

        Raises:
            LedgerError: the training was closed, this process is a fork, or a step is already being taken by another thread or by
                code that this step called.
        """
        return self.steps()

    def _take(self) -> Generator[Step, None, None]:
        self._loops += 1
        try:
            while (step := self._next()) is not None:
                yield step
        finally:
            self._loops -= 1
            if self._stepping.acquire(blocking=False):  # else a step is being taken, and its own loop does this when it ends
                try:
                    if not self._loops:
                        self._stop_reading()
                    self._record.pause()
                finally:
                    self._stepping.release()

    def save(self) -> None:
        """Write a checkpoint now. This also happens every `checkpoint_every` steps and when a loop ends.

        Raises:
            LedgerError: the training was closed, so that another process may have resumed the run, or writing failed.
        """
        self._record.save()

    def close(self) -> None:
        """Return unused steps to the ledger and the unspent share to the budget, and release the ledger."""
        if self._stepping.acquire(blocking=False):
            try:
                self._stop_reading()
            finally:
                self._stepping.release()
        self._record.close()

    def __enter__(self) -> Training:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _next(self) -> Step | None:
        """Take the next step; return None if there is none."""
        if self._record.ledger.next_step is None:
            return None
        self._record.ledger.check_open()
        if not self._stepping.acquire(blocking=False):
            raise LedgerError("a step of this training is being taken already; take the next one after it has ended")
        try:
            upcoming = self._finish_epoch()
            return None if upcoming is None else self._step(self._draws(upcoming))
        except BaseException:
            # The rest of the draw must not become part of the next one.
            self._stop_reading()
            raise
        finally:
            self._stepping.release()

    def _draws(self, step: int) -> Iterator[tuple[PhysicalBatch, list[Group]]]:
        """Return the physical batches of this step and all later ones, with their content."""
        if self._reader.is_open:
            return self._reader.open(step)
        reading = self._reader.open(step)
        # Only now, after the reader's processes were forked, which must not happen beside a second thread.
        if self.plan.noise_multiplier > 0:
            self._source.draw_ahead(total_size(self._parameters.values()))
        return reading

    def _finish_epoch(self) -> int | None:
        """Return the next step, after spending the rest of an epoch whose partition was lost with another process.

        Nobody can finish that epoch, and a new partition must not draw its examples again.
        """
        upcoming = self._record.ledger.next_step
        if upcoming is None:
            return None
        start = self._reader.start(upcoming)
        for _ in range(upcoming, min(start, self._total + 1)):
            self._record.ledger.reserve()
        return self._record.ledger.next_step

    def _stop_reading(self) -> None:
        self._source.draw_ahead(0)
        self._reader.close()

    def _step(self, reading: Iterator[tuple[PhysicalBatch, list[Group]]]) -> Step:
        check_same_parameters(self.model, self._parameters)
        check_optimizer(self.optimizer, self._parameters, fresh=False)
        changed = None if self._preflight is None else self._preflight.check_again_if_changed()
        if changed is not None:
            self._summer.method = changed
        token = self._record.ledger.reserve()
        # One mask for the whole step: a change between its physical batches would release data without noise.
        rule, masks = self._state.at(token.step)
        clipped = self._summer.sum_draw(reading, rule, masks)
        if self.plan.sparsification is not None and self.plan.sparsification.ranks:
            clipped = clipped.with_dense_noise()
        noised = release(clipped, token, self._source).divide_(self.plan.divisor)
        advance_parametrizations(self.model)
        rate = learning_rate(self.optimizer)
        self._state.take(noised.tensors)
        self._record.completed += 1
        if self._record.completed % self._checkpoint_every == 0:
            self.save()
        return self._observers.describe(token.step, rule, rate, noised.tensors)
