"""For pytest: the marker `guarantee`, the fixtures that say what is to be trained, and the certificate at the end.

In conftest.py: `pytest_plugins = ["privet.audit.plugin"]`; the tests are in `privet.audit.battery`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from torch import nn
from torch.utils.data import Dataset

from privet._utils.files import write_text
from privet.audit.checks import Check
from privet.audit.mechanism.whitebox import MechanismAudit, mechanism
from privet.audit.program.guarantee import rejected, subject_of, usual_plan
from privet.audit.program.subject import Subject
from privet.audit.reporting import table
from privet.collate import Collate
from privet.gradients.core.losses import LossFunction
from privet.plan import Plan
from privet.reading.batches import check_map_style

_CHECKS = pytest.StashKey[list[Check]]()
_MECHANISM = pytest.StashKey[MechanismAudit]()
_EXAMPLES, _OBSERVATIONS = 10_000, 200_000


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer a file for the certificate."""
    parser.addoption("--certificate", metavar="FILE", help="write what the guarantee's tests found to this JSON file")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", "guarantee: what a differentially private training relies on (privet)")
    config.stash[_CHECKS] = []


def _missing(name: str) -> pytest.UsageError:
    return pytest.UsageError(f"define a fixture {name!r}: what is to be trained (see privet.audit.battery)")


@pytest.fixture(scope="module")
def model() -> nn.Module:
    """Return the module, in the mode in which it is to be trained; to be overridden."""
    raise _missing("model")


@pytest.fixture(scope="module")
def loss_fn() -> LossFunction:
    """Return (model, batch) → (B,) losses; to be overridden."""
    raise _missing("loss_fn")


@pytest.fixture(scope="module")
def dataset() -> Dataset[Any] | None:
    """Return the data set that training is to be given; to be overridden, or `batch`."""
    return None


@pytest.fixture(scope="module")
def collate() -> Collate | None:
    """Return the collate function that training is to be given with the data set."""
    return None


@pytest.fixture(scope="module")
def probe_batch() -> Any:
    """Return the public batch that training is to be given for its check before the first step."""
    return None


@pytest.fixture(scope="module")
def batch() -> Any:
    """Return some examples, at least two, where there is no data set."""
    return None


@pytest.fixture(scope="module")
def plan(dataset: Dataset[Any] | None) -> Plan:
    """Return the plan; a usual one unless overridden."""
    return usual_plan(_EXAMPLES if dataset is None else check_map_style(dataset))


@pytest.fixture(scope="module")
def observations() -> int:
    """Return how many scores the audit looks at."""
    return _OBSERVATIONS


@pytest.fixture(scope="module")
def subject(
    model: nn.Module,
    loss_fn: LossFunction,
    batch: Any,
    dataset: Dataset[Any] | None,
    collate: Collate | None,
    probe_batch: Any,
    plan: Plan,
) -> Subject:
    """Return what the tests are about."""
    if batch is None and dataset is None:
        raise _missing("dataset")
    return subject_of(model, loss_fn, plan, None if dataset is not None else batch, dataset, collate, probe_batch)


@pytest.fixture(scope="module")
def audited(subject: Subject, observations: int, pytestconfig: pytest.Config) -> MechanismAudit:
    """Return the audit of the plan's mechanism."""
    found = mechanism(subject.plan, names=subject.names or None, observations=observations)
    pytestconfig.stash[_MECHANISM] = found
    return found


@pytest.fixture
def certificate(pytestconfig: pytest.Config) -> list[Check]:
    """Return where checks of the model are collected."""
    return pytestconfig.stash[_CHECKS]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show the certificate, and write it if asked."""
    checks, audit = config.stash[_CHECKS], config.stash.get(_MECHANISM, None)
    if not checks and audit is None:
        return
    failed = rejected(checks)
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
