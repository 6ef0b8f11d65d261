"""Progress of a training: steps, ε spent and the time left."""

from __future__ import annotations

__all__ = ["track"]

import time
from collections.abc import Iterable, Iterator

from privet.accounting.rounding import format_up
from privet.training.observation.steps import Step

# ε takes some milliseconds to compute, so it is shown every few seconds only.
_SECONDS_BETWEEN = 3.0


def track(steps: Iterable[Step], total: int) -> Iterator[Step]:
    """Yield steps as they are taken, and show the progress of the training, on a terminal or in a notebook.

    Args:
        steps: steps that remain.
        total: number of steps of the whole training.
    """
    from privet._utils.progress import progress_bar

    with progress_bar("step {task.completed:,}/{task.total:,}", "ε {task.fields[epsilon]}") as bar:
        task = bar.add_task("training", total=total, epsilon="0")
        shown_at = -_SECONDS_BETWEEN
        for step in steps:
            now = time.monotonic()
            if now - shown_at >= _SECONDS_BETWEEN or step.number == total:
                bar.update(task, completed=step.number, epsilon=format_up(step.epsilon))
                shown_at = now
            else:
                bar.update(task, completed=step.number)
            yield step
