"""The collected tests, and mutants that `-k` finds by their file."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

_COLLECTED = pytest.StashKey[set[str]]()
_ROOT = Path(__file__).parents[2]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Remember all tests, before any are deselected; `-k` finds a mutant by its file too."""
    config.stash[_COLLECTED] = {item.nodeid for item in items}
    for item in items if config.getoption("keyword") else ():
        mutant = getattr(item, "callspec", None) and item.callspec.params.get("mutant")
        if mutant is not None:
            with contextlib.suppress(AssertionError):  # a mutant whose place is lost, which has a test of its own
                item.extra_keyword_matches.add(mutant.path.as_posix())


@pytest.fixture
def collected(pytestconfig):
    """The node ids of some files' tests: those of this run if it collected all of these files, else those of another."""

    def tests(files):
        here = pytestconfig.stash[_COLLECTED]
        if {*files} <= {name.partition("::")[0] for name in here} and not any("::" in each for each in pytestconfig.args):
            return here
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *files]
        found = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
        assert found.returncode == pytest.ExitCode.OK, found.stdout + found.stderr
        return {*found.stdout.splitlines()}

    return tests
