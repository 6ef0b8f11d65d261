"""Observation of a training: its steps, callbacks, metrics file and progress bar. They see public and released values only."""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from privet._utils.documents import DocumentError, from_json, read_text
from privet.accounting.queries import DEFAULT_ACCOUNTANT
from privet.accounting.rounding import format_up
from privet.clipping.base import Rule
from privet.errors import InvalidArgumentError, PrivetWarning
from privet.plan import Plan
from privet.training import checkpoint

METRICS = "metrics.jsonl"
# Number of steps per run that are written. More would add little: what they tell is known from the plan.
POINTS = 20
# What the file publishes besides public and released values, for the statement.
TIMES = "the training time in seconds"
# Names of the values of every step.
_MEASURES = ("epsilon", "learning_rate", "sensitivity", "seconds")
_RESERVED = ("step", *_MEASURES)
# ε takes some milliseconds to compute, so it is shown every few seconds only.
_SECONDS_BETWEEN = 3.0


@dataclass(frozen=True)
class Step:
    """One completed step.

    Args:
        number: number of the step within the run, from 1; steps lost to a crash are not numbered again.
        total: number of steps of the plan.
        learning_rate: learning rate of the step, of the optimizer's first group; None if it has none.
        sensitivity: bound on what one example contributed to the step's sum, such as the clipping bound.
        seconds: running time up to this step, over all sessions of the run. Times are not covered by the guarantee: a step takes
            longer if it draws more examples.
        released: name → noisy statistic that the step released besides the gradients, divided by the plan's divisor, such as the
            count of `AdaptiveQuantile`; empty for most rules.

    Guarantee:
        Nothing here depends on the data except through released values and the running time: neither losses, norms nor the number
        of drawn examples.
    """

    number: int
    total: int
    learning_rate: float | None = None
    sensitivity: float | None = None
    seconds: float = 0.0
    released: Mapping[str, float] = field(default_factory=dict, hash=False)
    _epsilon_after: Callable[..., float] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def epsilon(self) -> float:
        """ε at the plan's δ of all steps up to this one, computed when it is first asked for (some milliseconds)."""
        return math.nan if self._epsilon_after is None else self._epsilon_after(steps=self.number)

    def measures(self) -> dict[str, float | None]:
        """Return name → value of all that is known of the step, except its number; None for what is not a finite number."""
        known = {name: getattr(self, name) for name in _MEASURES}
        return {name: _finite(value) for name, value in {**known, **self.released}.items()}

    def is_one_of(self, points: int) -> bool:
        """Return whether the step is one of about this many, evenly spread over the run, or the last."""
        return self.number % max(1, self.total // points) == 0 or self.number == self.total


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


class Callback:
    """Base of callbacks for `Training.run(callbacks=[...])`; override the methods that you need.

    Callbacks run in the process that trains, between two steps: never while gradients are computed. They are not stored, so a
    resumed run needs them again. An exception in a callback ends the loop as an exception in its body does: the step is
    complete, a checkpoint is written, `on_end` of every callback is called, and the exception propagates. Nothing is lost, and
    the run can be continued.

    Guarantee:
        Callbacks receive public and released values only, so whatever they publish is covered, except running times. A callback
        that reads the training data itself, such as to compute a loss, is outside the guarantee.

    >>> class Print(Callback):
    ...     def on_step(self, step):
    ...         print(step.number, "of", step.total)
    >>> Print().on_step(Step(1, 10))
    1 of 10
    """

    def on_step(self, step: Step) -> None:
        """Called after each step."""

    def on_metrics(self, step: Step, metrics: Mapping[str, float | None]) -> None:
        """Called by `Training.log`, with the latest step."""

    def on_checkpoint(self, step: Step, path: Path) -> None:
        """Called after a checkpoint was written, with the latest step."""

    def on_end(self, step: Step | None) -> None:
        """Called when the loop ends, however it ends, with the latest step; None if no step was taken."""


def _check_callbacks(callbacks: Iterable[Callback]) -> tuple[Callback, ...]:
    found = tuple(callbacks) if isinstance(callbacks, Iterable) else (None,)
    if not all(isinstance(one, Callback) for one in found):
        fix = "Derive your class from privet.Callback and pass an instance of it in a list."
        raise InvalidArgumentError("callbacks", callbacks, "a list of privet.Callback objects", fix)
    return found


def _check_metrics(metrics: Mapping[str, Any]) -> dict[str, float | None]:
    """Return metrics as plain numbers, with None for values that are missing or not finite; refuse reserved names."""
    found: dict[str, float | None] = {}
    for name, value in metrics.items():
        if not isinstance(name, str) or not name or name in _RESERVED or ":" in name:
            raise InvalidArgumentError(
                "metrics", name, f"named by text without a colon, other than {', '.join(_RESERVED)}", "Rename it."
            )
        try:
            found[name] = None if value is None else _finite(float(value))
        except (TypeError, ValueError):
            raise InvalidArgumentError(f"metrics[{name!r}]", type(value).__name__, "a number or None") from None
    return found


class ProgressBar(Callback):
    """Shows steps, ε spent and the time left, on a terminal or in a notebook."""

    def __init__(self, total: int) -> None:
        from privet._utils.progress import progress_bar

        self._open = ExitStack()
        self._bar = self._open.enter_context(progress_bar("step {task.completed:,}/{task.total:,}", "ε {task.fields[epsilon]}"))
        self._task, self._shown_at = self._bar.add_task("training", total=total, epsilon="0"), -_SECONDS_BETWEEN

    def on_step(self, step: Step) -> None:
        """Advance the bar."""
        fields: dict[str, Any] = {}
        now = time.monotonic()
        if now - self._shown_at >= _SECONDS_BETWEEN or step.number == step.total:
            fields, self._shown_at = {"epsilon": format_up(step.epsilon)}, now
        self._bar.update(self._task, completed=step.number, **fields)

    def on_end(self, step: Step | None) -> None:
        """Leave the bar as it is."""
        self._open.close()


class MetricsFile(Callback):
    """Appends the measures of about `points` steps of a run, evenly spread, and all that `Training.log` is given.

    Lines of one step complement each other. Nothing is decided by the file: if it cannot be written, a warning says so once.
    """

    def __init__(self, directory: Path, points: int = POINTS) -> None:
        self._path, self._points, self._checked, self._failed = directory / METRICS, points, False, False

    def on_step(self, step: Step) -> None:
        """Append the measures of a step, if it is one of the points."""
        if step.is_one_of(self._points):
            self._append(step, {**step.measures(), "seconds": round(step.seconds, 2)})

    def on_metrics(self, step: Step, metrics: Mapping[str, float | None]) -> None:
        """Append metrics of the user."""
        self._append(step, metrics)

    def _append(self, step: Step, values: Mapping[str, float | None]) -> None:
        if self._failed:
            return
        line = json.dumps({"step": step.number, **values}, allow_nan=False) + "\n"
        try:
            if not self._checked and self._path.exists():
                with self._path.open("r+b") as file:  # a crash may have left part of a line
                    file.truncate(file.read().rfind(b"\n") + 1)
            self._checked = True
            with self._path.open("ab") as file:
                file.write(line.encode())
        except OSError as error:
            self._failed = True
            text = f"{self._path} cannot be written ({error.strerror}); it gets no more lines, and training continues"
            warnings.warn(text, PrivetWarning, stacklevel=2)


def _read_seconds(directory: Path) -> float:
    """Return the running time that earlier sessions of a run recorded; 0 if there is none."""
    try:
        lines = read_text(directory / METRICS).splitlines()
    except DocumentError:
        return 0.0
    for line in reversed(lines):
        try:
            return float(from_json(line)["seconds"])
        except (DocumentError, ValueError, TypeError, KeyError):
            continue
    return 0.0


class Observers:
    """Describes the steps of a training and passes them to its metrics file and callbacks.

    Without a directory there is no metrics file. `saved` returns the number of checkpoints that were written.
    """

    def __init__(self, plan: Plan, directory: Path | None, saved: Callable[[], int], points: int = POINTS) -> None:
        self._total, self._epsilon_after = plan.total_steps, partial(plan.epsilon, DEFAULT_ACCOUNTANT)
        self._path = None if directory is None else directory / checkpoint.NAME
        self._saved = saved
        self._own: tuple[Callback, ...] = () if directory is None else (MetricsFile(directory, points),)
        self._active: list[tuple[Callback, ...]] = []
        self._seconds_before = 0.0 if directory is None else _read_seconds(directory)
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
        return self._watch(taken, (*self._own, *_check_callbacks(callbacks)), progress)

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Write metrics beside those of the last step, and pass them to the callbacks of all running loops."""
        found = _check_metrics(metrics)
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


def learning_rate(optimizer: torch.optim.Optimizer) -> float | None:
    """Return the learning rate of an optimizer's first group; None if it has none."""
    found = optimizer.param_groups[0].get("lr")
    return None if found is None else float(found)
