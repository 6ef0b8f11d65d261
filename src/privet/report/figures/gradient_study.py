"""Figures of a gradient study, marked as not private."""

from __future__ import annotations

__all__ = ["ADVICE", "BANNER", "PREFIX", "draw"]

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure as Canvas

from privet.evaluation.drawing import Display
from privet.evaluation.studies import NormDisplay, Observation, SimilarityDisplay, TrendDisplay, WeightDisplay
from privet.report.figures.svg import PANEL, Figure, render

PREFIX = "gradients-"
BANNER = "NOT PRIVATE: computed from raw gradients, without noise."
ADVICE = "If the probe batch is private, share neither this report nor study.json."


@dataclass(frozen=True, slots=True)
class _Panel:
    """A display of observations with its name, title and caption."""

    name: str
    title: str
    display: Callable[[Sequence[Observation]], Display]
    caption: str = ""


_PANELS = (
    _Panel("norms", "Per-example gradient norms", NormDisplay),
    _Panel(
        "similarity",
        "Direction kept by clipping and noise",
        SimilarityDisplay,
        "Cosine similarity of the batch's mean gradient, clipped by the plan's rule and then also with one draw of its noise, to "
        "the non-private mean gradient.",
    ),
    _Panel("trend", "Norms during training", TrendDisplay, "Per example: median and middle 80 %."),
    _Panel("weights", "Weights of the clipping rule", WeightDisplay),
)


def draw(observations: Sequence[Observation]) -> Iterator[Figure]:
    """Yield one figure per panel, if there are observations."""
    if not observations:
        return
    steps = f"{len(observations)} observations from step {observations[0].step:,} to {observations[-1].step:,}"
    probe = f"{len(observations[0].norms):,} examples of a probe batch, {steps}"
    for panel in _PANELS:
        yield Figure(
            PREFIX + panel.name,
            panel.title,
            _render(PREFIX + panel.name, panel.display(observations)),
            f"Not private. {panel.title}: {probe}.",
            panel.caption,
        )


def _render(name: str, display: Display) -> str:
    def drawing(canvas: Canvas) -> None:
        display.plot(canvas.subplots())

    return render(name, drawing, (PANEL, 2.7))
