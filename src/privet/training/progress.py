"""Progress of a training: steps, ε spent and the time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from privet._utils.progress import progress_bar
from privet.accounting.rounding import format_up

# ε takes some milliseconds to compute: often enough to watch, seldom enough not to slow training.
_SECONDS_BETWEEN = 3.0


class Numbered(Protocol):
    """Something with the number of a step, counted from 1."""

    @property
    def number(self) -> int:
        """The number."""


Taken = TypeVar("Taken", bound=Numbered)


def track(steps: Iterable[Taken], total: int, epsilon: Callable[[], float]) -> Iterator[Taken]:
    """Yield steps as they are taken, and show on standard error how far the training is.

    Args:
        steps: that are left.
        total: number of steps of the whole training.
        epsilon: returns what is spent so far.
    """
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
