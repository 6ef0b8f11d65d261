"""The part that all metrics sinks share: what they send, how often, and what happens if a service fails."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping

from privet.errors import PrivetWarning, count
from privet.training import Callback, Step

_POINTS = 100


class Sink(Callback):
    """A callback that sends measures of steps, and what `Training.log` is given, to a service or a file.

    It connects when it has something to send, so a run that is refused leaves nothing behind. If the service fails during
    training, a warning says so once, it gets no more values, and training continues.

    Args:
        every: steps from one value to the next, ≥ 1; None for about a hundred values per run. ε takes some milliseconds for each.

    Guarantee:
        It sends what callbacks receive: public and released values, and running times. Nothing else of the data leaves.
    """

    def __init__(self, every: int | None = None) -> None:
        self._every = None if every is None else count("every", every, fix="It is the number of steps between values.")
        self._failed = False

    def on_step(self, step: Step) -> None:
        """Send the measures of a step, if it is one of those to send."""
        due = step.is_one_of(_POINTS) if self._every is None else step.number % self._every == 0 or step.number == step.total
        if due:
            self.on_metrics(step, step.measures())

    def on_metrics(self, step: Step, metrics: Mapping[str, float | None]) -> None:
        """Send numbers; those that are None are left out."""
        # Services use slashes to group names, and some refuse colons.
        values = {name.replace(":", "/"): value for name, value in metrics.items() if value is not None}
        self._guard(lambda: self._send(step.number, values))

    def on_end(self, step: Step | None) -> None:
        """Send what is buffered."""
        self._guard(self._flush)

    def close(self) -> None:
        """Send what is buffered and end the connection."""
        self._guard(self._close)

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _send(self, step: int, values: Mapping[str, float]) -> None:
        """Send the values of a step."""

    def _flush(self) -> None:
        """Send what is buffered; nothing by default."""

    def _close(self) -> None:
        """End the connection; nothing by default."""

    def _guard(self, act: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            act()
        except Exception as error:
            self._failed = True
            warnings.warn(
                f"{type(self).__name__} failed ({type(error).__name__}: {error}); it gets no more values, and training continues",
                PrivetWarning,
                stacklevel=3,
            )
