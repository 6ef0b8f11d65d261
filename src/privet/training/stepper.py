"""The steps of a training: reserve → sample → gradients → clip → noise → divide → update, the same for every step."""

from __future__ import annotations

__all__ = ["Stepper", "Summer"]

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Protocol

from privet._utils.tensors import total_size
from privet._utils.torch_state import leave_modes, read_modes
from privet._utils.unique import Unique
from privet.clipping import Rule
from privet.clipping.clipped_sum import ClippedSum
from privet.clipping.weighing import check_rule
from privet.errors import LedgerError
from privet.gradients.core.state.guard import restore_left
from privet.gradients.methods.left_passes import end_left_passes
from privet.gradients.parameters import refuse_anomaly_detection, refuse_inference_mode, refuse_modes, trainable
from privet.gradients.per_example_momentum import Averages
from privet.gradients.projection.subspace import Subspace
from privet.noise import release
from privet.plan import Plan
from privet.reading.batches import Group, PhysicalBatch
from privet.reading.rows import ExampleReader
from privet.sparsification import Masks
from privet.training.checks import (
    check_arguments,
    check_one_process,
    check_optimizer,
    check_plan_suits,
    check_same_parameters,
    choose_physical_batch_size,
    note_kinds,
)
from privet.training.clipped_sums import ClippedSummer, StepError
from privet.training.fresh import check_average, check_scheduler
from privet.training.manifest.description import Parts
from privet.training.observation.observers import Observers, learning_rate
from privet.training.observation.steps import Step
from privet.training.options import Reading
from privet.training.preflight import Preflight, advance_parametrizations
from privet.training.reading import DrawReader
from privet.training.record import RunRecorder
from privet.training.state.anchors import Anchors
from privet.training.state.training_state import TrainingState

Update = Callable[[], object]


class Summer(Protocol):
    """Computes the clipped sum of a step, whoever's contributions it is made of."""

    method: str

    def sum_draw(
        self,
        reading: Iterator[tuple[PhysicalBatch, list[Group]]],
        rule: Rule,
        masks: Masks | None,
        subspace: Subspace | None = None,
    ) -> ClippedSum:
        """Return the clipped sum over one whole draw; as for `ClippedSummer`."""


class Stepper(Unique):
    """Takes the steps of one training, for all its loops.

    Creating one checks everything that is public; nothing is spent, drawn or written yet. `attach` must follow before a step.

    Args:
        plan, physical_batch_size, method, reading: as for `Training`.
        parts: model, loss, optimizer and the other parts of the training.
        fresh: whether the run is new, so that optimizer, scheduler and average must hold no earlier state.
        summer: computes the sums of draws; None for sums of gradients of the loss.

    Attributes:
        state: what steps change.
        preflight: the check on public input; None if it is off.
        rows: reader of the data set.
        summer: computes clipped sums.
        reader: the draws, and the examples in them.

    Raises:
        InvalidArgumentError: an argument is out of range.
        UnsupportedModelError: the model or loss cannot be trained with this guarantee.
    """

    no_copy = "The same steps would be taken twice, and the ledger would count them once. Use Training.resume."

    def __init__(
        self,
        plan: Plan,
        parts: Parts,
        physical_batch_size: int | None,
        method: str,
        reading: Reading,
        *,
        fresh: bool,
        summer: Summer | None = None,
    ) -> None:
        model, optimizer, average = parts.model, parts.optimizer, parts.average
        check_one_process()
        end_left_passes()
        refuse_inference_mode()
        refuse_anomaly_detection()
        refuse_modes()
        check_arguments(plan, parts.dataset, physical_batch_size, method, reading)
        largest = choose_physical_batch_size(plan) if physical_batch_size is None else physical_batch_size
        self._plan, self._model, self._optimizer = plan, model, optimizer
        self._parameters = trainable(model)
        self._kinds = note_kinds(self._parameters)
        check_rule(plan.clipping, tuple(self._parameters))  # also refuses groups that do not fit the model
        check_optimizer(optimizer, self._parameters, fresh=fresh)
        check_plan_suits(optimizer, plan, self._parameters)
        self.rows = ExampleReader(parts.dataset, parts.collate)
        if parts.scheduler is not None:
            check_scheduler(parts.scheduler, optimizer, plan.total_steps, fresh=fresh)
        if average is not None:
            check_average(average, model, fresh=fresh)
        self.state = TrainingState(plan, model, self._parameters, optimizer, parts.scheduler, average)
        averages = Averages.of(plan.momentum, plan.examples, self._parameters)
        self.preflight: Preflight | None = None
        if reading.probe:
            public = reading.probe_batch, reading.spec
            self.preflight = Preflight(plan, model, parts.loss_fn, self.rows, method, *public, reading.workers)
            method = self.preflight.check()
        # Two sources, so that sampling and noise do not depend on the random numbers that user code draws.
        self._source, self._seeds = plan.noise.make_source(), plan.noise.make_source()
        self._past_noise = plan.begin_noise()  # secret: no checkpoint contains it, so a resumed run begins anew
        self.summer: Summer = summer or ClippedSummer(
            model, parts.loss_fn, self._parameters, method, self._source.words, self._seeds.words, self.state.iterates, averages
        )
        self._anchors = Anchors.of(plan.clipping, parts, self._parameters, largest, self._seeds.words)
        seeds = self._seeds.words if self.rows.runs_user_code else None
        self.reader = DrawReader(plan.sampling, plan.examples, self._source.words, seeds, self.rows, largest, reading.workers)
        self._loops = 0
        self._stepping: dict[str, object] = {}  # who takes a step now, if anybody

    def attach(self, record: RunRecorder, observers: Observers, checkpoint_every: int) -> None:
        """Write steps to a record from now on.

        Args:
            record: record of the run, with its ledger.
            observers: describe the steps.
            checkpoint_every: number of steps between checkpoints.
        """
        self._record, self._observers, self._checkpoint_every = record, observers, checkpoint_every

    def take(self, update: Update | None) -> Generator[Step, None, None]:
        """Take the remaining steps; a checkpoint is written when the loop ends, however it ends.

        Args:
            update: changes the parameters by their gradients. None leaves that to the host: a step ends with gradients, and a
                checkpoint that is due is written when the next one is asked for, with what the host has made of them.
        """
        self._loops += 1
        try:
            while (step := self._next(update)) is not None:
                yield step
        finally:
            self._loops -= 1
            with self._begin() as free:
                if free:  # else a step is being taken, and its own loop does this when it ends
                    if not self._loops:
                        self._stop_reading()
                    self._record.pause()

    @contextmanager
    def between_steps(self) -> Iterator[None]:
        """Return a context in which no step is taken.

        Raises:
            LedgerError: one is being taken, by another thread or by the code that calls this.
        """
        with self._begin() as free:
            if not free:
                raise LedgerError("a step of this training is being taken already; take the next one after it has ended")
            yield

    @contextmanager
    def _begin(self) -> Iterator[bool]:
        """Return a context in which no other step is taken, and whether none is being taken already."""
        own = object()
        try:
            # One atomic call, whose result the end reads again: an interrupt in between must not hold the place for ever.
            yield self._stepping.setdefault("step", own) is own
        finally:
            if self._stepping.get("step") is own:
                del self._stepping["step"]

    def close(self) -> None:
        """Stop reading; close the record afterwards."""
        with self._begin() as free:
            if free:
                self._stop_reading()

    def _next(self, update: Update | None) -> Step | None:
        """Take the next step; return None if there is none."""
        if self._record.ledger.next_step is None:
            return None
        self._record.ledger.check_open()
        with self.between_steps():
            try:
                upcoming = self._finish_epoch()
                return None if upcoming is None else self._step(self._draws(upcoming), update)
            except BaseException:
                # The rest of the draw must not become part of the next one.
                self._stop_reading()
                raise

    def _draws(self, step: int) -> Iterator[tuple[PhysicalBatch, list[Group]]]:
        """Return the physical batches of this step and all later ones, with their content."""
        if self.reader.is_open:
            return self.reader.open(step)
        reading = self.reader.open(step)
        # Only now, after the reader's processes were forked, which must not happen beside a second thread.
        if self._plan.noise_multiplier > 0:
            self._source.draw_ahead(total_size(self._parameters.values()))
        return reading

    def _finish_epoch(self) -> int | None:
        """Return the next step, after spending the rest of an epoch whose partition was lost with another process.

        Nobody can finish that epoch, and a new partition must not draw its examples again.
        """
        upcoming = self._record.ledger.next_step
        if upcoming is None:
            return None
        start = self.reader.start(upcoming)
        for _ in range(upcoming, min(start, self._plan.total_steps + 1)):
            self._record.ledger.reserve()
        return self._record.ledger.next_step

    def _stop_reading(self) -> None:
        self._source.draw_ahead(0)
        self.reader.close()

    def _step(self, reading: Iterator[tuple[PhysicalBatch, list[Group]]], update: Update | None) -> Step:
        end_left_passes()
        restore_left(self._model)
        self._record.check_restored()
        self._record.save_if_due(self._checkpoint_every)
        refuse_inference_mode()
        refuse_anomaly_detection()
        refuse_modes()
        active = read_modes()
        check_same_parameters(self._model, self._parameters, self._kinds)
        check_optimizer(self._optimizer, self._parameters, fresh=False)
        changed = None if self.preflight is None else self.preflight.check_again_if_changed()
        if changed is not None:
            self.summer.method = changed
        token = self._record.ledger.reserve()
        # One mask for the whole step: a change between its physical batches would release data without noise.
        rule, masks = self.state.at(token.step)
        subspace = None if self._anchors is None else self._anchors.at(rule, masks, self.summer.method)
        leave_modes(active)  # which a part of the user's, such as a schedule, may have entered
        clipped = self.summer.sum_draw(reading, rule, masks, subspace)
        if restore_left(self._model):
            raise StepError(
                "the model could not be restored after it ran on an example, so that others may have met what it left: the sum "
                "is not released, and the step counts as spent"
            )
        if self._plan.sparsification is not None and self._plan.sparsification.ranks:
            clipped = clipped.with_dense_noise()
        leave_modes(active)
        noised = release(clipped, token, self._source, self._plan.divisor, self._past_noise, self.reader.first)
        released = noised.tensors if subspace is None else subspace.join(noised.tensors)
        advance_parametrizations(self._model)
        rate = learning_rate(self._optimizer)
        self.state.put(released)
        if update is not None:
            update()
        self._record.completed += 1
        if update is not None:
            self._record.save_if_due(self._checkpoint_every)
        return self._observers.describe(token.step, rule, rate, released)
