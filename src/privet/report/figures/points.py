"""Runs as points of a comparison, and which of them belong on one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Settings that runs are compared by, as they are called on pages.
SETTINGS = ("clip bound", "learning rate", "batch size", "noise multiplier", "momentum")
_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Measured:
    """A share in [0, 1], with its 95 % interval from the test set if that is known."""

    value: float
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Point:
    """A run.

    Args:
        name: of its directory.
        rule: kind of its clipping rule.
        epsilon: that it promises.
        settings: those of `SETTINGS` that it has.
        accuracy, calibration_error: of the final model on the test set; None if not measured.
        loss: negative log-likelihood, likewise.
        progress: (ε, test accuracy) while it trained.
    """

    name: str
    rule: str
    epsilon: float
    settings: Mapping[str, float]
    accuracy: Measured | None
    calibration_error: Measured | None
    loss: float | None
    progress: tuple[tuple[float, float], ...]

    def at(self, axis: str) -> str | float | None:
        """Return where it lies: its rule, ε rounded to three digits (calibration never hits a target exactly), or a setting."""
        if axis == "rule":
            return self.rule
        return float(f"{self.epsilon:.{_DIGITS}g}") if axis == "ε" else self.settings.get(axis)


def lines(points: Sequence[Point], axis: str) -> dict[str, list[Point]]:
    """Return the points that vary along an axis as lines, by what tells these apart.

    Rules are told apart always, anything else where it differs among points at the same place that are not told apart yet. What
    follows from the place (a learning rate that was divided by the bound, the noise that a budget needs) does not count.

    Args:
        points: of which only those that have a place on the axis count.
        axis: "ε", or one of `SETTINGS`.
    """
    placed = [point for point in points if point.at(axis) is not None]
    telling = ["rule"] if len({point.rule for point in placed}) > 1 else []
    for other in ("ε", *SETTINGS):
        if other != axis and _differs(placed, [axis, *telling], other):
            telling.append(other)
    found: dict[str, list[Point]] = {}
    for point in placed:
        found.setdefault(", ".join(_words(other, point.at(other)) for other in telling), []).append(point)
    return found


def _differs(points: Sequence[Point], known: Sequence[str], other: str) -> bool:
    """Return whether points that are the same in what is known differ in something else."""
    found: dict[tuple[object, ...], set[object]] = {}
    for point in points:
        found.setdefault(tuple(point.at(name) for name in known), set()).add(point.at(other))
    return any(len(values) > 1 for values in found.values())


def _words(name: str, value: str | float | None) -> str:
    if value is None:
        return f"no {name}"
    return value if isinstance(value, str) else f"{name} {value:.4g}"
