"""Audit of another library's trainer, which keeps its plan except for non-finite examples."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import privet
from privet.audit import mechanism
from privet.clipping import Flat
from privet.noise import Gaussian
from privet.sampling import Poisson

EXAMPLE = Path(__file__).parents[2] / "examples" / "audit_opacus.py"


@pytest.mark.filterwarnings("ignore")
def test_opacus_is_audited():
    pytest.importorskip("opacus")
    plan = privet.Plan(
        examples=400, sampling=Poisson(20), steps=200, clipping=Flat(0.7), delta=1e-4, noise=Gaussian(2.3)
    )  # fmt: skip
    found = mechanism(plan, runpy.run_path(str(EXAMPLE))["train"], observations=20_000)
    assert found.failed == ("SENS: one example that is NaN", "SENS: one example that is infinite")
    assert found.epsilon_lower_bound <= found.epsilon_claimed
