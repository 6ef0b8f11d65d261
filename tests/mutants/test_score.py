"""The score counts mutants, and nothing else."""

from __future__ import annotations

import importlib.util
from pathlib import Path

SPEC = importlib.util.spec_from_file_location("mutants_conftest", Path(__file__).with_name("conftest.py"))
CONFTEST = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(CONFTEST)


def test_survivors_and_errors_lower_the_score():
    ids = [f"tests/mutants/test_mutants.py::test_the_suite_sees[{name}]" for name in "abc"]
    other = "tests/mutants/test_mutants.py::test_names_and_faults_differ"
    assert CONFTEST.score([*ids[:2], other], ids[2:]) == "mutants: 2 of 3 killed"
    assert CONFTEST.score([*ids, other], []) == "mutants: 3 of 3 killed"
    assert CONFTEST.score([other], []) is None
