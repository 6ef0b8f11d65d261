"""`metrics.jsonl`: the public measures of a run, a JSON object a line, appended as the run proceeds."""

from __future__ import annotations

__all__ = ["METRICS", "POINTS", "TIMES", "MetricsFile", "read_seconds"]

import json
import warnings
from collections.abc import Mapping
from pathlib import Path

from privet._utils.documents import DocumentError, from_json, read_text
from privet.errors import PrivetWarning
from privet.training.observation.callbacks import Callback
from privet.training.observation.steps import Step

METRICS = "metrics.jsonl"
# Number of steps per run that are written. More would add little: what they tell is known from the plan.
POINTS = 20
# What the file publishes besides public and released values, for the statement.
TIMES = "the training time in seconds"


class MetricsFile(Callback):
    """Appends the measures of about `points` steps of a run, evenly spread, and all that `Training.log` is given.

    Lines of one step complement each other. Nothing is decided by the file: if it cannot be written, a warning says so once.
    """

    def __init__(self, directory: Path, points: int = POINTS) -> None:
        self._path, self._points, self._checked, self._failed = directory / METRICS, points, False, False

    def on_step(self, step: Step) -> None:
        """Append the measures of a step, if it is one of the points."""
        if step.is_one_of(self._points):
            self._append(step, {**step.measures(), "seconds": round(step.seconds, 2)})

    def on_metrics(self, step: Step, metrics: Mapping[str, float | None]) -> None:
        """Append metrics of the user."""
        self._append(step, metrics)

    def _append(self, step: Step, values: Mapping[str, float | None]) -> None:
        if self._failed:
            return
        line = json.dumps({"step": step.number, **values}, allow_nan=False) + "\n"
        try:
            if not self._checked:
                _remove_incomplete_line(self._path)
                self._checked = True
            with self._path.open("ab") as file:
                file.write(line.encode())
        except OSError as error:
            self._failed = True
            warnings.warn(
                f"{self._path} cannot be written ({error.strerror}); it gets no more lines, and training continues",
                PrivetWarning,
                stacklevel=2,
            )


def _remove_incomplete_line(path: Path) -> None:
    """Remove what a crash left of a last line, so that every line can be read."""
    if path.exists():
        with path.open("r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)


def read_seconds(directory: Path) -> float:
    """Return the running time that earlier sessions of a run recorded; 0 if there is none."""
    try:
        lines = read_text(directory / METRICS).splitlines()
    except DocumentError:
        return 0.0
    for line in reversed(lines):
        try:
            return float(from_json(line)["seconds"])
        except (DocumentError, ValueError, TypeError, KeyError):
            continue
    return 0.0
