"""The house is built in layers: a module imports only from modules before it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import privet

ORDER = [
    "errors",
    "_utils",
    "memory",
    "values",
    "schedules",
    "clipping",
    "noise",
    "sparsification",
    "momentum",
    "accounting",
    "sampling",
    "plan",
    "gradients",
    "collate",
    "reading",
    "units",
    "ledger",
    "budget",
    "training",
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
TOP = {"__init__", "__main__"}
# The same within `gradients`: its folders and its files beside them.
GRADIENTS = [
    "core", "layers", "combine", "masking", "methods", "projection", "engine", "per_example_momentum", "probe", "__init__",
]  # fmt: skip

SOURCE = Path(privet.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))


def layer(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Return the layers that a module imports from, anywhere in it."""
    return {name.split(".")[1] for name in imported_modules(path)}


def imported_modules(path: Path) -> set[str]:
    """Return the modules of privet that a module imports from, or the names that it imports from a package, in full."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            within = node.module or ""
            packages = ("privet", "privet.gradients")
            names = [f"{within}.{alias.name}" for alias in node.names] if within in packages else [within]
        else:
            continue
        found |= {name for name in names if name.startswith("privet.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_from_earlier_layers_only(path):
    own = layer(path)
    if own in TOP:
        return
    assert own in ORDER, f"{own} has no place in the order of layers"
    assert not {other for other in imported(path) - {own} if other not in ORDER or ORDER.index(other) > ORDER.index(own)}


@pytest.mark.parametrize("path", sorted((SOURCE / "gradients").rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_engine_is_built_in_layers_too(path):
    own = path.relative_to(SOURCE / "gradients").parts[0].removesuffix(".py")
    assert own in GRADIENTS, f"{own} has no place in the order of the engine's layers"
    above = GRADIENTS[GRADIENTS.index(own) + 1 :]
    later = {name for name in imported_modules(path) if name.startswith("privet.gradients.") and name.split(".")[2] in above}
    assert not later


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("privet", ["torch", "numpy", "scipy", "matplotlib", "typer"]),
        ("privet.Training", ["matplotlib", "typer", "rich", "dp_accounting", "sklearn", "privet.report", "privet.data"]),
    ],
)
def test_what_is_needed_only_sometimes_is_loaded_only_then(code, absent):
    code = f"import sys, privet; {code}; print([name for name in {absent} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_every_part_can_be_imported_first():
    """No part of the package relies on another that imported it: each in a process of its own, after the libraries."""
    code = f"""
import importlib, os, torch, scipy.stats, typer, rich, cryptography, safetensors
for name in {ORDER}:
    child = os.fork()
    if not child:
        try:
            importlib.import_module("privet." + name)
        except BaseException as error:
            print(name, repr(error), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == ""


def test_what_is_imported_when_used_is_reachable():
    for name in privet.__all__:
        assert getattr(privet, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = privet.nonsense
