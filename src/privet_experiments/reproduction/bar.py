"""How far a reproduction is, and the time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Bar:
    """A progress bar over the steps of all runs that are known to be wanted; nothing where there is no terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("reproducing: steps", total=0)
        self._total = 0

    def expect(self, steps: int) -> None:
        """Count steps as wanted."""
        self._total += steps
        self._progress.update(self._task, total=self._total)

    @contextmanager
    def beside(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show a second bar for something that comes before runs; yield what advances it."""
        task = self._progress.add_task(what, total=total)
        try:
            yield lambda number: self._progress.update(task, advance=number)
        finally:
            self._progress.remove_task(task)

    def advance(self, steps: int) -> None:
        """Count steps as taken."""
        self._progress.advance(self._task, steps)


@contextmanager
def bar(shown: bool) -> Iterator[Bar]:
    """Yield a bar on standard error, drawn if it is to be shown and a terminal is there to redraw it on."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not (shown and console.is_terminal)) as progress:
        yield Bar(progress)
