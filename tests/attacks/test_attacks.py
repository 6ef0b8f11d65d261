"""No program in the suite breaks the guarantee, and valid programs are trained correctly."""

import ast
import inspect
from collections import Counter

import programs_below
import programs_buffers
import programs_check
import programs_collate
import programs_copies
import programs_coupling
import programs_duplicates
import programs_exceptions
import programs_flow
import programs_gradients
import programs_hooks
import programs_kept
import programs_precision
import programs_randomness
import programs_remembered
import programs_rows
import programs_sizes
import programs_unread
import programs_valid_layers
import programs_valid_rules
import programs_valid_sequences
import programs_valid_training
import programs_valid_transformers
import programs_writes
import pytest
from exotic import EXOTIC
from harness import PROGRAMS, VALID, judge, unchecked

FILES = (
    programs_below, programs_buffers, programs_check, programs_collate, programs_copies, programs_coupling,
    programs_duplicates, programs_exceptions, programs_flow, programs_gradients, programs_hooks, programs_kept,
    programs_precision, programs_randomness, programs_remembered, programs_rows, programs_sizes,
    programs_unread, programs_valid_layers, programs_valid_rules, programs_valid_sequences, programs_valid_training,
    programs_valid_transformers, programs_writes,
)  # fmt: skip


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(program, id=f"{program.cause}-{program.name}", marks=() if program.fast else pytest.mark.slow)
        for program in PROGRAMS
    ],
)
def test_program(program):
    """Attacks are refused or bounded; valid programs are accepted, and their sum equals a plain loop's."""
    verdict = judge(program)
    assert verdict.passed, verdict.remark


# Isolation by construction needs no check. These programs write to parameters, or make them, in the forward pass: the check on
# synthetic examples finds them.
FOUND_BY_THE_CHECK = {"max_norm_of_a_table", "max_norm_as_a_function", "layer_made_in_the_first_pass"}
BY_CONSTRUCTION = ("rows", "coupling", "sizes", "flow", "state", "gradients", "randomness", "precision")


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(program, id=f"{program.cause}-{program.name}")
        for program in PROGRAMS
        if program.cause in BY_CONSTRUCTION and program.name not in FOUND_BY_THE_CHECK
    ],
)
def test_program_without_the_check(program):
    """Attacks are bounded also without the check before training."""
    with unchecked():
        verdict = judge(program)
    assert verdict.passed, verdict.remark


def test_there_are_programs_of_every_cause():
    counts = Counter(program.cause for program in PROGRAMS)
    assert min(counts.values()) >= 5
    assert counts[VALID] >= 40
    assert counts.total() - counts[VALID] >= 130
    assert 15 <= sum(program.fast for program in PROGRAMS) <= 60
    assert {program.name for program in PROGRAMS} >= FOUND_BY_THE_CHECK


def test_every_program_has_a_distinct_name_and_a_description():
    names = Counter(program.name for program in PROGRAMS)
    assert [name for name, times in names.items() if times > 1] == []
    assert [program.name for program in PROGRAMS if not inspect.getdoc(program.run)] == []


def test_no_program_that_runs_is_said_to_be_out_of_scope():
    assert not {inspect.getdoc(program.run) for program in PROGRAMS} & EXOTIC.keys()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.__name__)
def test_every_program_of_a_file_is_registered(file):
    """A function without arguments that returns a verdict and has no decorator would never run."""
    tree = ast.parse(inspect.getsource(file))
    registered = {program.name for program in PROGRAMS if program.run.__module__ == file.__name__}
    decorated = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list}
    assert {name for name in decorated if not name.startswith("_")} == registered
