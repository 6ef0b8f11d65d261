"""Cost of a private training step against a plain one: time and peak memory on this machine."""

from privet.cost.memory import peak_elsewhere, peak_is_measurable, peak_of
from privet.cost.steps import KINDS, TimedStep, alternating, paired_ratio, step_of

__all__ = ["KINDS", "TimedStep", "alternating", "paired_ratio", "peak_elsewhere", "peak_is_measurable", "peak_of", "step_of"]
