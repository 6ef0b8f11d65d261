"""pytest plugin with the marker `guarantee`, default fixtures, and the certificate at the end.

Enable it in conftest.py with `pytest_plugins = ["privet.audit.plugin"]`; the tests are in `privet.audit.battery`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from privet._utils.files import write_text
from privet.audit._mechanism.whitebox import MechanismAudit, mechanism
from privet.audit._program.guarantee import usual_plan
from privet.audit._program.program import AuditedProgram
from privet.audit.checks import Check, find_rejected, table
from privet.plan import Plan
from privet.reading.batches import check_map_style

_CHECKS = pytest.StashKey[list[Check]]()
_MECHANISM = pytest.StashKey[MechanismAudit]()
_EXAMPLES = 10_000


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the certificate's file."""
    parser.addoption("--certificate", metavar="FILE", help="write the results of the guarantee tests to this JSON file")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", "guarantee: tests of what differentially private training relies on (privet)")
    config.stash[_CHECKS] = []


def _missing(name: str) -> pytest.UsageError:
    return pytest.UsageError(f"define a fixture {name!r} for the training to test (see privet.audit.battery)")


def _default(name: str, value: object = None, *, required: bool = False) -> Any:
    """Return a fixture for an argument of the checks, which has this value unless it is overridden."""

    @pytest.fixture(scope="module", name=name)
    def default() -> object:
        if required:
            raise _missing(name)
        return value

    return default


model, loss_fn = _default("model", required=True), _default("loss_fn", required=True)
dataset, collate, probe_batch, batch = map(_default, ("dataset", "collate", "probe_batch", "batch"))
observations = _default("observations", 200_000)  # number of scores of the audit


@pytest.fixture(scope="module")
def plan(dataset: Any) -> Plan:
    """Return the plan; a typical one unless overridden."""
    return usual_plan(_EXAMPLES if dataset is None else check_map_style(dataset))


@pytest.fixture(scope="module")
def subject(model: Any, loss_fn: Any, plan: Plan, dataset: Any, collate: Any, batch: Any, probe_batch: Any) -> AuditedProgram:
    """Return the program to check."""
    if batch is None and dataset is None:
        raise _missing("dataset")
    return AuditedProgram(model, loss_fn, plan, dataset, collate, None if dataset is not None else batch, probe_batch)


@pytest.fixture(scope="module")
def audited(subject: AuditedProgram, observations: int, pytestconfig: pytest.Config) -> MechanismAudit:
    """Return the audit of the plan's mechanism."""
    pytestconfig.stash[_MECHANISM] = mechanism(subject.plan, names=subject.names or None, observations=observations)
    return pytestconfig.stash[_MECHANISM]


@pytest.fixture
def certificate(pytestconfig: pytest.Config) -> list[Check]:
    """Return the list in which checks of the model are collected."""
    return pytestconfig.stash[_CHECKS]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the certificate, and write it to a file if requested."""
    checks, audit = config.stash[_CHECKS], config.stash.get(_MECHANISM, None)
    if not checks and audit is None:
        return
    failed = find_rejected(checks)
    terminalreporter.section("guarantee")
    for line in (*table(checks, failed), "", *str(audit or "").splitlines()):
        terminalreporter.line(line)
    if path := config.getoption("--certificate"):
        passed = not failed and audit is not None and audit.passed
        content = {
            "passed": passed, "checks": [asdict(check) for check in checks], "failed": failed,
            "mechanism": None if audit is None else audit.to_dict(),
        }  # fmt: skip
        write_text(Path(path), json.dumps(content, indent=2, ensure_ascii=False) + "\n")
