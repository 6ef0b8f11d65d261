"""Figure of a gradient study, marked as not private."""

from __future__ import annotations

__all__ = ["ADVICE", "BANNER", "NAME", "draw"]

from collections.abc import Callable, Iterator, Sequence

from matplotlib.figure import Figure as Canvas

from privet.evaluation.drawing import Display
from privet.evaluation.studies import NormDisplay, Observation, SimilarityDisplay, TrendDisplay, WeightDisplay
from privet.report.figures.svg import WIDTH, Figure, render

NAME = "gradients"
BANNER = "NOT PRIVATE: computed from raw gradients, without noise."
ADVICE = "If the probe batch is private, share neither this report nor study.json."
_PANELS: tuple[Callable[[Sequence[Observation]], Display], ...] = (NormDisplay, SimilarityDisplay, TrendDisplay, WeightDisplay)


def draw(observations: Sequence[Observation]) -> Iterator[Figure]:
    """Yield the figure `gradients`, if there are observations."""
    if not observations:
        return

    def drawing(canvas: Canvas) -> None:
        for axes, kind in zip(canvas.subplots(2, 2).flat, _PANELS, strict=True):
            kind(observations).plot(axes)

    steps = f"{len(observations)} observations from step {observations[0].step:,} to {observations[-1].step:,}"
    yield Figure(
        NAME,
        render(NAME, drawing, (WIDTH, 5.4)),
        f"Gradients of a probe batch, {steps}: distribution of norms, cosine similarities to the non-private gradient, norms and "
        "weights against the training step. Not private.",
        f"{len(observations[0].norms):,} examples, {steps}. Cosine similarity compares the batch's mean gradient, clipped by the "
        "plan's rule and then also with one draw of its noise, with the non-private mean gradient. Per-example norms: median and "
        "middle 80 %.",
    )
