"""Where a training persists, and how it reads: what these values refuse, and that training does as they say."""

import inspect
import json

import pytest
import torch
from one_layer import D, N, linear_loss, plan, setup
from torch.utils.data import TensorDataset

import privet
from privet.errors import BudgetExhaustedError, InvalidArgumentError
from privet.training import Reading, Storage


def resume(storage, **options):
    model = torch.nn.Linear(D, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return privet.Training.resume(storage, model, linear_loss, optimizer, TensorDataset(torch.zeros(N, D)), **options)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"directory": 3}, "directory"),
        ({"directory": ["run"]}, "directory"),
        ({"budget": "budget"}, "budget"),
        ({"directory": "run", "anchor": 3}, "anchor"),
        ({"anchor": "elsewhere"}, "anchor"),
        ({"checkpoint_every": 0}, "checkpoint_every"),
        ({"checkpoint_every": 2.5}, "checkpoint_every"),
        ({"checkpoint_every": True}, "checkpoint_every"),
        ({"files": {"run.json": "{}"}}, "files"),
        *(
            ({"directory": "run", "files": {file: ""}}, "files")
            for file in ("../run.json", "a/b", "", "ledger", "plan.json", "status.json", "checkpoint.pt", "manifest.json")
        ),
    ],
)
def test_a_storage_that_makes_no_sense_is_refused_by_name(options, name):
    with pytest.raises(InvalidArgumentError, match=rf"^{name} is .*; it must be "):
        Storage(**options)


@pytest.mark.parametrize(
    ("options", "name"),
    [({"workers": -1}, "workers"), ({"workers": 1.5}, "workers"), ({"probe": 1}, "probe"), ({"probe": None}, "probe")],
)
def test_a_reading_that_makes_no_sense_is_refused_by_name(options, name):
    with pytest.raises(InvalidArgumentError, match=rf"^{name} is .*; it must be "):
        Reading(**options)


def test_a_training_has_few_arguments_and_none_that_is_private():
    for function in (privet.Training.__init__, privet.Training.resume):
        names = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
        assert len(names) <= 13
        assert not [name for name in names if name.startswith("_")]


@pytest.mark.parametrize("wrap", [str, lambda path: path, Storage, lambda path: Storage(str(path))])
def test_a_directory_is_a_path_or_a_storage(wrap, tmp_path):
    with setup(plan(), torch.randn(N, D), wrap(tmp_path / "run")) as training:
        training.run()
    assert training.directory == tmp_path / "run"
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "trained"


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
            resume(storage)


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
