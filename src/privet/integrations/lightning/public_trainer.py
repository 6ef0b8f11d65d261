"""What a loss may know of Lightning's `Trainer`: public numbers."""

from __future__ import annotations

__all__ = ["PublicTrainer"]

from dataclasses import dataclass, fields
from typing import Any, Never

import lightning.pytorch as pl


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
        asked: dict[str, Any] = {field.name: getattr(trainer, field.name) for field in fields(cls)}
        return cls(**asked | {"barebones": True, "is_global_zero": False, "logger": None, "loggers": ()})

    def __getattr__(self, name: str) -> Never:
        known = ", ".join(field.name for field in fields(type(self)))
        raise AttributeError(f"in losses, the Trainer has no {name!r}, but these public numbers: {known}")
