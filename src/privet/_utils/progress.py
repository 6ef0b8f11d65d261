"""Progress bar with elapsed and remaining time, on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


@contextmanager
def progress_bar(*columns: ProgressColumn | str, shown: bool = True) -> Iterator[Progress]:
    """Yield a progress bar for adding tasks to.

    It only draws on a terminal, because redrawing clutters log files.

    Args:
        columns: columns between the percentage and the times; strings are task formats such as "ε {task.fields[epsilon]}".
        shown: whether to draw it.
    """
    ends = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*ends, *columns, *times, console=console, disable=not (shown and console.is_terminal)) as progress:
        yield progress
