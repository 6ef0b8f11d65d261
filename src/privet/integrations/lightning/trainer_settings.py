"""Settings of Lightning's `Trainer` that would void or distort the guarantee, and the reasons for which they are refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities.compile import to_uncompiled
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils import _pytree as pytree

from privet.errors import InvalidArgumentError, PrivetWarning
from privet.plan import Plan
from privet.training.directory import check_plan, holds_run


@dataclass(frozen=True)
class _Setting:
    """A setting of a Trainer: whether a plan allows a value, what is allowed in words, why, and where it is by another name."""

    allows: Callable[[Any, Plan], bool]
    allowed: str
    reason: str
    find: Callable[[pl.Trainer], Any] | None = None


_LENGTH = "The plan says how many steps there are, and the noise is calibrated for them."
_RUNS_UNCOMPILED = (
    "the module is compiled; it is trained and validated uncompiled, because a compiled graph hides where parameters are used. "
    "Fit the module that you compiled"
)
_SETTINGS = {
    "max_steps": _Setting(
        lambda value, plan: value == plan.total_steps, "the plan's number of steps, plan.total_steps", _LENGTH
    ),
    "max_epochs": _Setting(
        lambda value, plan: value in (-1, None) or value * steps_per_epoch(plan) >= plan.total_steps, "left out", _LENGTH
    ),
    "gradient_clip_val": _Setting(
        lambda value, _: not value, "left out",
        "It would clip the noised sum over all examples; the plan's clipping bounds each example.",
    ),
    "accumulate_grad_batches": _Setting(
        lambda value, _: value == 1, "1", "Every step is one release; physical_batch_size limits memory."
    ),
    "strategy": _Setting(
        lambda value, _: value.startswith("SingleDevice") or value == "DDPStrategy", "left out, or 'ddp'",
        "'ddp' starts the script once for each device, and Privet sums clipped gradients over the processes. Other strategies "
        "divide the module, reduce gradients, or start processes that have no plan.",
        lambda trainer: _describe(trainer.strategy),
    ),
    "sync_batchnorm": _Setting(
        lambda value, _: value is None, "left out", "It computes with the examples of several processes at once.",
        lambda trainer: getattr(trainer.strategy, "_layer_sync", None),
    ),
    "callbacks": _Setting(
        lambda value, _: not {"LearningRateFinder", "BatchSizeFinder"} & set(value), "without finders of rates and batch sizes",
        "They take steps of their own, which spend the budget.",
        lambda trainer: [type(callback).__name__ for callback in getattr(trainer, "callbacks", ())],
    ),
    "precision": _Setting(
        lambda value, _: value in ("32-true", "bf16-mixed"), "'32-true' or 'bf16-mixed'",
        "The scaler of '16-mixed' skips steps when gradients overflow; the others convert batches, and get none.",
    ),
}  # fmt: skip


def _describe(strategy: Any) -> str:
    """Return the class of a strategy, and how it starts processes unless by running the script again."""
    name, method = type(strategy).__name__, getattr(strategy, "_start_method", None)
    return name if method in (None, "popen") else f"{name}(start_method={method!r})"


def steps_per_epoch(plan: Plan) -> int:
    """Return the number of steps in which a plan draws as many examples as there are, at least 1."""
    return max(1, round(plan.examples / plan.sampling.expected_batch_size(plan.examples)))


def check_trainer(trainer: pl.Trainer, plan: Plan) -> None:
    """Refuse a Trainer whose settings do not agree with the plan."""
    for name, setting in _SETTINGS.items():
        value = getattr(trainer, name) if setting.find is None else setting.find(trainer)
        if not setting.allows(value, plan):
            number = f" ({plan.total_steps})" if name == "max_steps" else ""
            raise InvalidArgumentError(f"Trainer({name})", value, setting.allowed + number, setting.reason)


def check_overridden(kind: type[pl.LightningModule], base: type[pl.LightningModule]) -> None:
    """Refuse a class with a training step other than the base's, which would see batches that nobody clips."""
    if kind.training_step is not base.training_step:
        fix = "Define losses(batch), which returns one loss per example."
        raise InvalidArgumentError("training_step", f"that of {kind.__name__}", f"that of {base.__name__}", fix)


def undo_compilation(module: pl.LightningModule) -> None:
    """Run a module's methods uncompiled, if Lightning was given `torch.compile(module)` and replaced them, and say so."""
    if getattr(module, "_compiler_ctx", None) is not None:
        to_uncompiled(module)
        warnings.warn(_RUNS_UNCOMPILED, PrivetWarning, stacklevel=2)


def leave_unwrapped(trainer: pl.Trainer) -> None:
    """Keep a strategy from wrapping the module: releases are alike in all processes, so there is nothing to average."""
    if isinstance(trainer.strategy, DDPStrategy):
        trainer.strategy.configure_ddp = lambda: None  # type: ignore[method-assign]


def use_own_ticks(trainer: pl.Trainer, module: pl.LightningModule) -> None:
    """Ask the module, and not a data module, for training batches; a data module's other loaders serve as usual.

    A training loader belongs to the usual layout of a data module, which a user shares with programs that are not private.
    """
    if isinstance(trainer.fit_loop._data_source.instance, pl.LightningDataModule):
        trainer.fit_loop._data_source.instance = module


def check_stepped(trainer: pl.Trainer, stepped: bool, plan: Plan) -> None:
    """Refuse a fit that ends without a step although the plan has steps left: Lightning skips training without a word."""
    if not stepped and trainer.global_step < plan.total_steps:
        found = f"without a step of the {plan.total_steps - trainer.global_step} that are left"
        allowed = "one that trains"
        fix = (
            "Lightning had no training batch, so nothing was spent, and the parameters are as they were. Leave out "
            "train_dataloaders, a train_dataloader of the module's own, and limits such as limit_train_batches or max_time."
        )
        raise InvalidArgumentError("fit", found, allowed, fix)


def check_optimization(trainer: pl.Trainer, ticks: range, dataset: Any) -> None:
    """Refuse several optimizers, a scheduler that follows a metric, a loader of the user's, and validation on the training set.

    `ticks` are the only batches that the Trainer may have.
    """
    if not isinstance(trainer.train_dataloader, range) or trainer.train_dataloader != ticks:
        fix = "The plan draws the examples: pass the data set to set_privacy."
        raise InvalidArgumentError("train_dataloaders", type(trainer.train_dataloader).__name__, "left out", fix)
    if any(getattr(loader, "dataset", None) is dataset for loader in pytree.tree_leaves(trainer.val_dataloaders)):
        fix = "Results on the training set would be logged without noise."
        raise InvalidArgumentError("val_dataloaders", "of the training set", "of public data, or of held-out data", fix)
    if len(trainer.optimizers) != 1:
        allowed = "one optimizer"
        fix = "Combine several over disjoint parameters: privet.optim.Combined(*optimizers)."
        raise InvalidArgumentError("configure_optimizers", f"{len(trainer.optimizers)} optimizers", allowed, fix)
    if any(isinstance(config.scheduler, ReduceLROnPlateau) for config in trainer.lr_scheduler_configs):
        allowed = "a schedule that is known in advance"
        fix = "There is no training loss that it could follow."
        raise InvalidArgumentError("configure_optimizers", "a scheduler that follows a metric", allowed, fix)


def check_by_hand(automatic: bool) -> None:
    """Refuse automatic optimisation."""
    if automatic:
        raise InvalidArgumentError("automatic_optimization", True, "left out, or False", "There is no loss to differentiate.")


def check_place(directory: Path | None, checkpoint: Any, saved: bool, plan: Plan) -> None:
    """Refuse a checkpoint without its run, which counts what was spent, and a run without a checkpoint to continue from.

    `saved` says that the checkpoint knows where a run stands in its ledger; `directory` is None for a run in memory.
    """
    if (directory is not None and holds_run(directory)) != saved:
        allowed = "a run and its checkpoint, or a new place and None"
        fix = "The run's ledger counts what was spent, and its checkpoints say from where to continue."
        raise InvalidArgumentError("directory and ckpt_path", f"{directory} and {checkpoint}", allowed, fix)
    if saved and directory is not None:
        check_plan(directory, plan)
