"""A progress bar that shows the step, ε spent and the time left."""

from __future__ import annotations

import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from privet.accounting.rounding import legible
from privet.training import Step, Training

# ε takes some milliseconds to compute: often enough to watch, seldom enough not to slow training.
_SECONDS_BETWEEN = 3.0


def shown(training: Training) -> Iterator[Step]:
    """Yield the training's steps while showing them on standard error."""
    columns = (
        TextColumn("training"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("step {task.completed:,}/{task.total:,}"),
        TextColumn("ε {task.fields[epsilon]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    # Where there is no terminal (a log file, CI), a bar that redraws itself is noise.
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("training", total=len(training), completed=training.steps_spent, epsilon="0")
        last = -_SECONDS_BETWEEN
        for step in training:
            now = time.monotonic()
            if now - last >= _SECONDS_BETWEEN or step.number == step.total:
                bar.update(task, completed=step.number, epsilon=legible(training.epsilon()))
                last = now
            else:
                bar.update(task, completed=step.number)
            yield step
