import ast
import importlib
import inspect
from collections import Counter
from pathlib import Path

import pytest
from harness import PROGRAMS, VALID, judge, unchecked

FILES = [importlib.import_module(path.stem) for path in sorted(Path(__file__).parent.glob("programs_*.py"))]
# Isolation by construction needs no check. These programs write to parameters, or make them, in the forward pass: the check on
# synthetic examples finds them.
FOUND_BY_THE_CHECK = {"max_norm_of_a_table", "max_norm_as_a_function", "layer_made_in_the_first_pass"}
BY_CONSTRUCTION = ("rows", "coupling", "sizes", "flow", "state", "gradients", "randomness", "precision")


def named(program):
    return pytest.param(program, id=f"{program.cause}-{program.name}")


@pytest.mark.parametrize("program", [named(program) for program in PROGRAMS])
def test_program(program):
    """Attacks are refused or bounded; valid programs are accepted, and their sum equals a plain loop's."""
    verdict = judge(program)
    assert verdict.passed, verdict.remark


@pytest.mark.parametrize("program", [
    named(program)
    for program in PROGRAMS
    if program.cause in BY_CONSTRUCTION and program.name not in FOUND_BY_THE_CHECK
])  # fmt: skip
def test_program_without_the_check(program):
    """Attacks are bounded also without the check before training."""
    with unchecked():
        verdict = judge(program)
    assert verdict.passed, verdict.remark


def test_there_are_programs_of_every_cause_with_distinct_names_and_descriptions():
    counts = Counter(program.cause for program in PROGRAMS)
    assert min(counts.values()) >= 5
    assert counts[VALID] >= 40
    assert counts.total() - counts[VALID] >= 130
    names = Counter(program.name for program in PROGRAMS)
    assert names.keys() >= FOUND_BY_THE_CHECK
    assert [name for name, times in names.items() if times > 1] == []
    assert [program.name for program in PROGRAMS if not inspect.getdoc(program.run)] == []


def test_every_program_of_a_file_is_registered():
    """A function without arguments that returns a verdict and has no decorator would never run."""
    for file in FILES:
        registered = {program.name for program in PROGRAMS if program.run.__module__ == file.__name__}
        nodes = ast.parse(inspect.getsource(file)).body
        decorated = {node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.decorator_list}
        assert {name for name in decorated if not name.startswith("_")} - {"overheard"} == registered
