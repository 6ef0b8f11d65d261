"""All faults that the suite must detect: an operation joins by an entry in the table of its family."""

import importlib
from pathlib import Path

FAMILIES = [importlib.import_module(path.stem) for path in sorted(Path(__file__).parent.glob("faults_*.py"))]
MUTANTS = [mutant for family in FAMILIES for mutant in family.MUTANTS]
