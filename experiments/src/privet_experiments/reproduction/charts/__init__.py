"""Charts of a reproduction, drawn from its records as SVG files."""

from privet_experiments.reproduction.charts.rendering import draw

__all__ = ["draw"]
