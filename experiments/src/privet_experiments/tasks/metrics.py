"""Formatting of metrics (percentages, verdicts, plain numbers), and metrics of the run itself."""

from __future__ import annotations

__all__ = ["OF_MASKS", "OF_THE_RUN", "SHARES", "VERDICTS", "format_metric"]

from collections.abc import Callable
from typing import TYPE_CHECKING

from privet.report import numbers
from privet_experiments.studies.mask_counts import MaskCounts
from privet_experiments.tasks import cost

if TYPE_CHECKING:
    from privet.data import DataSet
    from privet.plan import Plan
    from privet_experiments.tasks.job import Job

# Shown as percentages.
SHARES = {"accuracy", "expected_calibration_error", "maximum_calibration_error"}
# 1 where a property held and 0 where it did not; the paper states whether it is guaranteed.
VERDICTS = {
    "symmetric_kernel", "positive_in_quadratic_form", "positive_in_eigenvalues", "monotone_loss", "loss_to_zero",
}  # fmt: skip
# Of the run and not of its evaluation: measured once, and only for recipes that ask. The last argument is how the training
# computed gradients.
OF_THE_RUN: dict[str, Callable[[Job, Plan, DataSet, str], float]] = {
    "noise_multiplier": lambda job, plan, data, method: plan.noise.multiplier or 0.0,
    "time_ratio": cost.time_ratio,
    "memory_ratio": cost.memory_ratio,
}
# Of the masks of all steps.
OF_MASKS: dict[str, Callable[[MaskCounts], float]] = {
    "mask_count_deviation": lambda counts: counts.deviation,
    "mask_count_spread": lambda counts: counts.spread,
}


def format_metric(metric: str, value: float) -> str:
    """Return a metric's value as text: fractions as percentages, other numbers with four digits."""
    return numbers.format_percent(value) if metric in SHARES else f"{value:.4g}"
