import json
import shutil

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import privet
from privet.budget import Budget
from privet.errors import LedgerError
from privet.runs.verification import verify
from privet.training import checkpoint

N, STEPS, TAKEN = 40, 30, 9


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run with an anchor and a budget, stopped after nine of thirty steps."""
    place = tmp_path_factory.mktemp("verify")
    plan = privet.Plan(
        examples=N, sampling=privet.sampling.Poisson(8), steps=STEPS, clipping=privet.clipping.Flat(0.6), delta=1e-5,
        noise=privet.noise.Gaussian(2.4),
    )  # fmt: skip
    shared = Budget.create(place / "budget", epsilon=50.0, delta=1e-5, examples=N)
    model = nn.Linear(3, 1)
    training = privet.Training(
        plan, model, lambda net, batch: net(batch[0])[:, 0], torch.optim.SGD(model.parameters(), lr=0.4),
        TensorDataset(torch.randn(N, 3)), privet.Storage(place / "run", budget=shared, anchor=place / "anchor"),
    )  # fmt: skip
    with training:
        for step in training:
            if step.number == TAKEN:
                break
    return place


@pytest.fixture
def place(finished, tmp_path):
    """A copy to do harm to, whose ledger knows its budget and anchor by where the original's are."""
    shutil.copytree(finished / "run", tmp_path / "run")
    return tmp_path


def test_what_fits_together_is_summed_up(finished):
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    found = verify(finished / "run")
    assert (found.steps_spent, found.steps_planned, found.completed, found.sessions) == (TAKEN, STEPS, TAKEN, 1)
    plan = privet.Plan.from_json((finished / "run" / "plan.json").read_text(encoding="utf-8"))
    assert found.epsilon == plan.epsilon(steps=TAKEN)
    assert not found.torn
    assert found.tip in str(found)
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before


def test_a_copy_is_told_only_by_its_tip(finished, place):
    assert verify(place / "run") == verify(finished / "run")


def test_a_torn_end_is_told_and_does_not_count(place):
    with (place / "run" / "ledger").open("ab") as file:
        file.write(b"00000000 {")
    found = verify(place / "run")
    assert found.torn
    assert found.steps_spent == TAKEN
    assert "incomplete" in str(found)


def drop_the_last_line(run):
    lines = (run / "ledger").read_bytes().splitlines(keepends=True)
    (run / "ledger").write_bytes(b"".join(lines[:-1]))


def change_the_plan(run):
    plan = json.loads((run / "plan.json").read_text(encoding="utf-8"))
    (run / "plan.json").write_text(json.dumps({**plan, "delta": 1e-7}), encoding="utf-8")


def change_a_line(run):
    content = (run / "ledger").read_bytes()
    (run / "ledger").write_bytes(content.replace(b'"count": 16', b'"count": 11'))


HARM = [
    (drop_the_last_line, "newer than, or foreign to"),
    (change_the_plan, "another plan: delta was 1e-05"),
    (change_a_line, "is damaged"),
    (lambda run: (run / "ledger").unlink(), "cannot read the ledger"),
    (lambda run: (run / "ledger").write_bytes(b""), "never began"),
    (lambda run: (run / "plan.json").unlink(), "no plan.json"),
    (
        lambda run: [(run / name).write_bytes(b"") for name in (checkpoint.NAME, checkpoint.PREVIOUS)],
        "neither can the previous one",
    ),
]


@pytest.mark.parametrize(("harm", "says"), HARM)
def test_what_does_not_fit_is_named(place, harm, says):
    harm(place / "run")
    with pytest.raises(LedgerError, match=says):
        verify(place / "run")


def test_a_ledger_that_lost_its_end_and_its_checkpoints_is_betrayed_by_its_anchor(place):
    drop_the_last_line(place / "run")
    for name in (checkpoint.NAME, checkpoint.PREVIOUS):
        (place / "run" / name).unlink()
    with pytest.raises(LedgerError, match="ahead of the ledger"):
        verify(place / "run")


def test_a_budget_that_knows_less_than_the_ledger_is_told(finished, place, monkeypatch):
    account = Budget(finished / "budget").account()
    (run,) = account.shares
    monkeypatch.setattr(Budget, "account", lambda self: account.without(run))
    with pytest.raises(LedgerError, match=f"counts 0 steps of a run that spent {TAKEN}"):
        verify(place / "run")
