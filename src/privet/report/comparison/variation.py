"""What was varied between runs, and whether a difference can be put down to it."""

from __future__ import annotations

__all__ = ["Variation", "find_variation"]

import math
from collections.abc import Sequence
from dataclasses import dataclass

from privet.report.comparison.points import Axis
from privet.report.run_files import Run
from privet.report.setting_rows import ComparedSetting, compare

_NOISE = "noise multiplier"
# Repetitions differ in these, or they change where a run is computed and not what.
_NO_CAUSES = frozenset({"seed", "device", "physical batch size", "folder"})
_DIGITS = 3  # of ε: calibrated values differ slightly


@dataclass(frozen=True, slots=True)
class Variation:
    """The settings of several runs.

    Args:
        varied: those that differ.
        causes: those of them that a difference in results may come from. The noise of runs with the same ε follows from the other
            settings, and a seed only tells repetitions apart.
        same: those that agree.
        axes: the causes as numbers, with ε in place of a noise multiplier; empty unless all of them are numbers.
    """

    varied: tuple[ComparedSetting, ...]
    causes: tuple[ComparedSetting, ...]
    same: tuple[ComparedSetting, ...]
    axes: tuple[Axis, ...]

    @property
    def summary(self) -> str:
        """A sentence or two on what the runs differ in, and what follows from that."""
        names = [setting.name for setting in self.causes]
        follows = any(setting.name == _NOISE and setting not in self.causes for setting in self.varied)
        noise = " The noise multiplier follows from ε, which is the same." if follows else ""
        match names:
            case []:
                return "No setting that affects the result was varied: the results differ by chance."
            case [name]:
                return (
                    f"One setting was varied: {name}.{noise} Runs also differ by chance, so repeat each of them before you draw "
                    "a conclusion."
                )
            case _:
                listed = f"{', '.join(names[:-1])} and {names[-1]}"
                return (
                    f"{len(names)} settings were varied: {listed}.{noise} A difference between two runs that differ in several "
                    "of them cannot be put down to one."
                )


def find_variation(runs: Sequence[Run]) -> Variation:
    """Return what was varied between runs.

    Args:
        runs: at least two runs.
    """
    settings = (*compare([run.plan for run in runs]), *compare([run.setup for run in runs]))
    varied = tuple(setting for setting in settings if setting.differs)
    epsilons = [run.guarantee.epsilon if run.guarantee else math.inf for run in runs]
    level = len({f"{epsilon:.{_DIGITS}g}" for epsilon in epsilons}) == 1 and math.isfinite(epsilons[0])
    causes = tuple(setting for setting in varied if setting.name not in _NO_CAUSES and not (level and setting.name == _NOISE))
    return Variation(
        varied=varied,
        causes=causes,
        same=tuple(setting for setting in settings if not setting.differs),
        axes=_find_axes(causes, epsilons),
    )


def _find_axes(causes: Sequence[ComparedSetting], epsilons: Sequence[float]) -> tuple[Axis, ...]:
    axes = []
    for setting in causes:
        if setting.name == _NOISE and all(map(math.isfinite, epsilons)):
            axes.append(Axis("ε", tuple(float(f"{epsilon:.{_DIGITS}g}") for epsilon in epsilons)))
        elif all(isinstance(value, int | float) and not isinstance(value, bool) for value in setting.values):
            axes.append(Axis(setting.name, tuple(map(float, setting.values))))
        else:
            return ()
    return tuple(axes)
