"""Experiments of papers, as recipes, and their reproduction.

A recipe states data, models, arms and the numbers that the paper reports. `reproduce` makes the missing runs and writes a table
and figures.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privet_experiments.claims import Claim, PublishedNumber, judge
    from privet_experiments.recipe import Arm, Chart, Recipe, read
    from privet_experiments.registry import RECIPES, find
    from privet_experiments.reproduction.reproduction import Extent, Reproduction, reproduce
    from privet_experiments.reproduction.selection import finished_runs
    from privet_experiments.tasks.arm_config import ArmConfig
    from privet_experiments.tasks.run_record import Records, RunRecord, spell_nonfinite

__all__ = [
    "RECIPES",
    "Arm",
    "ArmConfig",
    "Chart",
    "Claim",
    "Extent",
    "PublishedNumber",
    "Recipe",
    "Records",
    "Reproduction",
    "RunRecord",
    "find",
    "finished_runs",
    "judge",
    "read",
    "reproduce",
    "spell_nonfinite",
]

# Imported on first use, so that `privet --help` can list the verb without importing PyTorch.
_PLACES = {
    "RECIPES": "registry",
    "Arm": "recipe",
    "ArmConfig": "tasks.arm_config",
    "Chart": "recipe",
    "Claim": "claims",
    "Extent": "reproduction.reproduction",
    "PublishedNumber": "claims",
    "Recipe": "recipe",
    "Records": "tasks.run_record",
    "Reproduction": "reproduction.reproduction",
    "RunRecord": "tasks.run_record",
    "find": "registry",
    "finished_runs": "reproduction.selection",
    "judge": "claims",
    "read": "recipe",
    "reproduce": "reproduction.reproduction",
    "spell_nonfinite": "tasks.run_record",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'privet_experiments' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"privet_experiments.{_PLACES[name]}"), name)
    globals()[name] = found
    return found
