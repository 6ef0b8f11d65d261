"""Callbacks: code of the user, called between the steps of a training."""

from __future__ import annotations

__all__ = ["Callback", "ProgressBar", "check_callbacks", "check_metrics"]

import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from privet.accounting.rounding import format_up
from privet.errors import InvalidArgumentError
from privet.training.observation.steps import MEASURES, Step, finite

_RESERVED = ("step", *MEASURES)
# ε takes some milliseconds to compute, so it is shown every few seconds only.
_SECONDS_BETWEEN = 3.0


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


def check_callbacks(callbacks: Iterable[Callback]) -> tuple[Callback, ...]:
    """Return the callbacks as a tuple; refuse anything else."""
    found = tuple(callbacks) if isinstance(callbacks, Iterable) else (None,)
    if not all(isinstance(one, Callback) for one in found):
        raise InvalidArgumentError(
            "callbacks", callbacks, "a list of privet.Callback objects",
            "Derive your class from privet.Callback and pass an instance of it in a list.",
        )  # fmt: skip
    return found


def check_metrics(metrics: Mapping[str, Any]) -> dict[str, float | None]:
    """Return metrics as plain numbers, with None for values that are missing or not finite; refuse reserved names."""
    found: dict[str, float | None] = {}
    for name, value in metrics.items():
        if not isinstance(name, str) or not name or name in _RESERVED or ":" in name:
            raise InvalidArgumentError(
                "metrics", name, f"named by text without a colon, other than {', '.join(_RESERVED)}", "Rename it."
            )
        try:
            found[name] = None if value is None else finite(float(value))
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
