"""A Lightning module whose training steps are the releases of a plan."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Never, Self

import lightning.pytorch as pl
from torch import Tensor, distributed
from torch.utils.data import Dataset

from privet.distributed import World
from privet.errors import InvalidArgumentError
from privet.integrations.lightning import trainer_settings
from privet.plan import Plan
from privet.training import Storage, Training
from privet.training.together import begin_together


@dataclass
class _Privacy:
    plan: Plan
    dataset: Dataset[Any]
    storage: Storage
    options: dict[str, Any]
    saved: dict[str, Any] | None = None  # of the checkpoint that Lightning has loaded
    releases: Any = None  # of the current fit


class PrivateModule(pl.LightningModule):
    """Base of modules that Lightning's `Trainer` trains under a plan; define `losses` instead of `training_step`.

    Call `set_privacy`, and then `Trainer(max_steps=plan.total_steps).fit(module)`. Lightning counts steps and epochs, and calls
    optimizer, schedulers, validation, callbacks and loggers as usual. Its training batches are bare numbers, as many per epoch
    as an epoch of the plan has steps; Privet draws the examples and leaves releases in `.grad`. The ε of the steps so far is
    logged as "epsilon", and is in every checkpoint. `private_training` is the `privet.Training` of the latest fit.

    Guarantee:
        Lightning receives released gradients and public numbers only: no private batch and no private loss. With
        `strategy="ddp"`, all processes take each step together; see `privet.distributed.World`. While a release is
        computed the module has the Trainer's public numbers only, so nothing can be logged. Validation data are not covered.
    """

    # There is no loss to differentiate; False may be set again, as in modules that optimise by hand.
    automatic_optimization = property(lambda self: False, lambda self, value: trainer_settings.check_by_hand(value))
    _privacy: _Privacy | None = None
    private_training: Training | None = None

    def set_privacy(
        self, plan: Plan, dataset: Dataset[Any], directory: str | Path | Storage | None = None, **options: Any
    ) -> Self:
        """Say what `fit` trains with, and return the module.

        Args:
            plan, dataset, directory: as for `privet.Training`. With a directory, `fit(module, ckpt_path=...)` resumes the run
                from any of its checkpoints. Steps spent since then pass without an update.
            options: `collate`, `physical_batch_size`, `method` and `reading`, as for `privet.Training`.
        """
        if unknown := sorted(options.keys() - {"collate", "physical_batch_size", "method", "reading"}):
            raise InvalidArgumentError("options", unknown, "collate, physical_batch_size, method or reading")
        trainer_settings.check_overridden(type(self), PrivateModule)
        self._close()
        self._privacy, self.private_training = _Privacy(plan, dataset, Storage.of(directory), options), None
        return self

    def losses(self, batch: Any) -> Tensor:
        """Return one loss per example, (B,). Define this; it must not update metrics.

        `current_epoch`, `global_step` and `trainer` are the public numbers of the step (`PublicTrainer`); `log` does nothing.
        """
        raise NotImplementedError("define losses(batch), which returns one loss per example")

    def log(self, *args: Any, **options: Any) -> None:
        """Log as any module of Lightning; in `losses`, do nothing."""
        if not isinstance(self._trainer, PublicTrainer):
            super().log(*args, **options)

    def configure_callbacks(self) -> Any:
        """Check the Trainer before Lightning does, and close the training of an earlier fit."""
        if self.trainer.state.fn == "fit":
            with self._checks():
                trainer_settings.check_trainer(self.trainer, self._required().plan)
            trainer_settings.undo_compilation(self)
            trainer_settings.use_own_ticks(self.trainer, self)
            trainer_settings.leave_unwrapped(self.trainer)
            self._close()
        added = super().configure_callbacks()
        return [Hooks(PrivateModule), *(added if isinstance(added, list | tuple) else [added])]

    def train_dataloader(self) -> range:
        """Return the numbers of an epoch's steps; the data stay with Privet."""
        return range(trainer_settings.steps_per_epoch(self._required().plan))

    def training_step(self, batch: int, batch_idx: int) -> None:
        """Take a release, and update the parameters with it."""
        trainer, privacy = self.trainer, self._required()
        self.trainer = PublicTrainer.of(trainer)  # type: ignore[assignment]
        try:
            if privacy.releases is None or self.private_training is None:
                self.private_training = self._open(privacy, trainer)
                privacy.releases = self.private_training.releases()
            lost = self.private_training.steps_spent > trainer.global_step
            step = None if lost else next(privacy.releases, None)
        finally:
            self.trainer = trainer
        if step is None:  # spent after the checkpoint, or with the rest of its epoch: only counters and rates move on
            self.zero_grad()
        self.optimizers().step()  # type: ignore[union-attr]
        for config in trainer.lr_scheduler_configs:
            count = trainer.global_step if config.interval == "step" else trainer.current_epoch + 1
            if (config.interval == "step" or trainer.is_last_batch) and count % config.frequency == 0:
                config.scheduler.step()  # type: ignore[call-arg]
        if trainer.global_step == trainer.max_steps or trainer.global_step % max(1, trainer.log_every_n_steps) == 0:  # type: ignore[attr-defined]
            self.log("epsilon", self.private_training.epsilon(), prog_bar=True)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_privacy": None, "private_training": None}  # a copy is a model, and no training

    def _required(self) -> _Privacy:
        if self._privacy is None:
            raise InvalidArgumentError("module", type(self).__name__, "one with a plan", "Call set_privacy(plan, dataset) first.")
        return self._privacy

    @contextlib.contextmanager
    def _checks(self) -> Iterator[World]:
        """Return a context for checks of a fit, in which all ranks refuse what one refuses, with their world.

        Until Lightning has made the group, each refuses for itself; what starts the processes ends them with the first one.
        """
        several = self.trainer.world_size > 1
        if several and not distributed.is_initialized():
            yield World()
            return
        world = World.here() if several else World()
        with begin_together(world):
            yield world

    def _open(self, privacy: _Privacy, trainer: pl.Trainer) -> Training:
        given = (self, partial(_losses, trainer.precision_plugin), trainer.optimizers[0], privacy.dataset)
        saved = None if trainer.ckpt_path is None else privacy.saved
        with self._checks() as world:
            trainer_settings.check_place(privacy.storage.folder, trainer.ckpt_path, saved is not None, privacy.plan)
            Hooks.check(trainer, self.private_training)
        if saved is None:
            return Training(privacy.plan, *given, privacy.storage, world=world, **privacy.options)
        # The directory has its files and its anchor from the start.
        storage = replace(privacy.storage, anchor=None, files={}, private={}, restore=False)
        training = Training.resume(storage, *given, world=world, **privacy.options)
        training.load_state_dict(saved)
        return training

    def _close(self) -> None:
        for part in filter(None, (self._privacy and self._privacy.releases, self.private_training)):
            part.close()
        if self._privacy is not None:
            self._privacy.releases = None


def _losses(precision: Any, model: PrivateModule, batch: Any) -> Tensor:
    with precision.forward_context():
        return model.losses(batch)


class Hooks(pl.Callback):
    """Checks, saves and closes the training of a module, by the hooks of `base`, as modules override theirs without `super()`."""

    def __init__(self, base: Any) -> None:
        self._base, self._stepped = base, False

    @staticmethod
    def check(trainer: pl.Trainer, earlier: Training | None) -> None:
        """Refuse a fit without these hooks, and a second one under the same `set_privacy`, which nobody accounts for."""
        if not any(isinstance(callback, Hooks) for callback in trainer.callbacks):  # type: ignore[attr-defined]
            allowed = "one that adds to super().configure_callbacks()"
            fix = "Its callback checks the Trainer and keeps the state of the run in checkpoints."
            raise InvalidArgumentError("configure_callbacks", "an override", allowed, fix)
        if earlier is not None and earlier.steps_spent and trainer.ckpt_path is None:
            fix = (
                "It would start from what the first one released, and its ε would not be that of both. Call set_privacy again "
                "for a second run; privet.Budget adds up what runs spend."
            )
            raise InvalidArgumentError("fit", "the second one of this module", "one fit for each set_privacy", fix)

    def on_train_start(self, trainer: pl.Trainer, module: Any) -> None:
        """Check optimizers, schedulers and loader, before a batch is read."""
        with module._checks():
            trainer_settings.check_optimization(trainer, self._base.train_dataloader(module), module._required().dataset)

    def on_train_batch_start(self, trainer: pl.Trainer, module: Any, batch: int, batch_idx: int) -> None:
        """Keep that there was a training batch."""
        self._stepped = True

    def on_train_end(self, trainer: pl.Trainer, module: Any) -> None:
        """Return unused steps to the ledger, and release it."""
        module._close()

    def on_fit_end(self, trainer: pl.Trainer, module: Any) -> None:
        """Refuse to end a fit without a step as if it had trained."""
        trainer_settings.check_stepped(trainer, self._stepped, module._required().plan)

    def on_exception(self, trainer: pl.Trainer, module: Any, exception: BaseException) -> None:
        """Release the ledger, which is resumed by another module, or elsewhere."""
        module._close()

    def on_save_checkpoint(self, trainer: pl.Trainer, module: Any, checkpoint: dict[str, Any]) -> None:
        """Add where the run stands in its ledger, with the ε of the steps spent."""
        if (training := module.private_training) is not None:
            spent = {"epsilon": training.epsilon(), "delta": training.plan.delta, "steps": training.steps_spent}
            checkpoint["privet"] = {"training": training.state_dict(), **spent}

    def on_load_checkpoint(self, trainer: pl.Trainer, module: Any, checkpoint: dict[str, Any]) -> None:
        """Keep what `on_save_checkpoint` added until the training is opened."""
        if module._privacy is not None:
            module._privacy.saved = checkpoint.get("privet", {}).get("training")


@dataclass(frozen=True)
class PublicTrainer:
    """Stands in for the Trainer while a loss is checked and while a release is computed.

    The check before the first step and the steps must find the same: an attribute that only one of them has would make every
    example fail, and contribute nothing. It cannot be written to, so that an example leaves nothing for the next one.
    """

    current_epoch: int
    global_step: int
    max_steps: int
    max_epochs: int | None
    min_steps: int | None
    min_epochs: int | None
    num_training_batches: int | float
    log_every_n_steps: int
    is_last_batch: bool
    precision: str
    world_size: int
    global_rank: int
    local_rank: int
    training: bool
    validating: bool
    testing: bool
    predicting: bool
    sanity_checking: bool
    # Lightning's modules ask these before they log or print, and then do neither.
    barebones: bool = True
    is_global_zero: bool = False
    logger: None = None
    loggers: tuple[()] = ()

    @property
    def estimated_stepping_batches(self) -> int:
        """The number of steps, which is the plan's."""
        return self.max_steps

    @classmethod
    def of(cls, trainer: pl.Trainer) -> PublicTrainer:
        """Return the numbers of a Trainer as they are now."""
        return cls(**{field.name: getattr(trainer, field.name) for field in fields(cls) if field.default is MISSING})

    def __getattr__(self, name: str) -> Never:
        known = ", ".join(field.name for field in fields(type(self)))
        raise AttributeError(f"in losses, the Trainer has no {name!r}, but these public numbers: {known}")
