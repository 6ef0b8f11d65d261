"""The loop of a run: draw, read, sum, add noise, update. Trainings and federated rounds differ in how a draw is summed."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import NoReturn, Self

import torch
from torch import Tensor

from privet._utils.randomness import preserve_generators
from privet._utils.signals import hold_signals
from privet._utils.tensors import total_size
from privet._utils.unique import Unique
from privet.accounting.guarantee.statement import Guarantee
from privet.accounting.queries import DEFAULT_ACCOUNTANT
from privet.clipping import Rule
from privet.clipping.clipped_sum import ClippedSum
from privet.clipping.weighing import check_rule
from privet.distributed.sharded import ShardedModel
from privet.distributed.sharded_state import to_whole
from privet.distributed.world import ALONE, SUM, World
from privet.errors import USER_ERRORS, InvalidArgumentError, LedgerError, PrivetError, PrivetWarning, raise_interrupt
from privet.gradients.engine import Clipper, Engine, RunningSum
from privet.gradients.methods.passes import Past
from privet.gradients.parameters import refuse_inference_mode, trainable
from privet.gradients.per_example_momentum import Averages
from privet.gradients.projection.subspace import Subspace
from privet.noise import claim_of, noised_on_device, release
from privet.noise.shares import Owners
from privet.plan import Plan
from privet.reading.batches import Group, PhysicalBatch, check_map_style, move_groups
from privet.reading.rows import ExampleReader
from privet.sampling import Words
from privet.sparsification.drawing import Masks
from privet.sparsification.selected_rows import SelectedRows
from privet.training import checks
from privet.training.callbacks import POINTS, Callback, Observers, Step, learning_rate
from privet.training.directory import STATEMENT, Storage, write_guarantee
from privet.training.draws import DrawReader, Reading
from privet.training.manifest import Parts
from privet.training.record import RunRecorder
from privet.training.state import TrainingState, advance_parametrizations

Batches = Iterator[tuple[PhysicalBatch, list[Group]]]

_SHOW = "PRIVET_SHOW_STEP_ERRORS"


class StepError(PrivetError):
    """A step failed because of a fault in the library, the machine or a reading process."""


class Loop(Unique, ABC):
    """Takes the steps of one run; its loops share one ledger and one stream of draws.

    A constructor calls `_prepare`, which spends, draws and writes nothing, and then `_begin`.
    """

    _owns_sums = True  # whether nobody else holds the tensors of its clipped sums
    no_copy = (
        "The same steps would be taken twice, and the ledger would count them once. To continue a run elsewhere, close it, and "
        "use Training.resume; for another run, pass the plan (plan.to_json, Plan.from_json) and another model to a new one."
    )

    def _prepare(
        self, plan: Plan, parts: Parts, physical_batch_size: int | None, method: str, reading: Reading, *, fresh: bool,
        world: World = ALONE,
    ) -> None:  # fmt: skip
        """Check everything that is public, and make what the steps need; a `fresh` run's parts must hold no earlier state."""
        world.check_complete()
        self.world = world
        refuse_inference_mode()
        if not isinstance(plan, Plan):
            raise InvalidArgumentError("plan", type(plan).__name__, "a privet.Plan")
        with world.together():
            own = check_map_style(parts.dataset)
        entries = world.check_examples(own, plan.examples)
        checks.check_arguments(plan, parts.dataset, entries, physical_batch_size, method, reading)
        largest = checks.choose_physical_batch_size(plan) if physical_batch_size is None else physical_batch_size
        self._plan, self.model, self.optimizer, self.averaged_model = plan, parts.model, parts.optimizer, parts.average
        self._parameters = trainable(parts.model, sharded=True)
        self._kinds = checks.note_kinds(self._parameters)
        check_rule(plan.clipping, tuple(self._parameters))  # also refuses groups that do not fit the model
        checks.check_optimizer(parts.optimizer, self._parameters, fresh=fresh)
        checks.check_plan_suits(parts.optimizer, plan, self._parameters)
        self._members = list(map(id, checks.members(parts.optimizer)))
        self._selected = SelectedRows.of(plan.embeddings, self._parameters)
        self._shards = ShardedModel.of(parts.model, world)
        if self._shards is not None:
            checks.check_sharded(plan, parts.average, rows=self._selected is not None)
        self._whole: Mapping[str, Tensor] = self._parameters if self._shards is None else self._shards.whole
        self._owners: Owners | None = self._shards or (world if world.size > 1 else None)
        self._rows = ExampleReader(parts.dataset, parts.collate)
        if parts.scheduler is not None:
            checks.check_scheduler(parts.scheduler, parts.optimizer, plan.total_steps, fresh=fresh)
        if parts.average is not None:
            checks.check_average(parts.average, parts.model, fresh=fresh)
        self._state = TrainingState(
            plan, parts.model, self._parameters, parts.optimizer, parts.scheduler, parts.average, self._shards
        )
        # Sampling and noise do not depend on the random numbers that user code draws. Ranks draw alike what they have in common,
        # whenever each of them draws it; noise and the model's random numbers are each rank's own.
        self._noise, self._seeds = plan.noise.make_source(), plan.noise.make_source()
        self._past_noise = plan.begin_noise()  # secret: no checkpoint contains it, so a resumed run begins anew
        draws, seeds = self._make_words("draws"), self._make_words("reading") if self._rows.runs_user_code else None
        self._draws = DrawReader(plan.sampling, plan.examples, draws, seeds, self._rows, largest, reading.workers, world.take)
        self._largest, self._loops, self._ran, self._stepping = largest, 0, False, threading.Lock()

    def _make_words(self, purpose: str) -> Words:
        return self.world.make_words(purpose, self._plan.noise.make_source())

    def _begin(self, storage: Storage, record: RunRecorder, points: int = POINTS) -> None:
        """Take steps into a record from now on; the metrics file describes about `points` of them."""
        self.directory, self._record, self._checkpoint_every = storage.folder, record, storage.checkpoint_every
        self._observers = Observers(self._plan, self.directory if self.world.first else None, lambda: record.saved, points)

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
    def masks(self) -> Mapping[str, Tensor] | None:
        """The public masks of the last step: name → True where a coordinate was kept; None if all were."""
        return None if self._state.masks is None else self._state.masks.current

    @property
    def seconds(self) -> float:
        """Running time in seconds, over all sessions of the run, from the first step of each."""
        return self._observers.seconds

    def __len__(self) -> int:
        """Return the number of steps of the plan."""
        return self._plan.total_steps

    def epsilon(self, accountant: str | None = None) -> float:
        """Return ε at the plan's δ for the steps spent so far, by the tightest sound accountant or the one named."""
        return self._plan.epsilon(accountant or DEFAULT_ACCOUNTANT, steps=self.steps_spent)

    def run(self, *, progress: bool = False, callbacks: Iterable[Callback] = ()) -> None:
        """Take all remaining steps.

        Args:
            progress: show steps, ε spent and the time left, on a terminal or in a notebook.
            callbacks: called after each step, after each checkpoint and at the end of the loop.

        Raises:
            InvalidArgumentError: one of the callbacks is no `privet.Callback`.
        """
        if self._ran and not self.steps_left and self._record.ledger.refusal is None:
            warnings.warn(f"all {len(self)} steps of the plan are taken, so nothing is left to do", PrivetWarning, stacklevel=2)
        for _ in self._observers.watch(self._take(self._state.update), callbacks, progress=progress and self.world.first):
            pass

    def __iter__(self) -> Iterator[Step]:
        """Take the remaining steps one by one; a checkpoint is written when the loop ends, however it ends.

        Loops that follow one another, or run side by side, take their steps from one ledger and one stream of draws: a loop
        continues where the last one stopped, within the same epoch.

        Raises:
            LedgerError: the run was closed, this process is a fork, or a step is already being taken by another thread or by
                code that this step called.
        """
        return self._observers.watch(self._take(self._state.update), (), progress=False)

    def _take(self, update: Callable[[], object] | None) -> Generator[Step, None, None]:
        """Take the remaining steps.

        `update` changes the parameters by their gradients. None leaves that to the host: a step ends with gradients, and a
        checkpoint that is due is written when the next step is asked for, after the host's update.
        """
        self._loops, self._ran = self._loops + 1, True
        try:
            self._state_if_done(again=False)  # a run that was killed after its last payment has no step left
            while self._record.ledger.next_step is not None:
                with self._between_steps():
                    try:
                        step = self._step(update)
                    except BaseException as error:
                        self._stop_reading()  # the rest of the draw must not become part of the next one
                        self.world.report(error)
                        raise
                self._state_if_done()  # before the last step is handed over: a caller of next() may never come back
                if step is not None:
                    yield step
        finally:
            self._loops -= 1
            if self._stepping.acquire(blocking=False):  # else a step is being taken, and its own loop ends this
                try:
                    if not self._loops:
                        self._stop_reading()
                    with self.world.leaving():
                        self._record.pause()
                finally:
                    self._stepping.release()

    def _state_if_done(self, *, again: bool = True) -> None:
        """Write the statement and the progress of a run without further steps; a fork has no say in them."""
        if self.directory is None or self.steps_left or not self.world.first or self._record.ledger.refusal is not None:
            return
        if again or not (self.directory / STATEMENT).exists():
            write_guarantee(self.directory, self.guarantee())
            self._record.write_status()

    def _step(self, update: Callable[[], object] | None) -> Step | None:
        """Take the next step; return None if the remaining steps belong to an epoch that cannot be finished.

        The order is the guarantee: checks before payment see public values, the payment is durable before noise exists, and only
        the release reaches the parameters.
        """
        plan, ledger = self._plan, self._record.ledger
        ledger.check_open()
        number = self._skip_lost_draws()
        if number is None:
            return None
        self._check_unchanged()
        ready = self._draws.open(number)  # worker processes are forked before there is a thread
        if ready and plan.noise_multiplier > 0 and self._shards is None:  # numbers that wait need as much memory as the shards
            sums = self._parameters if self._selected is None else {**self._parameters, **self._selected.summed}
            dense = [each for each in sums.values() if not each.is_sparse]
            drawn = [each for each in dense if not noised_on_device(self._noise, each, self._past_noise)]
            self._noise.draw_ahead(total_size(drawn) // self.world.size)
        token = self.world.reserve(ledger)
        # One mask for the whole step: a change between its physical batches would release data without noise.
        rule, masks = self._state.at(token.step)
        subspace = self._find_subspace(rule, masks)
        try:
            clipped = self._sum(self._draws.read(token.step), rule, masks, subspace)
        except PrivetError:
            raise
        except USER_ERRORS as error:  # it may tell of the draw
            raise_hidden(error, "the sum of a step could not be computed, and the step counts as spent")
        if plan.sparsification is not None and plan.sparsification.ranks:
            clipped = clipped.with_dense_noise()
        past, reuse = (self._past_noise, self._draws.first), self._owns_sums
        # A rank that is interrupted between two collectives would leave the others in one.
        with contextlib.nullcontext() if self._owners is None else hold_signals():
            self.world.vote(SUM)  # what failed on one rank is not reduced
            clipped = self._reduce(clipped)
            noised = release(clipped, token, self._noise, self._state.divisor, *past, reuse=reuse, owners=self._owners)
        released = noised.tensors if subspace is None else subspace.join(noised.tensors)
        released = released if self._shards is None else self._shards.to_gradients(released)
        advance_parametrizations(self.model)
        rate = learning_rate(self.optimizer)
        self._state.put(released)  # into .grad
        if update is not None:
            update()
        self._record.completed += 1
        if update is not None:
            self._record.save_if_due(self._checkpoint_every)
        return self._observers.describe(token.step, rule, rate, released)

    def _random_source(self) -> str:
        """Return what a statement says of the source of randomness, for parameters where they are now."""
        return claim_of(self._noise, self._parameters.values(), self._past_noise)

    @abstractmethod
    def guarantee(self) -> Guarantee:
        """Return the statement for the steps spent so far."""

    @abstractmethod
    def _sum(self, batches: Batches, rule: Rule, masks: Masks | None, subspace: Subspace | None) -> ClippedSum:
        """Return the clipped sum over one whole draw, given as physical batches, each with the groups of its examples."""

    def _reduce(self, clipped: ClippedSum) -> ClippedSum:
        """Return what the owners of coordinates share: the sum itself, or this rank's shards of it."""
        return clipped

    def _find_subspace(self, rule: Rule, masks: Masks | None) -> Subspace | None:
        """Return the subspace of a step, for `clipping.GEP`; None for other rules."""
        return None

    def _check_unchanged(self) -> None:
        """Check what a step relies on and the user's code may have changed since the last one; all of it is public."""
        refuse_inference_mode()
        self._record.check_restored()
        self._record.save_if_due(self._checkpoint_every)
        checks.check_same_parameters(self.model, self._parameters, self._kinds)
        if (members := list(map(id, checks.members(self.optimizer)))) != self._members:
            checks.check_optimizer(self.optimizer, self._parameters, fresh=False)
            self._members = members

    def _skip_lost_draws(self) -> int | None:
        """Return the next step, after spending the rest of an epoch whose partition was lost with another process.

        Nobody can finish that epoch, and a new partition must not draw its examples again.
        """
        ledger = self._record.ledger
        upcoming = ledger.next_step
        first = None if upcoming is None else self._draws.start(upcoming)
        while upcoming is not None and upcoming != first:
            self.world.reserve(ledger)
            upcoming = ledger.next_step
        return upcoming

    @contextlib.contextmanager
    def _between_steps(self) -> Iterator[None]:
        """Return a context in which no other thread, and no code that this calls, takes a step."""
        if not self._stepping.acquire(blocking=False):
            raise LedgerError("a step of this training is being taken already; take the next one after it has ended")
        try:
            yield
        finally:
            self._stepping.release()

    def _stop_reading(self) -> None:
        self._noise.draw_ahead(0)
        self._draws.close()

    def log(self, metrics: Mapping[str, float | None]) -> None:
        """Write numbers of your own to `metrics.jsonl`, beside those of the last step, and pass them to callbacks.

        Args:
            metrics: name → number, such as the accuracy on public test data. The guarantee does not cover them: numbers from
                private data, such as a training loss, do not belong there.

        Raises:
            InvalidArgumentError: no step was taken in this session, or a value is not a number.
        """
        self._observers.log(metrics)

    def save(self) -> None:
        """Write a checkpoint now. This also happens every `checkpoint_every` steps and when a loop ends.

        Raises:
            LedgerError: the run was closed, so that another process may have resumed it; a step is being taken, whose example
                must not be saved; or writing failed.
        """
        with self._between_steps():
            self._record.save()

    def collect_weights(self) -> Mapping[str, Tensor] | None:
        """Return the whole weights of a sharded model, on rank 0; all ranks call this. None if the model is not sharded."""
        if self._shards is None:
            return None
        with self.world.answered():
            return to_whole(dict(self.model.state_dict()), keep=self.world.first)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Return unused steps to the ledger and the unspent share to the budget, and release the ledger."""
        if self._stepping.acquire(blocking=False):
            try:
                self._stop_reading()
            finally:
                self._stepping.release()
        self._record.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def sum_gradients(
    engine: Engine, batches: Batches, clipper: Clipper, past: Past = (), averages: Averages | None = None
) -> ClippedSum:
    """Return the clipped sum over one draw; an example whose own computation raises contributes zero.

    `past` parameters' gradients are added; `averages` of each example's gradients over the steps, if any, are what is clipped.
    """
    total, drawn = RunningSum(clipper), 0
    with preserve_generators():
        for physical, groups in batches:
            with hold_signals():  # for one physical batch, not for the step: a draw may have many
                for group in move_groups(groups, engine.device):
                    average = None
                    if averages is not None:
                        average = averages.of_examples(torch.from_numpy(physical.indices)[group.positions])
                    for index, sums, norms in engine.clip(group.examples, clipper, past, average):
                        total.add(drawn + group.positions[index], sums, norms)
                        del sums  # the next pass needs the memory
            drawn += len(physical.indices)
    return total.to_clipped_sum(drawn)


def raise_hidden(error: BaseException, what: str) -> NoReturn:
    """Raise a StepError that says what failed, and nothing of an error that may tell of the draw.

    An interrupt is raised as it is; so is any error if the user asks for it, for public data.
    """
    raise_interrupt(error)
    if os.environ.get(_SHOW):
        raise error
    raise StepError(
        f"{what}. Details may contain private values and are not shown; for public data, set {_SHOW}=1 in the environment to "
        "see them"
    ) from None
