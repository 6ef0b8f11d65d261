"""What a completed step makes known: public settings, and values that the step released with noise."""

from __future__ import annotations

__all__ = ["MEASURES", "Step", "finite"]

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

# Names of the values of every step.
MEASURES = ("epsilon", "learning_rate", "sensitivity", "seconds")


@dataclass(frozen=True)
class Step:
    """One completed step.

    Args:
        number: number of the step within the run, from 1; steps lost to a crash are not numbered again.
        total: number of steps of the plan.
        learning_rate: learning rate of the step, of the optimizer's first group; None if it has none.
        sensitivity: bound on what one example contributed to the step's sum, such as the clipping bound.
        seconds: running time up to this step, over all sessions of the run. Times are not covered by the guarantee: a step takes
            longer if it draws more examples.
        released: name → noisy statistic that the step released besides the gradients, divided by the plan's divisor, such as the
            count of `AdaptiveQuantile`; empty for most rules.

    Guarantee:
        Nothing here depends on the data except through released values and the running time: neither losses, norms nor the number
        of drawn examples.
    """

    number: int
    total: int
    learning_rate: float | None = None
    sensitivity: float | None = None
    seconds: float = 0.0
    released: Mapping[str, float] = field(default_factory=dict, hash=False)
    _epsilon_after: Callable[[int], float] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def epsilon(self) -> float:
        """ε at the plan's δ of all steps up to this one, computed when it is first asked for (some milliseconds)."""
        return math.nan if self._epsilon_after is None else self._epsilon_after(self.number)

    def measures(self) -> dict[str, float | None]:
        """Return name → value of all that is known of the step, except its number; None for what is not a finite number."""
        known = {name: getattr(self, name) for name in MEASURES}
        return {name: finite(value) for name, value in {**known, **self.released}.items()}

    def is_one_of(self, points: int) -> bool:
        """Return whether the step is one of about this many, evenly spread over the run, or the last."""
        return self.number % max(1, self.total // points) == 0 or self.number == self.total


def finite(value: float | None) -> float | None:
    """Return a finite number as it is, and None for any other value."""
    return value if value is not None and math.isfinite(value) else None
