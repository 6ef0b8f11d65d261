"""Runs as points of a comparison."""

from __future__ import annotations

__all__ = ["Axis", "Point"]

from dataclasses import dataclass

from privet.report.estimates import Estimate


@dataclass(frozen=True, slots=True)
class Point:
    """A run in a comparison.

    Args:
        name: name of the run, unique among those compared.
        varied: the settings in which the runs differ, as in "steps 300, learning rate 2"; empty if they do not.
        quality: the number that its model is judged by; None if not measured.
        progress: (ε, the same number) during training; a share is in [0, 1].
    """

    name: str
    varied: str
    quality: Estimate | None
    progress: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """A number by which all compared runs can be placed, because nothing else was varied.

    Args:
        name: name of the setting, or "ε".
        places: its value in each run, in the order of the runs.
    """

    name: str
    places: tuple[float, ...]
