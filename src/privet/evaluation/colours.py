"""Colours of all figures: distinguishable with common colour blindness (after Okabe and Ito) and in print."""

from __future__ import annotations

from typing import Final

INK: Final = "#1c1d21"
RULE: Final = "#d8d9de"
PAPER: Final = "#fffffe"
BLUE: Final = "#0072b2"
ORANGE: Final = "#c85200"
GREEN: Final = "#00795c"
PURPLE: Final = "#8f4a86"
SERIES: Final = (BLUE, ORANGE, GREEN, PURPLE)
