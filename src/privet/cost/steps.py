"""Training steps to compare: plain, clipped without noise, and private; and their times, taken in alternation.

All of them use the same batch, read it from memory, and end with the optimizer's step. Other load on the machine affects steps
that alternate alike.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from privet.training import Reading, Training

TimedStep = Callable[[], object]
# Small enough that parameters hardly change.
_LEARNING_RATE = 1e-4
# More than any benchmark takes.
_STEPS = 1_000_000
# Arm → its noise; plain training has no privacy mechanism.
_NOISE: Mapping[str, Gaussian | None] = {"plain": None, "clipped": Gaussian(0.0, non_private=True), "private": Gaussian(1.0)}
KINDS: tuple[str, ...] = tuple(_NOISE)


class _OneBatch(BatchDataset):
    row_wise = True

    def __init__(self, batch: Any) -> None:
        self.batch, self.examples = batch, count_examples(batch)

    def __len__(self) -> int:
        return self.examples

    def read(self, indices: Indices) -> Any:
        return select_examples(self.batch, torch.from_numpy(indices))


@contextmanager
def step_of(
    kind: str, model: nn.Module, loss_fn: LossFunction, batch: Any, rule: Rule, probe_batch: Any = None
) -> Iterator[TimedStep]:
    """Yield a step of one kind, which trains a copy of the model.

    Args:
        kind: "plain", "clipped" (private training without noise) or "private".
        batch: tree of tensors with one entry per example, B in all; they go through the model at once.
        rule: clipping rule of the kinds "clipped" and "private".
        probe_batch: as for `privet.Reading`.

    Raises:
        UnsupportedModelError: the model or loss cannot be trained privately; never in the kind "plain".
    """
    trained, data, noise = copy.deepcopy(model), _OneBatch(batch), _NOISE[kind]
    optimizer = torch.optim.SGD(trainable(trained).values(), lr=_LEARNING_RATE)
    device = next(trained.parameters()).device
    if noise is None:
        yield _synchronize(_build_plain_step(trained, loss_fn, optimizer, data, device), device)
        return
    size = len(data)
    plan = Plan(examples=size, sampling=FullBatch(), steps=_STEPS, clipping=rule, noise=noise, delta=0.1 / size)
    reading = Reading(probe_batch=probe_batch)
    training = Training(plan, trained, loss_fn, optimizer, data, physical_batch_size=size, reading=reading)
    with closing(iter(training)) as steps:  # type: ignore[type-var]
        yield _synchronize(lambda: next(steps), device)


def _build_plain_step(
    model: nn.Module, loss_fn: LossFunction, optimizer: torch.optim.Optimizer, data: BatchDataset, device: torch.device
) -> TimedStep:
    indices = np.arange(len(data), dtype=np.int64)

    def step() -> None:
        optimizer.zero_grad()
        loss_fn(model, to_device(data.read(indices), device)).mean().backward()
        optimizer.step()

    return step


def _synchronize(step: TimedStep, device: torch.device) -> TimedStep:
    if device.type != "cuda":
        return step

    def step_and_wait() -> None:
        step()
        torch.cuda.synchronize(device)

    return step_and_wait


def alternating(
    steps: Mapping[str, TimedStep], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Return name → seconds in each round of steps in alternation, after one of each to warm up.

    The clock is in seconds; `time.process_time` excludes other processes.
    """
    for step in steps.values():
        step()
    taken = [{name: _seconds(step, clock) for name, step in steps.items()} for _ in range(rounds)]
    return {name: [times[name] for times in taken] for name in steps}


def paired_ratio(times: Sequence[float], base: Sequence[float]) -> float:
    """Return the median over rounds of the ratio of two step times.

    >>> paired_ratio([3.0, 8.0, 5.0], [1.0, 4.0, 2.0])
    2.5
    """
    return statistics.median(time / reference for time, reference in zip(times, base, strict=True))


def _seconds(step: TimedStep, clock: Callable[[], float]) -> float:
    start = clock()
    step()
    return clock() - start
