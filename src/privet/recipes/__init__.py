"""Experiments of papers as data, and what carries them out.

A recipe says what to train, on what, in which arms, and which numbers the paper reports; `reproduce` does the runs that are not
there yet and writes a table and figures.
"""

from privet.recipes.catalogue import RECIPES, find
from privet.recipes.recipe import Arm, Chart, Recipe, read
from privet.recipes.record import Records, RunRecord, worded
from privet.recipes.reproduction import Extent, Reproduction, reproduce
from privet.recipes.settings import Settings
from privet.recipes.wanted import finished

__all__ = [
    "RECIPES",
    "Arm",
    "Chart",
    "Extent",
    "Recipe",
    "Records",
    "Reproduction",
    "RunRecord",
    "Settings",
    "find",
    "finished",
    "read",
    "reproduce",
    "worded",
]
