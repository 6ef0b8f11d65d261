"""Tests of a guarantee, on the user's own model: a test file imports them and says by fixtures what is to be trained.

With `pytest_plugins = ["privet.audit.plugin"]` in conftest.py, a test file is

    from privet.audit.battery import *

and fixtures `model`, `loss_fn` and `dataset` (with the `collate` and `probe_batch` that training is given, if any) or `batch`,
and, if it is not to be a usual one, `plan`, each of the scope "module". Then `pytest -m guarantee` runs them, and shows a
certificate.
"""

from __future__ import annotations

import pytest

from privet.audit.checks import Check
from privet.audit.mechanism import whitebox
from privet.audit.mechanism.whitebox import MechanismAudit
from privet.audit.program import guarantee
from privet.audit.program.subject import Subject
from privet.audit.reporting import table

__all__ = ["test_mechanism", "test_model"]


@pytest.mark.guarantee
@pytest.mark.parametrize("family", guarantee.FAMILIES)
def test_model(subject: Subject, family: str, certificate: list[Check]) -> None:
    """Nothing that is asked of model, loss and examples is found wanting."""
    found = guarantee.family_checks(subject, family)
    certificate += found
    failed = guarantee.rejected(found)
    assert not failed, "\n".join(table(found, failed))


@pytest.mark.guarantee
@pytest.mark.parametrize("family", whitebox.FAMILIES)
def test_mechanism(audited: MechanismAudit, family: str) -> None:
    """Nothing that the audit of the mechanism asks speaks against the plan."""
    failed = [name for name in audited.failed if name.startswith(family)]
    assert not failed, "\n".join(table(audited.checks, audited.failed))
