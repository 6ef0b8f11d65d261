"""Both tasks from the command line, with public and with paid results, on tables and arrays: end to end in seconds."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from asked import ask

from privet import Plan
from privet.cli import main
from privet.ledger import read_history

ROWS = 300
QUICK = ["--epsilon", "4", "--delta", "1e-5", "--steps", "4", "--batch-size", "60"]
COLUMNS = """
[columns]
age = { kind = "number", lower = 0, upper = 100 }
colour = { kind = "category", values = ["red", "white"] }
"""
SCHEMAS = {
    "good": f'[target]\ncolumn = "good"\ntask = "classification"\nclasses = ["no", "yes"]\n{COLUMNS}',
    "price": f'[target]\ncolumn = "price"\ntask = "regression"\nlower = 0\nupper = 50\n{COLUMNS}',
}


@pytest.fixture
def folder(tmp_path):
    """A table with a missing target in every tenth row, a public sample of it, and a schema for each target."""
    generator = np.random.default_rng(0)
    for name, rows in (("own.csv", ROWS), ("test.csv", 60)):
        lines = ["age,colour,good,price"]
        for number in range(rows):
            age, colour = generator.integers(0, 100), ("red", "white")[generator.integers(2)]
            missing = name == "own.csv" and number % 10 == 0
            lines.append(f"{age},{colour}," + ("," if missing else f"{'yes' if age > 50 else 'no'},{age / 2:.2f}"))
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    for name, text in SCHEMAS.items():
        (tmp_path / f"{name}.toml").write_text(text)
    return tmp_path


def train(capsys, *arguments):
    return ask(capsys, "train", *arguments)


def succeed(capsys, *arguments):
    code, out, err = train(capsys, *arguments, "--quiet", "--json")
    assert code == 0, err
    return json.loads(out.splitlines()[-1])


def on_table(folder, target, *more):
    data = ["--data", folder / "own.csv", "--schema", folder / f"{target}.toml"]
    return [*data, *QUICK, "--out", folder / "run", *more]


HELD_OUT = ["--holdout", "0.2", "--evaluation-epsilon", "1"]


def test_a_classification_with_a_paid_result(capsys, folder):
    found = succeed(capsys, *on_table(folder, "good", *HELD_OUT))
    low, high = found["holdout_intervals"]["accuracy"]
    assert 0 <= low <= found["holdout_accuracy"] <= high <= 1
    assert (found["holdout_examples"], found["test_accuracy"]) == (60, None)
    assert 0.99 < found["holdout_epsilon"] <= 1.0
    plan = Plan.from_json((folder / "run" / "plan.json").read_text())
    assert (plan.examples, plan.holdout.examples) == (240, 60)
    assert found["epsilon"] == plan.epsilon() <= 4.0
    assert json.loads((folder / "run" / "run.json").read_text())["gradients"] == "ghost"


def test_a_regression_in_the_unit_of_its_target(capsys, folder):
    found = succeed(capsys, *on_table(folder, "price", *HELD_OUT, "--test", folder / "test.csv"))
    written = json.loads((folder / "run" / "evaluation.json").read_text())
    assert (written["task"], written["examples"]) == ("regression", 60)
    assert found["test_root_mean_squared_error"] == pytest.approx(math.sqrt(written["mean_squared_error"]))
    assert {"mean_squared_error", "mean_absolute_error", "r_squared"} == set(written["intervals"])
    assert 0 < found["test_mean_absolute_error"] <= found["test_root_mean_squared_error"] <= 50
    assert 0 <= found["holdout_root_mean_squared_error"] <= 50
    assert found["test_accuracy"] is None
    line = json.loads((folder / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert line["test_r_squared"] == found["test_r_squared"]
    statement = (folder / "run" / "guarantee.md").read_text()
    assert "mean squared error, mean absolute error and R² on the test set" in statement
    assert "60 further examples" in statement


@pytest.mark.parametrize(("target", "words"), [("good", "Accuracy"), ("price", "RMSE")])
def test_the_summary_shows_the_paid_result_with_its_cost(capsys, folder, target, words):
    code, out, err = train(capsys, *on_table(folder, target, *HELD_OUT))
    assert code == 0, err
    [line] = [line for line in out.splitlines() if "held-out private examples" in line]
    assert words in line
    assert "ε = 1.000 for this release" in line
    assert "No test result" not in out


def test_a_repeated_run_has_the_same_plan_and_other_held_out_rows(capsys, folder):
    succeed(capsys, *on_table(folder, "good", *HELD_OUT))
    succeed(capsys, "--config", folder / "run" / "plan.json", "--out", folder / "again")
    plans = [(folder / name / "plan.json").read_text() for name in ("run", "again")]
    assert plans[0] == plans[1]
    keys = [(folder / name / "division.key").read_text() for name in ("run", "again")]
    assert keys[0] != keys[1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--holdout", "0.2"], "--evaluation-epsilon is None; it must be given with --holdout"),
        (["--evaluation-epsilon", "0.1"], "--holdout is None; it must be given with --evaluation-epsilon"),
        (["--holdout", "1.5", "--evaluation-epsilon", "0.1"], "holdout is 1.5"),
        (["--holdout", "0.2", "--evaluation-epsilon", "9"], "at most the target, 4"),
        (["--holdout", "0.2", "--evaluation-epsilon", "0"], "it must be"),
        (["--class-priors", "0.5,much"], "--class-priors is '0.5,much'"),
        (["--class-priors", "0.2,0.3,0.5"], "2 numbers, one per class"),
        (["--class-priors", "0.5,0.5", "--class-counts-epsilon", "1"], "Choose one of the two"),
        (["--model", "regression-mlp"], "use 'logistic', 'mlp' or 'table'"),
        (["--model", "linear"], "use 'logistic', 'mlp' or 'table'"),
    ],
)
def test_options_that_do_not_fit_end_in_one_line_with_nothing_written(capsys, folder, options, words):
    code, out, err = train(capsys, *on_table(folder, "good", *options))
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.strip().splitlines()) == 1
    assert not (folder / "run").exists()


def test_a_network_for_classes_is_refused_for_a_regression(capsys, folder):
    code, _, err = train(capsys, *on_table(folder, "price", "--model", "logistic"))
    assert code == 2
    assert "use 'linear', 'regression-mlp', 'mlp' or 'table'" in err
    code, _, err = train(capsys, *on_table(folder, "price", "--class-counts-epsilon", "1"))
    assert code == 2
    assert "left out for a regression" in err


def test_public_priors_and_paid_counts_train(capsys, folder):
    for number, options in enumerate((["--class-priors", "0.76,0.24"], ["--class-counts-epsilon", "0.5"])):
        arguments = on_table(folder, "good", *options)
        arguments[arguments.index("--out") + 1] = folder / str(number)
        assert succeed(capsys, *arguments)["epsilon"] <= 4.0
    statement = (folder / "1" / "guarantee.md").read_text()
    assert "Class counts: before the first step" in statement
    history, _, _ = read_history(folder / "1" / "ledger")
    assert len(history.answers["class counts"]) == 2


def test_a_budget_pays_for_the_result_too(capsys, folder):
    with pytest.raises(SystemExit):
        main(["budget", "create", str(folder / "budget"), "--epsilon", "4", "--delta", "1e-5", "--examples", str(ROWS)])
    capsys.readouterr()
    succeed(capsys, *on_table(folder, "good", *HELD_OUT, "--budget", folder / "budget"))
    arguments = on_table(folder, "good", *HELD_OUT, "--budget", folder / "budget")
    arguments[arguments.index("--out") + 1] = folder / "another"
    code, _, err = train(capsys, *arguments)
    assert code != 0
    assert "the budget" in err
    assert not (folder / "another" / "ledger").exists()


def test_a_run_that_is_interrupted_resumes_with_a_single_release(capsys, interrupt_once, folder):
    interrupt_once(2)
    assert train(capsys, *on_table(folder, "good", *HELD_OUT, "--quiet"))[0] == 130
    succeed(capsys, "--resume", folder / "run")
    ledger = folder / "run" / "ledger"
    history, _, _ = read_history(ledger)
    assert list(history.queries) == list(history.answers) == ["holdout"]
    assert ledger.read_bytes().count(b'"record": "query"') == 1
