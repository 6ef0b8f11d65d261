"""The mutation gate: the suite detects a deliberate fault in every part of the mechanism and in every operation."""

import ast
import importlib
import inspect
import os
import pkgutil
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import guard
import pytest
from faults import MUTANTS
from mutant import SOURCE, Mutant, definition, located

from privet import gradients
from privet.gradients.core.handlers import HANDLERS
from privet.gradients.core.per_example import PerExampleGrad
from privet.gradients.layers import random

ROOT = Path(__file__).parents[2]
SECONDS = 300
MODULES = [importlib.import_module(module.name) for module in pkgutil.walk_packages(gradients.__path__, "privet.gradients.")]


def run(source, tests):
    """Run tests over a copy of the source, in a process of their own, for at most two seconds each and some minutes in all."""
    environment = {
        **os.environ, guard.SOURCE: str(source), "PYTHONPATH": os.pathsep.join([str(source), str(Path(guard.__file__).parent)]),
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    options = ["-q", "--tb=short", "-p", "guard", "-p", "no:cacheprovider", "-p", "no:xdist"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests], cwd=ROOT, env=environment, capture_output=True, text=True,
        timeout=SECONDS + 2 * len(tests), check=False,
    )  # fmt: skip


def copied(folder):
    """A copy of the source, and of what Python compiled of it."""
    return shutil.copytree(SOURCE, folder / "src")


@pytest.fixture(scope="module")
def passing_without_faults(request, tmp_path_factory):
    """All tests of the mutants that were chosen pass over a faithful copy."""
    chosen = [item.callspec.params["mutant"] for item in request.session.items if "mutant" in getattr(item, "fixturenames", ())]
    tests = dict.fromkeys(test for mutant in chosen for test in mutant.node_ids())
    found = run(copied(tmp_path_factory.mktemp("faithful")), tests)
    assert found.returncode == pytest.ExitCode.OK, found.stdout + found.stderr


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
@pytest.mark.usefixtures("passing_without_faults")
def test_the_suite_sees(mutant, tmp_path):
    source = copied(tmp_path)
    path = source / mutant.path
    path.write_text(mutant.applied(), encoding="utf-8")
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
        compiled.unlink()
    found = run(source, mutant.node_ids())
    assert found.returncode == pytest.ExitCode.TESTS_FAILED, found.stdout + found.stderr


@pytest.mark.slow
def test_a_run_over_another_source_is_not_believed(tmp_path):
    found = run(copied(tmp_path) / "elsewhere", MUTANTS[0].node_ids())
    assert found.returncode == guard.ELSEWHERE, found.stdout + found.stderr


def test_every_fault_still_has_its_place():
    lost = []
    for mutant in MUTANTS:
        try:
            ast.parse(mutant.applied())
            assert mutant.node_ids(), f"{mutant}: no tests"
        except (AssertionError, SyntaxError) as error:
            lost.append(f"{mutant}: {error}")
    assert not lost, "\n".join(lost)


def test_every_test_that_is_named_exists(collected):
    named = dict.fromkeys(test for mutant in MUTANTS for test in mutant.node_ids())
    cells = collected(dict.fromkeys(test.partition("::")[0] for test in named))
    there = cells | {cell.partition("[")[0] for cell in cells}
    assert not [test for test in named if test not in there]


def test_names_and_faults_differ():
    for key in (str, lambda mutant: (mutant.path, mutant.applied())):
        assert not [found for found, times in Counter(map(key, MUTANTS)).items() if times > 1]


def test_a_name_that_may_be_anything_is_refused():
    with pytest.raises(AssertionError, match=r"nothing in the package is called LinearGrad\.squared"):
        definition("LinearGrad.squared")
    with pytest.raises(AssertionError, match=r"squared_norms may be any of .*LinearGrad.squared_norms .*: put more"):
        definition("squared_norms")
    with pytest.raises(AssertionError, match=r"test_nowhere.py is 0 files"):
        located("test_nowhere.py::test_this")


def test_a_pattern_is_found_however_its_function_is_written():
    as_it_is = Mutant("", "LinearGrad.weighted_sum", "else (a, g * w)", "else (a, g)", ())
    assert as_it_is.applied() == replace(as_it_is, old="else(a,\n  g*w)").applied()
    with pytest.raises(AssertionError, match=r"occurs 0 times in privet.*LinearGrad\.weighted_sum"):
        replace(as_it_is, old="lse (a, g * w)").applied()  # part of a name
    with pytest.raises(AssertionError, match=r"occurs \d+ times"):
        replace(as_it_is, old="g").applied()


def has_a_mutant(part, places):
    """Whether some mutant changes a line of this class or function."""
    path = Path(inspect.getfile(part)).relative_to(SOURCE)
    lines, first = inspect.getsourcelines(part)
    return any((path, line) in places for line in range(first, first + len(lines)))


def computes(kind):
    """Whether a kind of use has a method of its own, beside properties that say what it is."""
    return any(inspect.isfunction(part) for part in vars(kind).values())


USES = [
    kind
    for module in MODULES
    for kind in vars(module).values()
    if inspect.isclass(kind) and issubclass(kind, PerExampleGrad) and kind.__module__ == module.__name__
    if computes(kind)
]
# Rules of several operations that are made by one function share its text.
RULES_OF_ALL = [*(handler.rule for handler in HANDLERS.values()), *random.RULES.values()]
FUNCTIONS = {inspect.getsource(rule): rule for rule in RULES_OF_ALL if rule.__module__.startswith("privet.")}


def test_every_gradient_and_every_handler_has_a_mutant():
    places = {(mutant.path, mutant.line) for mutant in MUTANTS}
    assert not [part.__name__ for part in (*USES, *FUNCTIONS.values()) if not has_a_mutant(part, places)]
