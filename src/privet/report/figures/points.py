"""Runs as points of a comparison, and their grouping into lines."""

from __future__ import annotations

__all__ = ["SETTINGS", "Estimate", "Point", "group_into_lines"]

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Settings by which runs are compared, by their display names.
SETTINGS = ("clip bound", "learning rate", "batch size", "noise multiplier", "momentum")
_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share in [0, 1], with its 95 % interval from the test set if known."""

    value: float
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Point:
    """A run in a comparison.

    Args:
        name: name of its directory.
        rule: kind of its clipping rule.
        epsilon: its ε.
        settings: its values of `SETTINGS`; settings that it does not have are left out.
        accuracy, calibration_error: of the final model on the test set; None if not measured.
        loss: negative log-likelihood of the final model on the test set; None if not measured.
        progress: (ε, test accuracy) during training.
    """

    name: str
    rule: str
    epsilon: float
    settings: Mapping[str, float]
    accuracy: Estimate | None
    calibration_error: Estimate | None
    loss: float | None
    progress: tuple[tuple[float, float], ...]

    def at(self, axis: str) -> str | float | None:
        """Return its place on an axis: its rule, a setting, or ε rounded to three digits, as calibrated ε differ slightly."""
        if axis == "rule":
            return self.rule
        return float(f"{self.epsilon:.{_DIGITS}g}") if axis == "ε" else self.settings.get(axis)


def group_into_lines(points: Sequence[Point], axis: str) -> dict[str, list[Point]]:
    """Group the points along an axis into lines; return label → points.

    Different rules are always different lines. Another setting separates lines only where it differs between points of one line
    at the same place. A setting that follows from the place (a learning rate divided by the bound, the noise for a budget) does
    not.

    Args:
        points: the runs; those without a value on the axis are left out.
        axis: "ε", or one of `SETTINGS`.
    """
    placed = [point for point in points if point.at(axis) is not None]
    labels = ["rule"] if len({point.rule for point in placed}) > 1 else []
    for other in ("ε", *SETTINGS):
        if other != axis and _differs(placed, [axis, *labels], other):
            labels.append(other)
    found: dict[str, list[Point]] = {}
    for point in placed:
        found.setdefault(", ".join(_format_label(other, point.at(other)) for other in labels), []).append(point)
    return found


def _differs(points: Sequence[Point], known: Sequence[str], other: str) -> bool:
    """Return whether points with the same values of the known settings differ in another setting."""
    found: dict[tuple[object, ...], set[object]] = {}
    for point in points:
        found.setdefault(tuple(point.at(name) for name in known), set()).add(point.at(other))
    return any(len(values) > 1 for values in found.values())


def _format_label(name: str, value: str | float | None) -> str:
    if value is None:
        return f"no {name}"
    return value if isinstance(value, str) else f"{name} {value:.4g}"
