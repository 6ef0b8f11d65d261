"""The mutation gate: the suite sees a deliberate fault in every part of the mechanism, and in every operation's norm and sum."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import pkgutil
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import guard
import pytest
from faults import MUTANTS
from mutant import PACKAGE

from privet import gradients
from privet.gradients.core.handlers import HANDLERS
from privet.gradients.core.per_example import PerExampleGrad
from privet.gradients.layers import random

ROOT = Path(__file__).parents[2]
SECONDS = 300
MODULES = [importlib.import_module(module.name) for module in pkgutil.walk_packages(gradients.__path__, "privet.gradients.")]


def run(source, tests):
    """Run tests over a copy of the source, in a process of their own."""
    environment = {
        **os.environ, guard.SOURCE: str(source), "PYTHONPATH": os.pathsep.join([str(source), str(Path(guard.__file__).parent)]),
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    options = ["-q", "--tb=short", "-p", "guard", "-p", "no:cacheprovider", "-p", "no:xdist"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests], cwd=ROOT, env=environment, capture_output=True, text=True,
        timeout=SECONDS, check=False,
    )  # fmt: skip


def copied(folder):
    """A copy of the source, and of what Python compiled of it."""
    return shutil.copytree(PACKAGE.parent, folder / "src")


@pytest.fixture(scope="module")
def passing_without_faults(request, tmp_path_factory):
    """All tests of the mutants that were chosen pass over a faithful copy."""
    chosen = [item.callspec.params["mutant"] for item in request.session.items if "mutant" in getattr(item, "fixturenames", ())]
    tests = dict.fromkeys(test for mutant in chosen for test in mutant.tests)
    found = run(copied(tmp_path_factory.mktemp("faithful")), tests)
    assert found.returncode == pytest.ExitCode.OK, found.stdout + found.stderr


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
@pytest.mark.usefixtures("passing_without_faults")
def test_the_suite_sees(mutant, tmp_path):
    source = copied(tmp_path)
    path = mutant.place(source / "privet")
    path.write_text(mutant.applied(path.read_text()))
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
        compiled.unlink()
    found = run(source, mutant.tests)
    assert found.returncode == pytest.ExitCode.TESTS_FAILED, found.stdout + found.stderr


@pytest.mark.slow
def test_a_run_over_another_source_is_not_believed(tmp_path):
    found = run(copied(tmp_path) / "elsewhere", MUTANTS[0].tests)
    assert found.returncode == guard.ELSEWHERE, found.stdout + found.stderr


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_every_fault_still_has_its_place(mutant):
    ast.parse(mutant.applied(mutant.place().read_text()))
    assert mutant.tests
    assert all((ROOT / test.partition("::")[0]).is_file() for test in mutant.tests)


def test_every_test_that_is_named_exists():
    tests = dict.fromkeys(test for mutant in MUTANTS for test in mutant.tests)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert found.returncode == pytest.ExitCode.OK, found.stdout + found.stderr


def test_names_and_faults_differ():
    for key in (str, lambda mutant: (mutant.place(), mutant.old, mutant.new)):
        assert not [found for found, times in Counter(map(key, MUTANTS)).items() if times > 1]


def has_a_mutant(module, part):
    """Whether some mutant changes a line of this class or function."""
    text = inspect.getsource(part)
    return any(mutant.place() == Path(module.__file__) and mutant.old in text for mutant in MUTANTS)


USES = [
    (module, kind)
    for module in MODULES
    for kind in vars(module).values()
    if inspect.isclass(kind) and issubclass(kind, PerExampleGrad) and kind.__module__ == module.__name__
]
# Rules of several operations that are made by one function share its text.
RULES_OF_ALL = [*(handler.rule for handler in HANDLERS.values()), *random.RULES.values()]
FUNCTIONS = [
    (sys.modules[rule.__module__], rule)
    for rule in {inspect.getsource(rule): rule for rule in RULES_OF_ALL if rule.__module__.startswith("privet.")}.values()
]


@pytest.mark.parametrize(("module", "part"), [*USES, *FUNCTIONS], ids=lambda part: part.__name__.rpartition(".")[2])
def test_every_gradient_and_every_handler_has_a_mutant(module, part):
    assert has_a_mutant(module, part)
