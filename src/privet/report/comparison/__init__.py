"""Comparison of several runs: what was varied, the numbers of each, and figures that suggest no cause that is none."""

from privet.report.comparison.side_by_side import write

__all__ = ["write"]
