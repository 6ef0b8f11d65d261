"""pytest plugin for runs on a copy of the source: the copy is what runs, and only a failed assertion counts as a detection."""

import os
from pathlib import Path

import pytest

SOURCE = "PRIVET_SOURCE"  # the environment variable that names the copy
# Exit statuses beside pytest's own.
ELSEWHERE, CRASHED = 11, 12

_asserted: list[bool] = []


def pytest_sessionstart():
    """Leave at once if the package comes from elsewhere; an error while it is imported is pytest's status 3."""
    import privet

    if not Path(privet.__file__).is_relative_to(os.environ[SOURCE]):
        pytest.exit(f"privet comes from {privet.__file__}", returncode=ELSEWHERE)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call):
    report = yield
    if report.failed:
        _asserted.append(call.when == "call" and isinstance(call.excinfo.value, AssertionError | pytest.fail.Exception))
    return report


def pytest_sessionfinish(session):
    """Tell faults that a test saw from faults at which the code broke down, which say nothing about the tests."""
    if session.exitstatus == pytest.ExitCode.TESTS_FAILED and not any(_asserted):
        session.exitstatus = CRASHED
