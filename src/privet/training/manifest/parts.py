"""The parts of a run: model, loss, optimizer, data and what belongs to them."""

from __future__ import annotations

__all__ = ["Parts", "is_blank", "list_leaves", "wrapped"]

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import Dataset

from privet.collate import Collate
from privet.gradients.core.losses import LossFunction


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a training that a resumed run must have in common with its start.

    Args:
        model: the model.
        loss_fn: loss function.
        optimizer: optimizer over the model's trainable parameters.
        dataset: map-style data set.
        scheduler, average, collate: as for `Training`; None if there is none.
        public: public data set of `clipping.GEP`, or None.
    """

    model: nn.Module
    loss_fn: LossFunction
    optimizer: torch.optim.Optimizer
    dataset: Dataset[Any]
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None
    average: AveragedModel | None = None
    collate: Collate | None = None
    public: Dataset[Any] | None = None

    @property
    def stepped(self) -> bool:
        """Whether optimizer or scheduler have taken steps, which change their options; a checkpoint restores those."""
        states = [leaf for each in wrapped(self.optimizer) for _, leaf in list_leaves(list(each.state.values()))]
        return not all(map(is_blank, states)) or getattr(self.scheduler, "last_epoch", 0) > 0


def wrapped(optimizer: torch.optim.Optimizer) -> list[torch.optim.Optimizer]:
    """Return an optimizer, and the optimizers that it holds as attributes at any depth: its steps may step those in turn."""
    found = [optimizer]
    for outer in found:
        for value in vars(outer).values():
            for each in value if isinstance(value, list | tuple) else (value,):
                if isinstance(each, torch.optim.Optimizer) and each not in found:
                    found.append(each)
    return found


def list_leaves(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Return the values within nested containers, each with the path of its keys."""
    if isinstance(value, Mapping):
        return [leaf for key, item in value.items() for leaf in list_leaves(item, f"{path}.{key}".lstrip("."))]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in list_leaves(item, path)]
    return [(path, value)]


def is_blank(leaf: Any) -> bool:
    """Return whether a value of an optimizer's state holds nothing of earlier steps: None, zeros or text."""
    if isinstance(leaf, Tensor | np.ndarray):
        return not bool((leaf != 0).any())
    return leaf is None or isinstance(leaf, str) or (isinstance(leaf, int | float) and leaf == 0)
