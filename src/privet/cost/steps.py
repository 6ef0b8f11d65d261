"""The steps that are compared: one of plain training, and one of `Training` with noise and without.

All of them take the same batch, read it from where it lies, and end with the optimizer's step.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from privet.clipping import Rule
from privet.gradients import trainable
from privet.gradients.core.examples import count_examples, select_examples, to_device
from privet.gradients.core.losses import LossFunction
from privet.noise import Gaussian
from privet.plan import Plan
from privet.reading.batches import BatchDataset
from privet.sampling import FullBatch, Indices
from privet.training import Training

TimedStep = Callable[[], object]
# Small enough for parameters to stay about where they are.
_LEARNING_RATE = 1e-4
# More than anybody waits for.
_STEPS = 1_000_000
# Arm → its noise; plain training has no mechanism at all.
_NOISE: Mapping[str, Gaussian | None] = {
    "plain": None,
    "clipped": Gaussian(0.0, non_private=True),
    "private": Gaussian(1.0),
}
ARMS: tuple[str, ...] = tuple(_NOISE)


class _OneBatch(BatchDataset):
    """The examples of a batch, as a data set."""

    row_wise = True

    def __init__(self, batch: Any) -> None:
        self.batch, self.examples = batch, count_examples(batch)

    def __len__(self) -> int:
        return self.examples

    def read(self, indices: Indices) -> Any:
        return select_examples(self.batch, torch.from_numpy(indices))


@contextmanager
def step_of(arm: str, model: nn.Module, loss_fn: LossFunction, batch: Any, rule: Rule) -> Iterator[TimedStep]:
    """Yield a step of one arm, which trains a copy of the model.

    Args:
        arm: "plain"; "clipped", which is private but for its noise; or "private".
        model: any module that can be trained; stays as it is.
        loss_fn: (model, batch) → (B,) losses.
        batch: a tree of tensors with one entry for each of B examples; all go through the model at once.
        rule: how contributions are bounded, where they are.

    Raises:
        UnsupportedModelError: the model or loss cannot be trained privately; not in the arm "plain".
    """
    trained, data, noise = copy.deepcopy(model), _OneBatch(batch), _NOISE[arm]
    optimizer = torch.optim.SGD(trainable(trained).values(), lr=_LEARNING_RATE)
    device = next(trained.parameters()).device
    if noise is None:
        yield _synchronised(_plain(trained, loss_fn, optimizer, data, device), device)
        return
    plan = Plan(
        examples=len(data), sampling=FullBatch(), steps=_STEPS, clipping=rule, noise=noise, delta=0.1 / len(data)
    )  # fmt: skip
    training = Training(plan, trained, loss_fn, optimizer, data, physical_batch_size=len(data), checkpoint_every=_STEPS)
    with closing(iter(training)) as steps:  # type: ignore[type-var]
        yield _synchronised(lambda: next(steps), device)


def _plain(
    model: nn.Module, loss_fn: LossFunction, optimizer: torch.optim.Optimizer, data: BatchDataset, device: torch.device
) -> TimedStep:
    everyone = np.arange(len(data), dtype=np.int64)

    def step() -> None:
        optimizer.zero_grad()
        loss_fn(model, to_device(data.read(everyone), device)).mean().backward()
        optimizer.step()

    return step


def _synchronised(step: TimedStep, device: torch.device) -> TimedStep:
    """Return the step with a wait for the device at its end, which is when its time is up."""
    if device.type != "cuda":
        return step

    def waiting() -> None:
        step()
        torch.cuda.synchronize(device)

    return waiting
