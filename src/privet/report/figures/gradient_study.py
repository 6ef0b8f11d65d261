"""What a study saw of a training's gradients: as a figure that is marked, like everything about it, as not private."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from matplotlib.figure import Figure as Canvas

from privet.evaluation.drawing import Display
from privet.evaluation.studies import NormDisplay, Observation, SimilarityDisplay, TrendDisplay, WeightDisplay
from privet.report.figures.svg import WIDTH, Figure, render

NAME = "gradients"
BANNER = "NOT PRIVATE: computed from raw gradients, which no noise protects."
ADVICE = "If the probe batch was private, neither this report nor study.json may be passed on."
_PANELS: tuple[Callable[[Sequence[Observation]], Display], ...] = (NormDisplay, SimilarityDisplay, TrendDisplay, WeightDisplay)


def figures(observations: Sequence[Observation]) -> Iterator[Figure]:
    """Yield the figure `gradients`, if something was observed."""
    if not observations:
        return

    def drawing(canvas: Canvas) -> None:
        for axes, kind in zip(canvas.subplots(2, 2).flat, _PANELS, strict=True):
            kind(observations).plot(axes)

    steps = f"{len(observations)} looks from step {observations[0].step:,} to {observations[-1].step:,}"
    yield Figure(
        NAME,
        render(NAME, drawing, (WIDTH, 5.4)),
        f"Gradients of a probe batch, {steps}: distribution of norms, cosines to the gradient without privacy, norms and weights "
        "against the training step. Not private.",
        f"{len(observations[0].norms):,} examples, {steps}. Cosines are of the batch's mean gradient to the one without privacy: "
        "clipped by the plan's rule, and with one draw of its noise. Norms of examples: median and middle 80 %.",
    )
