"""The layers of the code: a module imports only from earlier modules, and folders are small enough to survey."""

import ast
import subprocess
import sys
from collections import Counter
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import privet
import privet_experiments

SOURCES = {package.__name__: Path(package.__file__).parents[1] for package in (privet, privet_experiments)}
# The folders and files of `privet`, each of which imports from earlier ones only.
ORDER = [
    "errors", "_utils", "tables", "accounting", "schedules", "clipping", "noise", "sparsification", "momentum", "sampling",
    "plan", "gradients", "collate", "reading", "units", "ledger", "budget", "distributed", "training", "convex", "tracking",
    "optim", "federated", "cost", "tuning", "audit", "evaluation", "data", "models", "artifact", "report", "runs",
    "integrations", "cli",
]  # fmt: skip
# The same within some packages, in the order in which data flows.
SUBLAYERS = {
    "privet": ORDER,
    "privet.gradients": [
        "core", "parameters", "reachable", "isolation", "layers", "combine", "masking", "methods", "projection",
        "per_example_momentum", "engine", "probe",
    ],
    "privet.accounting": [
        "rounding", "root_finding", "privacy_unit", "events", "classic", "rdp",
        "pld", "queries", "composition",
        "guarantee",
    ],
    "privet.audit": [
        "probe", "checks", "observations", "production", "federated_rounds", "_mechanism", "_one_run", "_program",
        "battery", "plugin",
    ],
    "privet.convex": [
        "convex_losses", "minimiser", "privacy_loss", "perturbation", "convex_plan", "convex_statement", "convex_training",
    ],
    "privet.federated": [
        "rounds", "messages", "communication", "local_training", "clients", "simulation", "process_pool", "server",
    ],
    "privet.cli": [
        "output", "definitions", "options", "parts", "choice", "config", "running", "_verbs", "main",
    ],
    "privet.tables": ["cells", "columns", "bounded", "targets", "toml", "frames", "schema", "drafts"],
    "privet.artifact": [
        "description", "encoding", "folder", "export", "predictor", "card", "saving",
    ],
    "privet.data": ["classes", "preprocessing", "dataset", "download", "formats", "sets", "loading"],
    "privet.integrations.sklearn": ["public_facts", "transformers", "pipelines", "fitting", "estimators", "search"],
    "privet_experiments": [
        "studies", "data_sets", "features", "networks", "tangent_kernel", "tasks", "claims", "recipe", "papers", "registry",
        "reproduction", "cli",
    ],
}  # fmt: skip
MOST_FILES = 14
MOST_LOOSE_MODULES = 4
MOST_OF_A_NAME = 2
# Lines of Python. Raising one is a decision: say in docs/decisions/layout.md which user needs the lines.
MOST_LINES = {
    "privet": 51_200, "privet.gradients": 9_650, "privet.reading": 700, "privet.training": 3_200, "privet.cli": 2_850,
    "privet.audit": 2_900,
}  # fmt: skip


def name_of(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path, source): path for package, source in SOURCES.items() for path in (source / package).rglob("*.py")}
PACKAGES = sorted(name for name, path in MODULES.items() if path.name == "__init__.py")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Import | ast.ImportFrom)]


def imported(path: Path) -> set[str]:
    """Return the modules of this project that a module imports from anywhere in it, also for types only."""
    found: set[str] = set()
    for node in statements(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            assert node.level == 0, f"{path} has a relative import"
            within = node.module or ""
            full = {f"{within}.{alias.name}": within for alias in node.names}
            found |= {name if name in MODULES else package for name, package in full.items()}
    return found & MODULES.keys()


@cache
def imports() -> dict[str, set[str]]:
    """Return module → the modules of this project that it imports from."""
    return {name: imported(path) for name, path in MODULES.items()}


def child(package: str, module: str) -> str | None:
    """Return the file or folder of a package that a module is or lies in; "" for the package itself, None for others."""
    if module == package:
        return ""
    return module.removeprefix(f"{package}.").split(".")[0] if module.startswith(f"{package}.") else None


def arrows(package: str) -> dict[str, set[str]]:
    """Return file or folder of a package → those that it imports from."""
    found: dict[str, set[str]] = {}
    for module, others in imports().items():
        own = child(package, module)
        if own is not None:
            theirs = {child(package, other) for other in others} - {None, own}
            found.setdefault(own, set()).update(name for name in theirs if name is not None)
    return found


def test_no_imports_go_round_in_a_circle():
    for package in PACKAGES:
        graph = arrows(package)
        if package in SOURCES:  # the fronts, which import when a name is used
            del graph[""]
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            pytest.fail(f"{package}: {error.args[1]}")


def test_files_and_folders_import_from_earlier_ones_only():
    for package, sublayers in SUBLAYERS.items():
        order = ["__main__", *sublayers, ""]
        graph = arrows(package)
        assert graph.keys() <= {*order}, f"{graph.keys() - {*order}} have no place in the order of {package}"
        for own in graph.keys() - {"", "__main__"}:
            later = {other for other in graph[own] if other and order.index(other) > order.index(own)}
            assert not later, f"{package}: {own} imports from {later}"


def test_the_core_does_not_know_the_experiments():
    assert not [name for name, others in imports().items() if name.startswith("privet.") and "privet_experiments" in str(others)]


def test_no_two_public_classes_have_one_name():
    names = Counter(node.name for path in MODULES.values() for node in parsed(path).body if isinstance(node, ast.ClassDef))
    assert not {name for name, count in names.items() if count > 1 and not name.startswith("_")}


def test_names_that_begin_with_an_underscore_are_used_in_their_module_alone():
    for name, path in MODULES.items():
        for node in statements(path):
            within = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            taken = [alias.name for alias in node.names] if within.partition(".")[0] in SOURCES else []
            assert not [one for one in taken if one.startswith("_") and f"{within}.{one}" not in MODULES], name


def test_packages_stay_small():
    lines = Counter()
    for name, path in MODULES.items():
        for package in {name.split(".")[0], ".".join(name.split(".")[:2])}:
            lines[package] += path.read_text(encoding="utf-8").count("\n")
    assert not {name: lines[name] for name, most in MOST_LINES.items() if lines[name] > most}


def test_folders_can_be_surveyed():
    for package in PACKAGES:
        files = [path for path in MODULES[package].parent.iterdir() if path.is_file()]
        assert len(files) <= MOST_FILES, f"{package} has {len(files)} files"
    loose = {path.stem for path in (SOURCES["privet"] / "privet").glob("*.py")} - {"__init__", "__main__"}
    assert len(loose) <= MOST_LOOSE_MODULES, loose


def test_names_of_files_say_where_one_is():
    names = Counter((name.split(".")[0], path.name) for name, path in MODULES.items() if path.name != "__init__.py")
    assert not {name: count for name, count in names.items() if count > MOST_OF_A_NAME}


def test_what_is_needed_only_sometimes_is_loaded_only_then():
    """And all public names are found, in a process of its own."""
    absent = {
        "privet": ["torch", "numpy", "scipy", "matplotlib", "typer"],
        "privet.accounting": ["torch", "matplotlib", "typer", "rich"],
        "privet.Training": ["matplotlib", "typer", "rich", "dp_accounting", "sklearn", "privet.report", "privet.data"],
        "privet.evaluation.ReliabilityDisplay": ["matplotlib"],
        "privet.evaluation.ReliabilityDisplay.from_predictions([0], [[1.0, 0.0]])": ["matplotlib.pyplot"],
        "privet.tracking": ["tensorboard", "wandb", "mlflow"],
    }
    code = "".join(f"{name}; print([name for name in {names} if name in sys.modules])\n" for name, names in absent.items())
    code += "print([name for name in privet.__all__ if not hasattr(privet, name)], privet.training.holds_run('.'))"
    result = subprocess.run([sys.executable, "-c", f"import sys, privet\n{code}"], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["[]"] * 7 + ["False"]


@pytest.mark.slow
def test_every_part_can_be_imported_first():
    """No part of the package relies on another that imported it: each in a process of its own, after the libraries.

    What most parts need is imported once, before their processes fork.
    """
    code = f"""
import importlib, os, torch, scipy.stats, typer, rich.progress, cryptography.hazmat.primitives.ciphers, safetensors.torch
import matplotlib.figure, matplotlib.backends.backend_agg
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
    for package in (privet, privet_experiments):
        for name in package.__all__:
            assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = privet.nonsense
