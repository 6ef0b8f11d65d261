"""HTML reports of runs: self-contained pages with the results and the privacy statement."""

from privet.report.figures.plans import draw_comparison, draw_trade_off
from privet.report.page import write

__all__ = ["draw_comparison", "draw_trade_off", "write"]
