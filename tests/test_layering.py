"""The house is built in layers: a module imports only from modules before it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import privet

ORDER = [
    "errors",
    "files",
    "documents",
    "native",
    "memory",
    "values",
    "encoding",
    "schedules",
    "clipping",
    "noise",
    "sparsification",
    "momentum",
    "accounting",
    "sampling",
    "plan",
    "batches",
    "gradients",
    "units",
    "ledger",
    "budget",
    "checkpoint",
    "training",
    "verification",
    "progress",
    "optim",
    "cost",
    "tuning",
    "audit",
    "evaluation",
    "data",
    "features",
    "models",
    "report",
    "setups",
    "runs",
    "recipes",
    "cli",
]
# Imported when it is used, for the sake of a method on a lower layer.
BY_NAME = {("training", "progress")}
TOP = {"__init__", "__main__"}

SOURCE = Path(privet.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))


def layer(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Return the layers that a module imports from, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names = [f"privet.{alias.name}" for alias in node.names] if node.module == "privet" else [node.module or ""]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("privet.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_from_earlier_layers_only(path):
    own = layer(path)
    if own in TOP:
        return
    assert own in ORDER, f"{own} has no place in the order of layers"
    later = {other for other in imported(path) - {own} if other not in ORDER or ORDER.index(other) > ORDER.index(own)}
    assert not {other for other in later if (own, other) not in BY_NAME}


def test_importing_privet_loads_nothing_that_is_needed_only_sometimes():
    absent = ["matplotlib", "typer", "rich", "dp_accounting", "sklearn", "privet.report", "privet.data"]
    code = f"import sys, privet; print([name for name in {absent} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_what_is_imported_when_used_is_reachable():
    for name in privet.__all__:
        assert getattr(privet, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = privet.nonsense
