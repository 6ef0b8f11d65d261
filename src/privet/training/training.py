"""Training: a run of a plan on examples, whose loop sums clipped gradients."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import Dataset

from privet._utils.generators import find_generators, preserve_held, seed_held
from privet._utils.own_code import is_own_code
from privet.accounting.guarantee.statement import Guarantee
from privet.clipping import Projected, Rule
from privet.clipping.clipped_sum import ClippedSum
from privet.collate import Collate
from privet.distributed.sharded_sums import ShardedSums
from privet.distributed.world import ALONE, World
from privet.gradients.core.losses import LossFunction
from privet.gradients.core.randomness import make_seed_source
from privet.gradients.engine import Clipper, Engine
from privet.gradients.per_example_momentum import Averages
from privet.gradients.projection.directions import Directions
from privet.gradients.projection.subspace import Subspace
from privet.ledger.answers import answer_query
from privet.plan import Plan
from privet.sparsification.drawing import Masks
from privet.training.anchors import Anchors
from privet.training.callbacks import TIMES, Callback, Step
from privet.training.checks import note_modules
from privet.training.directory import Storage, read_plan
from privet.training.draws import Reading
from privet.training.loop import Batches, Loop, sum_gradients
from privet.training.manifest import Parts
from privet.training.preflight import NOT_PROBED, Preflight
from privet.training.record import RunRecorder
from privet.training.together import begin_together, record_together

_READING = Reading()


class Training(Loop):
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
        public: public data set with items like those of `dataset`, for `clipping.GEP`, whose plan names it; at least as many as
            its anchors. Labels may be arbitrary. The guarantee does not cover them.
        physical_batch_size: largest number of examples that go through the model at once; it limits memory use and does not
            change the result. By default 256, or slightly more where nearly all draws then need one pass.
        method: how per-example gradients are computed: "ghost" (many examples in one pass), "loop" (one at a time), or "auto"
            (the faster one that passes the check before the first step). A method that fails the check is refused.
        reading: how examples are read, and what the check before the first step uses.
        world: `privet.distributed.World.here()` in each of several processes, which then train together.

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
        public: Dataset[Any] | None = None,
        physical_batch_size: int | None = None,
        method: str = "auto",
        reading: Reading = _READING,
        world: World = ALONE,
    ) -> None:
        with begin_together(world):
            storage = Storage.of(directory)
            parts = Parts(model, loss_fn, optimizer, dataset, scheduler, average, collate, public)
            self._prepare(plan, parts, physical_batch_size, method, reading, fresh=True, world=world)
        self._begin(storage, record_together(world, plan, self._state, parts, storage, partial(RunRecorder.begin, plan, storage)))

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
        public: Dataset[Any] | None = None,
        physical_batch_size: int | None = None,
        method: str = "auto",
        reading: Reading = _READING,
        world: World = ALONE,
    ) -> Training:
        """Return the training of an interrupted run, from its last checkpoint and its ledger.

        Parameters, optimizer, scheduler and inner and outer momentum are restored from the last checkpoint. Randomness is fresh,
        and the averages of `momentum.PerExample`, which are private, start again. Reserved steps stay spent, even if their result
        was lost, so ε never exceeds the plan's, and fewer updates may remain.

        Args:
            directory: directory of the run, or a `privet.Storage` with it; its `plan.json` is the plan.
            model, loss_fn, optimizer, dataset, scheduler, average, collate, public: as at the start; other ones are refused
                before anything is restored or spent.
            adopt: continue a run of another machine, or from before this one rebooted. You guarantee that no other copy of the
                directory continues.
            physical_batch_size, method, reading, world: as for `Training`; they may differ from the start.

        Raises:
            LedgerError: there is no run, it was started with other parts (the message lists the differences), or ledger and
                checkpoint do not belong together.
            InvalidArgumentError: an argument is out of range.
        """
        with begin_together(world):
            storage = Storage.of(directory)
            folder = storage.check_resumable()
            plan = read_plan(folder) if world.first else None
        plan = world.share(plan)  # the other ranks may be on other machines
        training = cls.__new__(cls)
        with world.together():
            parts = Parts(model, loss_fn, optimizer, dataset, scheduler, average, collate, public)
            training._prepare(plan, parts, physical_batch_size, method, reading, fresh=False, world=world)
        begin = partial(RunRecorder.resume, plan, storage, adopt=adopt)
        training._begin(storage, record_together(world, plan, training._state, parts, storage, begin))
        return training

    def _prepare(
        self, plan: Plan, parts: Parts, physical_batch_size: int | None, method: str, reading: Reading, *, fresh: bool,
        world: World = ALONE,
    ) -> None:  # fmt: skip
        super()._prepare(plan, parts, physical_batch_size, method, reading, fresh=fresh, world=world)
        self._averages = Averages.of(plan.momentum, plan.examples, self._parameters)
        self._preflight: Preflight | None = None
        if reading.probe:
            public = reading.probe_batch, reading.spec, reading.workers
            self._preflight = Preflight(plan, parts.model, parts.loss_fn, self._rows, method, self._largest, *public)
        seeds = make_seed_source(self._seeds.words)
        with nullcontext() if self._shards is None else self._shards.gathered():
            self._engine = Engine(parts.model, parts.loss_fn, self._whole, method, seeds=seeds, skip_errors=True)
        self._check_model()
        held = (value for module in parts.model.modules() for value in vars(module).values())
        self._generators = find_generators(parts.loss_fn, *(value for value in held if not isinstance(value, dict | int | str)))
        self._clipper: Clipper
        self._given: tuple[object, ...] = (self,)  # what the clipper was made of, which most steps have in common
        self._user_code = self._rows.runs_user_code or not is_own_code(parts.model, parts.loss_fn)
        self._directions = self._make_words("directions")
        self._anchors = Anchors.of(plan.clipping, parts, self._parameters, self._largest, self._make_words("anchors"))

    def _check_model(self) -> None:
        """Check the model as it is now on public input, and choose how its gradients are computed and summed."""
        preflight, shards = self._preflight, self._shards
        if preflight is not None:
            with nullcontext() if shards is None else shards.gathered():
                self._engine.method = preflight.check()
        self._sums = None
        if shards is not None:
            self._sums = ShardedSums.of(shards, self._engine, [] if preflight is None else preflight.list_public())
        self._seen = note_modules(self.model)

    def _check_unchanged(self) -> None:
        super()._check_unchanged()
        if self._preflight is not None and self._seen != note_modules(self.model):
            self._check_model()
            self._user_code |= not is_own_code(self.model, self._preflight.loss_fn)

    def _find_subspace(self, rule: Rule, masks: Masks | None) -> Subspace | None:
        return None if self._anchors is None else self._anchors.at(rule, masks, self._engine.method)

    def _sum(self, batches: Batches, rule: Rule, masks: Masks | None, subspace: Subspace | None) -> ClippedSum:
        # The same directions for the whole step: directions per physical batch would depend on which examples share one.
        directions = Directions(self._directions(4)) if isinstance(rule, Projected) else None
        given = (rule, masks, directions, subspace)
        if not all(map(operator.is_, given, self._given)):
            self._given, self._clipper = given, Clipper.of(self._whole, *given, self._selected)
        arguments = self._engine, batches, self._clipper
        if self._sums is None:
            sum_draw = partial(sum_gradients, *arguments, self._state.iterates.past(), self._averages)
        else:
            sum_draw = partial(self._sums.sum, sum_gradients, *arguments)
        if not self._generators:
            return sum_draw()
        with preserve_held(self._generators):  # such as `self.rng = default_rng(0)`, whose numbers would be public
            seed_held(self._generators, int(self._seeds.words(1)[0]))
            return sum_draw()

    def _reduce(self, clipped: ClippedSum) -> ClippedSum:
        return clipped if self._sums is None else self._sums.reduce(clipped)

    @property
    def method(self) -> str:
        """How per-example gradients are computed: "ghost", "loop", or "auto" without a check."""
        return self._engine.method

    def guarantee(self) -> Guarantee:
        """Return the statement for the steps spent so far, and for the total of a shared budget."""
        found, preflight = self._record.state_guarantee(), self._preflight
        found = replace(
            found,
            performed=f"{type(self.plan.sampling).__name__} sampling by privet.Training itself; no batches came from elsewhere",
            random_source=self._random_source(),
            notes=(*found.notes, *([] if preflight is None or not self._user_code else [preflight.note])),
            by_check=() if preflight is None else found.by_check,
            warnings=(*found.warnings, *([NOT_PROBED] if preflight is None else [])),
            beside=(*found.beside, *([] if self.directory is None else [TIMES])),
        )
        return found if self._user_code else found.without_user_code()

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
        found = None
        with self.world.together():
            if self.world.first:  # it alone computes, pays, draws and records
                found = answer_query(self._record.ledger, name, compute, self.plan.noise.make_source())
        return self.world.share(found)  # type: ignore[no-any-return]

    def releases(self, *, progress: bool = False, callbacks: Iterable[Callback] = ()) -> Iterator[Step]:
        """Take the remaining steps for a host that owns the loop: a step ends with its release in `.grad`, and the host updates.

        The noised, divided gradient (or the momentum of it) replaces whatever was in `.grad` of the trainable parameters, and
        `.grad` of all others that the optimizer holds is removed. Optimizer, scheduler and average are left to the host, which
        steps its own after each release. A release that the host does not use is spent like any other. Everything else is as in
        `run`: the same draws, noise, ledger, checks, observers and locks. A checkpoint that is due is written when the next
        release is asked for, and another when the loop ends, after the host's last update.

        Args:
            progress, callbacks: as for `steps`; callbacks are called before the host's update.

        Raises:
            UnsupportedModelError: a trained parameter is bfloat16, whose float32 master only `run` updates.

        >>> import torch, privet
        >>> data = torch.utils.data.TensorDataset(torch.randn(100, 3), torch.randn(100))
        >>> model = torch.nn.Linear(3, 1)
        >>> plan = privet.Plan(
        ...     examples=100, sampling=privet.sampling.Poisson(batch_size=20), steps=2, delta=1e-5,
        ...     clipping=privet.clipping.Flat(bound=1.0), noise=privet.noise.Gaussian(multiplier=2.0),
        ... )
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> training = privet.Training(plan, model, lambda m, b: (m(b[0])[:, 0] - b[1]).square(), optimizer, data)
        >>> for step in training.releases():
        ...     optimizer.step()
        ...     print(step.number, model.weight.grad.shape)
        1 torch.Size([1, 3])
        2 torch.Size([1, 3])
        """
        self._state.check_host_can_update()
        return self._observers.watch(self._take(None), callbacks, progress=progress)

    def state_dict(self) -> dict[str, Any]:
        """Return what a host must save beside model, optimizer, scheduler and average to resume from a checkpoint of its own.

        It holds where the run stands in its ledger, and the clipping rule, masks and momentum that releases have changed: plain
        values and copies of tensors, all of it public, which `torch.load(..., weights_only=True)` reads. Call it after the host's
        update, not between a release and its update.

        Raises:
            LedgerError: a step is being taken.
        """
        with self._between_steps():
            return self._record.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to the state of a checkpoint of the host, which restores model, optimizer, scheduler and average itself.

        In a new process, open the run with `Training.resume(Storage(directory, restore=False), ...)` first. A run without a
        directory can only go back within its process.

        Args:
            state: what `state_dict` returned.

        Guarantee:
            Steps taken since the checkpoint stay spent, and the steps that are left do not change: with a checkpoint of step 10
            and a ledger that counts 13 of 20 steps, 7 more releases follow, with the noise and bounds that the plan has for steps
            14 to 20. No draw or noise is used twice. So ε never exceeds the plan's. Account for `steps_spent`, not for the
            updates that the host counts, which are fewer.

        Raises:
            InvalidArgumentError: it is no such state.
            LedgerError: the state is of another run, or newer than the ledger (which was rolled back); it does not fit the parts;
                a step is being taken; or the training was closed.
        """
        with self._between_steps(), self.world.together():
            self._record.load_state_dict(state)
