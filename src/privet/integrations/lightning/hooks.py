"""A callback that does what a fit depends on, whatever hooks a module of the user's overrides."""

from __future__ import annotations

__all__ = ["Hooks"]

from typing import Any

import lightning.pytorch as pl

from privet.errors import InvalidArgumentError
from privet.integrations.lightning import trainer_settings
from privet.training import Training


class Hooks(pl.Callback):
    """Checks, saves and closes the training of a module.

    Lightning's own hooks are empty, so modules override them without `super()`.

    Args:
        base: class of modules whose hooks are called, even if the module has overridden them.
    """

    def __init__(self, base: Any) -> None:
        self._base, self._stepped = base, False

    @staticmethod
    def check(trainer: pl.Trainer, earlier: Training | None) -> None:
        """Refuse a fit without these hooks, and a second one that nobody accounts for.

        Args:
            trainer: Trainer that is about to train.
            earlier: training of an earlier fit of the module under the same `set_privacy`, or None.

        Raises:
            InvalidArgumentError: says what to do instead.
        """
        if not any(isinstance(callback, Hooks) for callback in trainer.callbacks):  # type: ignore[attr-defined]
            raise InvalidArgumentError(
                "configure_callbacks", "an override", "one that adds to super().configure_callbacks()",
                "Its callback checks the Trainer and keeps the state of the run in checkpoints.",
            )  # fmt: skip
        if earlier is not None and earlier.steps_spent and trainer.ckpt_path is None:
            raise InvalidArgumentError(
                "fit", "the second one of this module", "one fit for each set_privacy",
                "It would start from what the first one released, and its ε would not be that of both. Call set_privacy again "
                "for a second run; privet.Budget adds up what runs spend.",
            )  # fmt: skip

    def on_train_start(self, trainer: pl.Trainer, module: Any) -> None:
        """Check optimizers, schedulers and loader, before a batch is read."""
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
        """Add where the run stands in its ledger."""
        self._base.on_save_checkpoint(module, checkpoint)

    def on_load_checkpoint(self, trainer: pl.Trainer, module: Any, checkpoint: dict[str, Any]) -> None:
        """Keep what `on_save_checkpoint` added."""
        self._base.on_load_checkpoint(module, checkpoint)
