"""Interface of the kinds of noise in a plan, and how examples take part in the steps that it protects."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any, ClassVar

from privet.accounting.events import MULTIPLIER_RANGE
from privet.errors import InvalidArgumentError, real
from privet.noise.sources import SOURCES, Source, check_source
from privet.schedules import Constant, Schedule


@dataclass(frozen=True)
class Participation:
    """Limits on the steps in which one example takes part, whatever the data: what correlated noise is scaled to."""

    steps: int  # number of steps T
    times: int  # largest number of steps in which an example may take part
    separation: int  # smallest distance of two such steps, over the whole training
    rate: float = 1.0  # probability with which it joins each of them, independently
    epoch: int | None = None  # number of steps of an epoch, in which an example takes part once; None for schemes without epochs


@dataclass(frozen=True, kw_only=True)
class NoiseMechanism(ABC):  # noqa: B024 - a kind of independent noise has nothing to define
    """Interface of the kinds of noise in a plan. Arguments: as for `Gaussian`, which makes fields of the two constants."""

    multiplier: float | None = None
    source: str = "secure"
    non_private: bool = False
    # After the fields, so that kinds which make fields of them have them last.
    schedule: ClassVar[Schedule] = Constant()
    deviation: ClassVar[str] = "relative"

    def __post_init__(self) -> None:
        check_source("noise.source", self.source)
        if not isinstance(self.non_private, bool):
            raise InvalidArgumentError("noise.non_private", self.non_private, "True or False")
        if self.multiplier is None:
            return
        low, high = MULTIPLIER_RANGE
        fix = "Plan.calibrate(epsilon=...) finds the multiplier for a target."
        number = real("noise.multiplier", self.multiplier, fix)
        if number == 0 and not self.non_private:
            allowed = f"between {low:g} and {high:g}"
            raise InvalidArgumentError("noise.multiplier", 0, allowed, "To train without noise, set non_private=True.")
        if number != 0 and not low <= number <= high:
            raise InvalidArgumentError("noise.multiplier", self.multiplier, f"between {low:g} and {high:g}", fix)

    def make_source(self) -> Source:
        """Return a new source of this tier, independent of all others."""
        return SOURCES[self.source]()

    def check_combination(self, plan: Any) -> None:  # noqa: B027 - most kinds refuse nothing
        """Refuse a plan with other parts that cannot be combined with this noise."""
