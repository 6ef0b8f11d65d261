"""What was varied between runs, and whether a difference can be put down to it."""

from __future__ import annotations

__all__ = ["Variation", "find_variation"]

import math
from collections.abc import Sequence
from dataclasses import dataclass

from privet.accounting.rounding import round_up
from privet.report.comparison.points import Axis
from privet.report.run_files import Run
from privet.report.setting_rows import ComparedSetting, compare, list_defaults

_NOISE = "noise multiplier"
# Repetitions differ in these, or they change where a run is computed and not what.
_NO_CAUSES = frozenset({"seed", "device", "physical batch size", "folder"})
# Keys of plans that mean something else in a setup.
_IN_PLANS = {"momentum": "momentum of each example", "holdout": "held-out evaluation"}
_DIGITS = 3  # to which the ε of runs with one budget agree


@dataclass(frozen=True, slots=True)
class Variation:
    """The settings of several runs.

    Args:
        varied: those that were chosen differently. If the noise was, this is ε.
        causes: those of them that a difference in results may come from: a seed only tells repetitions apart.
        follows: those that differ because another one does: the noise of runs with the same ε, and what a rule for defaults
            chose in all runs.
        same: those that agree.
        axes: the causes as numbers; empty unless all of them are numbers.
    """

    varied: tuple[ComparedSetting, ...]
    causes: tuple[ComparedSetting, ...]
    follows: tuple[ComparedSetting, ...]
    same: tuple[ComparedSetting, ...]
    axes: tuple[Axis, ...]

    @property
    def summary(self) -> str:
        """A few sentences on what the runs differ in, and what follows from that."""
        names = [setting.name for setting in self.causes]
        follows = f" {self.consequence}" if self.follows else ""
        match names:
            case []:
                return "No setting that affects the result was varied: the results differ by chance."
            case [name]:
                return (
                    f"One setting was varied: {name}.{follows} Runs also differ by chance, so repeat each of them before you "
                    "draw a conclusion."
                )
            case _:
                return (
                    f"{len(names)} settings were varied: {_enumerate(names)}.{follows} A difference between two runs that "
                    "differ in several of them cannot be put down to one."
                )

    @property
    def consequence(self) -> str:
        """A sentence on what differs because another setting does; empty if nothing does."""
        names = [setting.name for setting in self.follows]
        return f"The {_enumerate(names)} {'follow' if names[1:] else 'follows'} from that." if names else ""


def find_variation(runs: Sequence[Run]) -> Variation:
    """Return what was varied between runs.

    Args:
        runs: at least two runs.
    """
    # The schema itself is in the plan; the setup has the path of its file.
    setups = [{key: value for key, value in run.setup.items() if key != "schema"} for run in runs]
    plans = [{_IN_PLANS.get(key, key): value for key, value in run.plan.items()} for run in runs]
    settings = (*compare(plans), *compare(setups))
    epsilons = [run.guarantee.epsilon if run.guarantee else math.inf for run in runs]
    by_default = frozenset.intersection(*(list_defaults(run.setup) for run in runs))
    varied, follows = [], []
    for setting in filter(lambda setting: setting.differs, settings):
        noise = setting.name == _NOISE and all(map(math.isfinite, epsilons))
        if (noise and len({f"{epsilon:.{_DIGITS}g}" for epsilon in epsilons}) == 1) or setting.name in by_default:
            follows.append(setting)
        else:
            varied.append(ComparedSetting("ε", tuple(float(round_up(epsilon)) for epsilon in epsilons)) if noise else setting)
    causes = tuple(setting for setting in varied if setting.name not in _NO_CAUSES)
    return Variation(
        varied=tuple(varied),
        causes=causes,
        follows=tuple(follows),
        same=tuple(setting for setting in settings if not setting.differs),
        axes=_find_axes(causes),
    )


def _find_axes(causes: Sequence[ComparedSetting]) -> tuple[Axis, ...]:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for one in causes for value in one.values)
    return tuple(Axis(one.name, tuple(map(float, one.values))) for one in causes) if numbers else ()


def _enumerate(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
