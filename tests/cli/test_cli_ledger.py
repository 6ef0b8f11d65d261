"""`privet ledger` and `privet budget`: output for people and for programs."""

import json
import zlib

import pytest
from asked import ask

pytest.importorskip("sklearn", reason="the digits come with scikit-learn: pip install 'privet[data]'")


def train(capsys, *arguments):
    options = ("--data", "digits", "--model", "logistic", "--steps", 5, "--delta", 1e-5, "--quiet", "--json")
    return ask(capsys, "train", *options, *arguments)


def test_a_run_is_verified_and_shown(capsys, tmp_path):
    _, trained, _ = train(capsys, "--epsilon", 2, "--out", tmp_path / "run")
    code, out, _ = ask(capsys, "ledger", "verify", tmp_path / "run", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["epsilon"] == json.loads(trained)["epsilon"]
    assert (found["steps_spent"], found["completed"]) == (5, 5)
    assert f"Tip: {found['tip']}" in ask(capsys, "ledger", "verify", tmp_path / "run")[1]
    kinds = [record["record"] for record in json.loads(ask(capsys, "ledger", "show", tmp_path / "run", "--json")[1])["records"]]
    assert kinds == ["open", "reserve"]
    assert "reserve first 1  count 5" in ask(capsys, "ledger", "show", tmp_path / "run")[1]


def test_damage_is_one_line_and_status_2(capsys, tmp_path):
    train(capsys, "--epsilon", 2, "--out", tmp_path / "run")
    ledger = tmp_path / "run" / "ledger"
    ledger.write_bytes(ledger.read_bytes().replace(b'"count": 5', b'"count": 4'))
    for verb in ("verify", "show"):
        code, out, err = ask(capsys, "ledger", verb, tmp_path / "run")
        assert (code, out) == (2, "")
        assert err.startswith("privet: error: line 2 of the ledger")
        assert err.count("\n") == 1


def test_runs_draw_from_a_budget_until_it_is_spent(capsys, tmp_path):
    file = tmp_path / "budget"
    code, out, _ = ask(capsys, "budget", "create", file, "--epsilon", 2, "--delta", 1e-5, "--data", "digits", "--json")
    assert code == 0
    assert json.loads(out)["plans"] == "adaptive"
    assert train(capsys, "--epsilon", 1, "--out", tmp_path / "a", "--budget", file)[0] == 0
    assert "never above 2" in (tmp_path / "a" / "guarantee.md").read_text(encoding="utf-8")
    code, _, err = train(capsys, "--epsilon", 1.9, "--out", tmp_path / "b", "--budget", file)
    assert code == 2
    assert "allows ε = 2" in err
    found = json.loads(ask(capsys, "budget", "show", file, "--json")[1])
    assert [(one["steps"], one["settled"]) for one in found["runs"]] == [(5, True)]
    assert 0.9 < found["drawn"] <= 1
    assert "drawn by 1 runs: ε ≤ 1.000" in ask(capsys, "budget", "show", file)[1]
    assert ask(capsys, "ledger", "verify", tmp_path / "a")[0] == 0


def test_parts_are_named(capsys, tmp_path):
    file = tmp_path / "budget"
    arguments = ("--epsilon", 2, "--delta", 1e-5, "--examples", 1437, "--part", "digits", "--part", "others")
    assert ask(capsys, "budget", "create", file, *arguments)[0] == 0
    code, _, err = train(capsys, "--epsilon", 2, "--out", tmp_path / "a", "--budget", file)
    assert code == 2
    assert "'digits', 'others'" in err
    assert train(capsys, "--epsilon", 2, "--out", tmp_path / "a", "--budget", file, "--budget-part", "digits")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["budget", "create", "b", "--epsilon", "0", "--delta", "1e-5", "--examples", "9"], "epsilon"),
        (["budget", "create", "b", "--epsilon", "1", "--delta", "1e-5"], "identify the budget's data set"),
        (["budget", "show", "b"], "cannot read the budget"),
        (["ledger", "verify", "nowhere"], "no plan.json"),
        (["ledger", "show", "nowhere"], "cannot read the ledger"),
        (["train", "--data", "digits", "--epsilon", "1", "--budget", "b"], "cannot read the budget"),
    ],
)
def test_refusals_are_one_line_and_write_nothing(capsys, monkeypatch, tmp_path, arguments, says):
    monkeypatch.chdir(tmp_path)
    code, _, err = ask(capsys, *arguments)
    assert code == 2
    assert says in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_budget_for_other_data_is_refused(capsys, tmp_path):
    file = tmp_path / "budget"
    ask(capsys, "budget", "create", file, "--epsilon", 2, "--delta", 1e-5, "--data", "mnist")
    code, _, err = train(capsys, "--epsilon", 1, "--out", tmp_path / "a", "--budget", file)
    assert code == 2
    assert "the budget's, 'mnist'" in err
    assert not (tmp_path / "a").exists()


def test_a_run_from_another_machine_resumes_when_adopted(capsys, monkeypatch, tmp_path):
    from privet.ledger.history import Machine

    place = tmp_path / "run"
    monkeypatch.setattr(Machine, "here", staticmethod(lambda: Machine("elsewhere", "")))
    train(capsys, "--epsilon", 2, "--out", place)
    (place / "status.json").write_text(json.dumps({"state": "unfinished", "steps_done": 5, "steps_planned": 5}), encoding="utf-8")
    monkeypatch.undo()
    code, _, err = ask(capsys, "train", "--resume", place, "--quiet")
    assert code == 2
    assert "--adopt" in err
    assert ask(capsys, "train", "--resume", place, "--adopt", "--quiet")[0] == 0


def test_a_record_without_a_kind_is_shown(capsys, tmp_path):
    """The line is intact, so `show` prints it; `verify` reports that it is invalid."""
    body = json.dumps({"previous": "0" * 64, "count": 3}).encode()
    (tmp_path / "ledger").write_bytes(b"%08x %s\n" % (zlib.crc32(body), body))
    code, out, _ = ask(capsys, "ledger", "show", tmp_path)
    assert (code, "count 3" in out) == (0, True)
