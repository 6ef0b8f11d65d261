"""The progress bar: how far something long is, and the time left, on standard error."""

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
    """Yield a progress bar, to which tasks are added.

    It draws only on a terminal: in a log file a bar that redraws itself is noise.

    Args:
        columns: what stands between the share done and the time; as text, formats of a task such as "ε {task.fields[epsilon]}".
        shown: whether to draw it at all.
    """
    ends = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*ends, *columns, *times, console=console, disable=not (shown and console.is_terminal)) as progress:
        yield progress
