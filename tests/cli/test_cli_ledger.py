import json
import zlib

import pytest
from asked import ask, refused, succeed, told

pytest.importorskip("sklearn", reason="the digits come with scikit-learn: pip install 'privet[data]'")


OPTIONS = ("--data", "digits", "--model", "logistic", "--steps", 5, "--delta", 1e-5, "--quiet")


def train(capsys, *arguments):
    return ask(capsys, "train", *OPTIONS, *arguments)


def test_a_run_is_verified_and_shown_and_damage_is_one_line(capsys, tmp_path):
    trained = succeed(capsys, "train", *OPTIONS, "--epsilon", 2, "--out", tmp_path / "run")
    found = succeed(capsys, "ledger", "verify", tmp_path / "run")
    assert found["epsilon"] == trained["epsilon"]
    assert (found["steps_spent"], found["completed"]) == (5, 5)
    assert f"Tip: {found['tip']}" in told(capsys, "ledger", "verify", tmp_path / "run")
    records = succeed(capsys, "ledger", "show", tmp_path / "run")["records"]
    assert [record["record"] for record in records] == ["open", "reserve"]
    assert "reserve first 1  count 5" in told(capsys, "ledger", "show", tmp_path / "run")
    ledger = tmp_path / "run" / "ledger"
    ledger.write_bytes(ledger.read_bytes().replace(b'"count": 5', b'"count": 4'))
    for verb in ("verify", "show"):
        assert refused(capsys, "ledger", verb, tmp_path / "run").startswith("privet: error: line 2 of the ledger")


def test_runs_draw_from_a_budget_until_it_is_spent(capsys, tmp_path):
    file = tmp_path / "budget"
    made = succeed(capsys, "budget", "create", file, "--epsilon", 2, "--delta", 1e-5, "--data", "digits")
    assert made["plans"] == "adaptive"
    assert train(capsys, "--epsilon", 1, "--out", tmp_path / "a", "--budget", file)[0] == 0
    assert "never above 2" in (tmp_path / "a" / "guarantee.md").read_text(encoding="utf-8")
    code, _, err = train(capsys, "--epsilon", 1.9, "--out", tmp_path / "b", "--budget", file)
    assert code == 2
    assert "allows ε = 2" in err
    found = succeed(capsys, "budget", "show", file)
    assert [(one["steps"], one["settled"]) for one in found["runs"]] == [(5, True)]
    assert 0.9 < found["drawn"] <= 1
    assert "drawn by 1 runs: ε ≤ 1.000" in told(capsys, "budget", "show", file)
    assert ask(capsys, "ledger", "verify", tmp_path / "a")[0] == 0


def test_parts_are_named(capsys, tmp_path):
    file = tmp_path / "budget"
    arguments = ("--epsilon", 2, "--delta", 1e-5, "--examples", 1437, "--part", "digits", "--part", "others")
    assert ask(capsys, "budget", "create", file, *arguments)[0] == 0
    assert "'digits', 'others'" in refused(capsys, "train", *OPTIONS, "--epsilon", 2, "--out", tmp_path / "a", "--budget", file)
    assert train(capsys, "--epsilon", 2, "--out", tmp_path / "a", "--budget", file, "--budget-part", "digits")[0] == 0


def test_a_budget_for_other_data_is_refused(capsys, tmp_path):
    file = tmp_path / "budget"
    ask(capsys, "budget", "create", file, "--epsilon", 2, "--delta", 1e-5, "--data", "mnist")
    words = ("--epsilon", 1, "--out", tmp_path / "a", "--budget", file)
    assert "the budget's, 'mnist'" in refused(capsys, "train", *OPTIONS, *words)
    assert not (tmp_path / "a").exists()


def test_a_run_from_another_machine_resumes_when_adopted(capsys, monkeypatch, tmp_path):
    from privet.ledger.history import Machine

    place = tmp_path / "run"
    monkeypatch.setattr(Machine, "here", staticmethod(lambda: Machine("elsewhere", "")))
    train(capsys, "--epsilon", 2, "--out", place)
    (place / "status.json").write_text(json.dumps({"state": "unfinished", "steps_done": 5, "steps_planned": 5}), encoding="utf-8")
    monkeypatch.undo()
    assert "--adopt" in refused(capsys, "train", "--resume", place, "--quiet")
    assert ask(capsys, "train", "--resume", place, "--adopt", "--quiet")[0] == 0


def test_a_record_without_a_kind_is_shown(capsys, tmp_path):
    """The line is intact, so `show` prints it; `verify` reports that it is invalid."""
    body = json.dumps({"previous": "0" * 64, "count": 3}).encode()
    (tmp_path / "ledger").write_bytes(b"%08x %s\n" % (zlib.crc32(body), body))
    code, out, _ = ask(capsys, "ledger", "show", tmp_path)
    assert (code, "count 3" in out) == (0, True)
