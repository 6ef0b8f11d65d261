"""Sparsification: public masks that select the coordinates of a step's release."""

from privet.sparsification.drawing import Masks, Selection
from privet.sparsification.kinds import Random, Ranked, Sparsification, Timetable
from privet.sparsification.packing import decode, encode

SPARSIFICATIONS: dict[str, type[Sparsification]] = {kind.__name__: kind for kind in (Random, Ranked)}

__all__ = [
    "SPARSIFICATIONS",
    "Masks",
    "Random",
    "Ranked",
    "Selection",
    "Sparsification",
    "Timetable",
    "decode",
    "encode",
]
