"""The observers of one training: its metrics file, and the callbacks of the loops that are running."""

from __future__ import annotations

__all__ = ["Observers", "learning_rate"]

import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from privet.accounting.queries import DEFAULT_ACCOUNTANT
from privet.clipping.base import Rule
from privet.errors import InvalidArgumentError
from privet.plan import Plan
from privet.training import checkpoint
from privet.training.observation.callbacks import Callback, ProgressBar, check_callbacks, check_metrics
from privet.training.observation.metrics_file import POINTS, MetricsFile, read_seconds
from privet.training.observation.steps import Step


class Observers:
    """Describes the steps of a training and passes them to its metrics file and callbacks.

    Without a directory there is no metrics file. `saved` returns the number of checkpoints that were written.
    """

    def __init__(self, plan: Plan, directory: Path | None, saved: Callable[[], int], points: int = POINTS) -> None:
        self._total, self._epsilon_after = plan.total_steps, partial(_epsilon_after, plan)
        self._path = None if directory is None else directory / checkpoint.NAME
        self._saved = saved
        self._own: tuple[Callback, ...] = () if directory is None else (MetricsFile(directory, points),)
        self._active: list[tuple[Callback, ...]] = []
        self._seconds_before = 0.0 if directory is None else read_seconds(directory)
        self._started: float | None = None
        self._last: Step | None = None

    @property
    def seconds(self) -> float:
        """Running time over all sessions of the run, from the first step of each."""
        return self._seconds_before + (0.0 if self._started is None else time.monotonic() - self._started)

    def describe(self, number: int, rule: Rule, learning_rate: float | None, released: Mapping[str, Tensor]) -> Step:
        """Return the description of a step: its rule depends on earlier releases only, and `released` is all that it released."""
        statistics = {name: tensor.flatten().tolist() for name, tensor in released.items() if ":" in name}
        named = {
            f"{name} {index}" if len(values) > 1 else name: value
            for name, values in statistics.items()
            for index, value in enumerate(values)
        }
        self._last = Step(number, self._total, learning_rate, rule.sensitivity, self.seconds, named, self._epsilon_after)
        return self._last

    def watch(self, taken: Generator[Step, None, None], callbacks: Iterable[Callback], *, progress: bool) -> Iterator[Step]:
        """Return an iterator over the steps that calls the callbacks; closing it closes `taken`, which writes a checkpoint."""
        return self._watch(taken, (*self._own, *check_callbacks(callbacks)), progress)

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Write metrics beside those of the last step, and pass them to the callbacks of all running loops."""
        found = check_metrics(metrics)
        if self._last is None:
            raise InvalidArgumentError("metrics", sorted(found), "logged after a step", "Call log() in or after the loop.")
        running = {id(one): one for callbacks in self._active for one in callbacks}
        for callback in {**{id(one): one for one in self._own}, **running}.values():
            callback.on_metrics(self._last, found)

    def _watch(
        self, taken: Generator[Step, None, None], called: tuple[Callback, ...], progress: bool
    ) -> Generator[Step, None, None]:
        called = (*called, ProgressBar(self._total)) if progress else called
        self._started = time.monotonic() if self._started is None else self._started
        self._active.append(called)
        known, last = self._saved(), None

        def report_checkpoint() -> None:
            nonlocal known
            if self._path is not None and last is not None and self._saved() != known:
                known = self._saved()
                for callback in called:
                    callback.on_checkpoint(last, self._path)

        try:
            for last in taken:
                for callback in called:
                    callback.on_step(last)
                report_checkpoint()
                yield last
                report_checkpoint()
        finally:
            with ExitStack() as ends:  # calls every on_end, whatever fails
                ends.callback(self._active.remove, called)
                for callback in () if sys.is_finalizing() else reversed(called):
                    ends.callback(callback.on_end, last)
                taken.close()
                if not sys.is_finalizing():
                    report_checkpoint()


def _epsilon_after(plan: Plan, steps: int) -> float:
    return plan.epsilon(DEFAULT_ACCOUNTANT, steps=steps)


def learning_rate(optimizer: torch.optim.Optimizer) -> float | None:
    """Return the learning rate of an optimizer's first group; None if it has none."""
    found = optimizer.param_groups[0].get("lr")
    return None if found is None else float(found)
