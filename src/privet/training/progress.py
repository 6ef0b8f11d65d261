"""Progress of a training: steps, ε spent and the time left."""

from __future__ import annotations

__all__ = ["Step", "track"]

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from privet.accounting.rounding import format_up

# ε takes some milliseconds to compute: often enough to watch, seldom enough not to slow training.
_SECONDS_BETWEEN = 3.0


@dataclass(frozen=True)
class Step:
    """One completed step. It says nothing about the data: not even how many examples were drawn.

    Args:
        number: of the step within the run, from 1; steps lost to a crash are not numbered again.
        total: steps of the plan.
    """

    number: int
    total: int


def track(steps: Iterable[Step], total: int, epsilon: Callable[[], float]) -> Iterator[Step]:
    """Yield steps as they are taken, and show on standard error how far the training is.

    Args:
        steps: that are left.
        total: number of steps of the whole training.
        epsilon: returns what is spent so far.
    """
    from privet._utils.progress import progress_bar

    with progress_bar("step {task.completed:,}/{task.total:,}", "ε {task.fields[epsilon]}") as bar:
        task = bar.add_task("training", total=total, epsilon="0")
        shown_at = -_SECONDS_BETWEEN
        for step in steps:
            now = time.monotonic()
            if now - shown_at >= _SECONDS_BETWEEN or step.number == total:
                bar.update(task, completed=step.number, epsilon=format_up(epsilon()))
                shown_at = now
            else:
                bar.update(task, completed=step.number)
            yield step
