"""A run stops, saves and resumes by its ledger, and says nothing of its data."""

import os

import pytest
import torch

from one_layer import D, N, plan, resume, setup
from privet.errors import LedgerError
from privet.ledger import read_history


def test_a_directory_with_a_run_is_not_taken_over(tmp_path):
    training = setup(plan(), torch.randn(N, D), tmp_path / "run")
    training.close()
    with pytest.raises(LedgerError, match="holds a run already"):
        setup(plan(), torch.randn(N, D), tmp_path / "run")


def test_a_checkpoint_from_another_run_is_refused(tmp_path):
    x = torch.randn(N, D)
    for name in ("a", "b"):
        with setup(plan(steps=10), x, tmp_path / name) as training:
            next(iter(training))
    os.replace(tmp_path / "a" / "checkpoint.pt", tmp_path / "b" / "checkpoint.pt")
    with pytest.raises(LedgerError, match="foreign"):
        resume(tmp_path / "b", x)


def test_resuming_without_a_ledger_is_refused(tmp_path):
    x = torch.randn(N, D)
    setup(plan(steps=10), x, tmp_path).close()
    (tmp_path / "ledger").unlink()
    with pytest.raises(LedgerError, match="has no ledger"):
        resume(tmp_path, x)


def test_an_exception_in_the_step_counts_the_step(tmp_path):
    training = setup(plan(N, steps=10), torch.randn(N, D), tmp_path)
    training.optimizer.register_step_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        training.run()
    assert training.steps_spent == 1


@pytest.mark.parametrize("written", [0, 1, 300])
def test_a_run_that_was_killed_in_its_first_record_can_be_begun_again(tmp_path, written):
    """Neither has it begun, so that it could be resumed, nor is its directory taken."""
    x = torch.randn(N, D)
    setup(plan(), x, tmp_path / "whole").close()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "ledger").write_bytes((tmp_path / "whole" / "ledger").read_bytes()[:written])
    training = setup(plan(), x, tmp_path / "torn")
    training.run()
    training.close()
    assert read_history(tmp_path / "torn" / "ledger")[0].spent == 3


def test_progress_shows_nothing_where_there_is_no_terminal(capsys):
    training = setup(plan(), torch.randn(N, D))
    training.run(progress=True)
    assert training.steps_left == 0
    assert capsys.readouterr().err == ""
