"""Runs draw no report, which takes longer than training here, unless a test is about it."""

import pytest

from privet.runs import run


@pytest.fixture(autouse=True)
def no_report(request, monkeypatch):
    if "with_report" not in request.keywords:
        monkeypatch.setattr(run.report, "write", lambda directory: None)
