"""Progress bar with elapsed and remaining time, on a terminal or in a notebook."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

# Seconds between drawings in a notebook, which sends each of them to the browser.
_SECONDS_BETWEEN = 0.25
_WIDTH = 100


@contextmanager
def progress_bar(*columns: ProgressColumn | str, shown: bool = True) -> Iterator[Progress]:
    """Yield a progress bar for adding tasks to.

    It is drawn on standard error if that is a terminal, and below the cell in a notebook; elsewhere it would clutter log files.
    Columns stand between the percentage and the times; strings are task formats such as "ε {task.fields[epsilon]}".
    """
    ends = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    every = (*ends, *columns, TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    console = Console(stderr=True)
    if shown and console.is_jupyter:
        with _NotebookProgress(*every) as progress:
            yield progress
        return
    with Progress(*every, console=console, disable=not (shown and console.is_terminal)) as progress:
        yield progress


@contextmanager
def progress_of_parts(number: int, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show a progress bar of this many parts on standard error; yield a function to call with the name of each part."""
    with progress_bar(shown=not quiet) as bar:
        task = bar.add_task("auditing", total=number)
        begun = False

        def begin(part: str) -> None:
            nonlocal begun
            bar.update(task, description=part, advance=int(begun))
            begun = True

        yield begin
        bar.update(task, completed=number)


class _NotebookProgress(Progress):
    """Draws the bar as text into one output of the cell, which it replaces.

    rich itself draws in notebooks by ipywidgets, which many do not have; a display that is updated needs only IPython.
    """

    def __init__(self, *columns: ProgressColumn | str) -> None:
        super().__init__(*columns, disable=True)
        self._handle: Any = None
        self._drawn = -_SECONDS_BETWEEN

    def update(self, task_id: TaskID, **changes: Any) -> None:
        super().update(task_id, **changes)
        self._draw()

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        self._draw()

    def stop(self) -> None:
        super().stop()
        self._drawn = -_SECONDS_BETWEEN
        self._draw()

    def _draw(self) -> None:
        if (now := time.monotonic()) - self._drawn < _SECONDS_BETWEEN:
            return
        from IPython.display import display

        self._drawn = now
        text = self._text()
        bundle = {"text/plain": text, "text/html": f'<pre style="margin:0;white-space:pre">{escape(text)}</pre>'}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)

    def _text(self) -> str:
        canvas = Console(file=io.StringIO(), width=_WIDTH, force_jupyter=False, force_terminal=False, color_system=None)
        with canvas.capture() as captured:
            canvas.print(self.get_renderable())
        return "\n".join(line.rstrip() for line in captured.get().splitlines())
