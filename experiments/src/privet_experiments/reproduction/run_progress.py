"""Progress of a reproduction: steps of all runs, and preparations before them."""

from __future__ import annotations

__all__ = ["RunProgress", "track_runs"]

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import Progress

from privet._utils.progress import progress_bar


class RunProgress:
    """A progress bar over the steps of all expected runs."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("reproducing: steps", total=0)
        self._total = 0

    def expect(self, steps: int) -> None:
        """Add steps to the total."""
        self._total += steps
        self._progress.update(self._task, total=self._total)

    @contextmanager
    def preparation(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show a second bar for a preparation; yield the function that advances it."""
        task = self._progress.add_task(what, total=total)
        try:
            yield lambda number: self._progress.update(task, advance=number)
        finally:
            self._progress.remove_task(task)

    def advance(self, steps: int) -> None:
        """Count finished steps."""
        self._progress.advance(self._task, steps)


@contextmanager
def track_runs(shown: bool) -> Iterator[RunProgress]:
    """Yield the progress of a reproduction, drawn on a terminal if `shown`."""
    with progress_bar("{task.completed:,.0f}/{task.total:,.0f}", shown=shown) as progress:
        yield RunProgress(progress)
