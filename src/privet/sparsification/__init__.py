"""Sparsification: which coordinates a step releases, by public masks."""

from privet.sparsification.drawing import Masks, Selection
from privet.sparsification.kinds import Random, Ranked, Sparsification, Timetable
from privet.sparsification.packing import decode, encode

__all__ = [
    "Masks",
    "Random",
    "Ranked",
    "Selection",
    "Sparsification",
    "Timetable",
    "decode",
    "encode",
]
