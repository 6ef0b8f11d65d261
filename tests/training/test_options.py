import inspect
import json

import pytest
import torch

import privet
from one_layer import D, N, plan, resume, setup
from privet.errors import BudgetExhaustedError, InvalidArgumentError
from privet.ledger import read_history
from privet.runs.tasks import cross_entropy
from privet.training import Reading, Storage

FILES = ("../run.json", "a/b", "", "ledger", "plan.json", "status.json", "checkpoint.pt", "manifest.json")
SENSELESS = {
    "directory": [{"directory": 3}, {"directory": ["run"]}],
    "budget": [{"budget": "budget"}],
    "anchor": [{"directory": "run", "anchor": 3}, {"anchor": "elsewhere"}],
    "checkpoint_every": [{"checkpoint_every": value} for value in (0, 2.5, True)],
    "files": [{"files": {"run.json": "{}"}}, *({"directory": "run", "files": {file: ""}} for file in FILES)],
    "workers": [{"workers": -1}, {"workers": 1.5}],
    "purpose": [{"purpose": 3}],
    "probe": [{"probe": 1}, {"probe": None}],
}


@pytest.mark.parametrize(("name", "options"), [(name, options) for name, every in SENSELESS.items() for options in every])
def test_a_storage_or_reading_that_makes_no_sense_is_refused_by_name(name, options):
    kind = Reading if name in ("workers", "probe") else Storage
    with pytest.raises(InvalidArgumentError, match=rf"^{name} is .*; it must be "):
        kind(**options)


@pytest.mark.parametrize("function", [privet.Training.__init__, privet.Training.resume])
def test_a_training_has_few_arguments_and_none_that_is_private(function):
    names = list(inspect.signature(function).parameters)
    assert len(names) <= 15  # with self or cls
    assert not [name for name in names if name.startswith("_")]


@pytest.mark.parametrize("wrap", [str, lambda path: path, Storage, lambda path: Storage(str(path))])
def test_a_directory_is_a_path_or_a_storage(wrap, tmp_path):
    with setup(plan(), torch.randn(N, D), wrap(tmp_path / "run")) as training:
        training.run()
    assert training.directory == tmp_path / "run"
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "trained"


def test_a_run_that_is_done_has_its_statement(tmp_path):
    with setup(plan(), torch.randn(N, D), tmp_path / "run") as training:
        next(iter(training))
        assert not (tmp_path / "run" / "guarantee.md").exists()
        steps = iter(training)
        for _ in range(training.steps_left):
            next(steps)  # and the loop is never ended
        assert (tmp_path / "run" / "guarantee.md").read_text(encoding="utf-8") == f"# Guarantee\n\n{training.guarantee()}\n"
        assert (tmp_path / "run" / "guarantee.json").read_text(encoding="utf-8") == training.guarantee().to_json() + "\n"


def test_a_run_that_was_killed_after_its_last_payment_gets_its_statement(tmp_path):
    training = setup(plan(steps=16), torch.zeros(N, D), tmp_path / "run")
    while training.steps_left:
        training._record.ledger.reserve()
    training._record.ledger.close()
    with resume(tmp_path / "run", torch.zeros(N, D)) as resumed:
        resumed.run()
    assert json.loads((tmp_path / "run" / "guarantee.json").read_text(encoding="utf-8"))["steps"] == 16
    assert json.loads((tmp_path / "run" / "status.json").read_text(encoding="utf-8"))["state"] == "trained"


def test_the_purpose_is_in_the_ledger_and_the_statement_and_stays_when_a_run_is_resumed(tmp_path):
    with setup(plan(), torch.zeros(N, D), Storage(tmp_path / "run", purpose="to find\n a bed")) as training:
        next(iter(training))
        assert training.guarantee().purpose == "to find a bed"
    assert read_history(tmp_path / "run" / "ledger")[0].facts["purpose"] == "to find a bed"
    with pytest.raises(InvalidArgumentError, match="purpose is 'another'; it must be that of the run"):
        resume(Storage(tmp_path / "run", purpose="another"), torch.zeros(N, D))
    with resume(Storage(tmp_path / "run", purpose="to find a bed"), torch.zeros(N, D)) as training:
        assert "Purpose: to find a bed." in str(training.guarantee())


def test_assumptions_about_code_are_made_only_where_a_user_has_code():
    """The model and the loss of a user, and then those of Privet on the same tensors."""
    data = torch.utils.data.TensorDataset(torch.randn(N, D), torch.randint(2, (N,)))
    model = privet.models.build("mlp", (D,), 2)
    for loss, user_code in ((lambda *arguments: cross_entropy(*arguments), True), (cross_entropy, False)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        statement = privet.Training(plan(), model, loss, optimizer, data).guarantee()
        assert statement.user_code == user_code
        assert ("Reading(spec" in str(statement)) == user_code
    model.register_forward_hook(lambda *_: None)
    assert privet.Training(plan(), model, cross_entropy, optimizer, data).guarantee().user_code


def test_files_are_there_from_the_beginning_and_gone_if_the_run_is_refused(tmp_path):
    budget = privet.Budget.create(tmp_path / "budget", epsilon=1e-3, delta=1e-5, examples=N)
    with pytest.raises(BudgetExhaustedError):
        setup(plan(), torch.randn(N, D), Storage(tmp_path / "run", budget, files={"note.txt": "mine"}))
    assert not (tmp_path / "run" / "note.txt").exists()
    setup(plan(), torch.randn(N, D), Storage(tmp_path / "run", files={"note.txt": "mine"})).close()
    assert (tmp_path / "run" / "note.txt").read_text() == "mine"


def test_what_a_run_is_given_once_is_refused_when_it_is_resumed(tmp_path):
    setup(plan(), torch.randn(N, D), tmp_path / "run").close()
    for storage, name in (
        (None, "directory"),
        (Storage(), "directory"),
        (Storage(tmp_path / "run", anchor=tmp_path / "anchor"), "anchor"),
        (Storage(tmp_path / "run", files={"note.txt": "mine"}), "files"),
    ):
        with pytest.raises(InvalidArgumentError, match=rf"^{name} is"):
            resume(storage, torch.zeros(N, D))


def test_a_run_stays_where_it_began_if_the_working_directory_changes(tmp_path, monkeypatch):
    here, there = tmp_path / "here", tmp_path / "there"
    for place in (there, here):
        place.mkdir()
        monkeypatch.chdir(place)
        began = setup(plan(steps=6), torch.zeros(N, D), Storage("run", anchor="anchor", checkpoint_every=1))
        if place == there:
            next(iter(began))
            began.close()
    before = {file.name: file.read_bytes() for file in (there / "run").iterdir()}
    steps = iter(began)
    next(steps)
    monkeypatch.chdir(there)
    assert len(list(steps)) == 5
    began.close()
    assert {file.name: file.read_bytes() for file in (there / "run").iterdir()} == before
    assert began.directory == here / "run"
    assert (here / "run" / "checkpoint.pt").stat().st_mtime_ns >= (here / "run" / "plan.json").stat().st_mtime_ns


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
