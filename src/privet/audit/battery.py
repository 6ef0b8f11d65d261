"""Tests of the privacy guarantee for a user's model, to be imported into a test file.

With `pytest_plugins = ["privet.audit.plugin"]` in conftest.py, a test file consists of

    from privet.audit.battery import *

and fixtures `model`, `loss_fn` and `dataset` (with `collate` and `probe_batch` as for training, if any) or `batch`, and
optionally `plan`, each of scope "module". Then `pytest -m guarantee` runs the tests and prints a certificate.
"""

from __future__ import annotations

import pytest

from privet.audit._mechanism import whitebox
from privet.audit._mechanism.whitebox import MechanismAudit
from privet.audit._program import guarantee
from privet.audit._program.program import AuditedProgram
from privet.audit.checks import Check, find_rejected, table


@pytest.mark.guarantee
@pytest.mark.parametrize("family", guarantee.FAMILIES)
def test_model(subject: AuditedProgram, family: str, certificate: list[Check]) -> None:
    """All checks of model, loss and examples pass."""
    found = guarantee.run_family(subject, family)
    certificate += found
    failed = find_rejected(found)
    assert not failed, "\n".join(table(found, failed))


@pytest.mark.guarantee
@pytest.mark.parametrize("family", whitebox.FAMILIES)
def test_mechanism(audited: MechanismAudit, family: str) -> None:
    """All checks of the mechanism audit pass."""
    failed = [name for name in audited.failed if name.startswith(family)]
    assert not failed, "\n".join(table(audited.checks, audited.failed))
