"""Runs that version 0.1.0 wrote: later versions read, report, verify and resume them."""

import json
import shutil
from pathlib import Path

import pytest

from privet.cli import main

MADE = Path(__file__).parent / "made_by_0_1_0"


@pytest.fixture
def runs(tmp_path):
    """A copy, as reading may write; git keeps no permissions, and the ledger is for its owner alone."""
    copied = shutil.copytree(MADE, tmp_path / "runs")
    for ledger in copied.glob("*/ledger"):
        ledger.chmod(0o600)
    return copied


@pytest.fixture
def answer(capsys):
    def ask(*words):
        with pytest.raises(SystemExit) as stop:
            main([*map(str, words), "--json"])
        out, err = capsys.readouterr()
        assert stop.value.code == 0, err
        return json.loads(out.splitlines()[-1])

    return ask


@pytest.mark.parametrize(("run", "steps"), [("finished", 30), ("unfinished", 60)])
def test_the_ledger_is_whole(run, steps, runs, answer):
    found = answer("ledger", "verify", runs / run)
    plan = json.loads((runs / run / "plan.json").read_text(encoding="utf-8"))
    assert found["steps_spent"] == steps
    assert found["steps_planned"] == plan["steps"]


def test_the_statement_is_as_it_was(runs, answer):
    written = json.loads((runs / "finished" / "guarantee.json").read_text(encoding="utf-8"))
    found = answer("guarantee", runs / "finished")
    assert found["epsilon"] == written["epsilon"] <= 2.0


def test_a_report_is_written(runs, answer):
    answer("report", runs / "finished")
    page = (runs / "finished" / "report.html").read_text(encoding="utf-8")
    assert "digits" in page
    assert "Poisson" in page


def test_an_unfinished_run_is_resumed_and_spends_what_was_left(runs, answer):
    found = answer("train", "--resume", runs / "unfinished", "--adopt", "--quiet")
    assert found["steps"] == 90
    # Later versions may bound the same noise a little differently.
    assert found["epsilon"] == pytest.approx(2.0, rel=1e-4)
    assert answer("ledger", "verify", runs / "unfinished")["steps_spent"] == 90
