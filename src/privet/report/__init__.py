"""The report of a run: one self-contained page that says what was trained and what is guaranteed."""

from privet.report.comparison import draw_comparison
from privet.report.writing import write

__all__ = ["draw_comparison", "write"]
