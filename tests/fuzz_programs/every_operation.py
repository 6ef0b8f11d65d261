"""The whole table: importing this module enters every operation."""

import importlib
from pathlib import Path

from operations import OPERATIONS

__all__ = ["OPERATIONS"]

for _path in sorted(Path(__file__).parent.glob("operations_*.py")):
    importlib.import_module(_path.stem)
