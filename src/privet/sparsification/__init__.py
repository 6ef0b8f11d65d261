"""Sparsification: public masks that select the coordinates of a step's release."""

from privet.sparsification.drawing import Masks, Selection
from privet.sparsification.kinds import Random, Ranked, Sparsification, Timetable

__all__ = [
    "Masks",
    "Random",
    "Ranked",
    "Selection",
    "Sparsification",
    "Timetable",
]
