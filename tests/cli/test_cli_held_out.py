import json
import math

import numpy as np
import pytest
from asked import plan_in, succeed, told

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
    return succeed(capsys, "train", *arguments, "--quiet")


def on_table(folder, target, *more):
    data = ["--data", folder / "own.csv", "--schema", folder / f"{target}.toml"]
    return ["--out", folder / "run", *data, *QUICK, *more]


HELD_OUT = ["--holdout", "0.2", "--evaluation-epsilon", "1"]


def test_a_classification_with_a_paid_result(capsys, folder):
    found = train(capsys, *on_table(folder, "good", *HELD_OUT))
    low, high = found["holdout_intervals"]["accuracy"]
    assert 0 <= low <= found["holdout_accuracy"] <= high <= 1
    assert (found["holdout_examples"], found["test_accuracy"]) == (60, None)
    assert 0.99 < found["holdout_epsilon"] <= 1.0
    plan = plan_in(folder / "run")
    assert (plan.examples, plan.holdout.examples) == (240, 60)
    assert found["epsilon"] == plan.epsilon() <= 4.0
    assert json.loads((folder / "run" / "run.json").read_text())["gradients"] == "ghost"


def test_a_regression_in_the_unit_of_its_target(capsys, folder):
    found = train(capsys, *on_table(folder, "price", *HELD_OUT, "--test", folder / "test.csv"))
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
    out = told(capsys, "train", *on_table(folder, target, *HELD_OUT))
    [line] = [line for line in out.splitlines() if "held-out private examples" in line]
    assert words in line
    assert "ε = 1.000 for this release" in line
    assert "No test result" not in out


def test_a_repeated_run_has_the_same_plan_and_other_held_out_rows(capsys, folder):
    train(capsys, *on_table(folder, "good", *HELD_OUT))
    train(capsys, "--config", folder / "run" / "plan.json", "--out", folder / "again")
    plans = [(folder / name / "plan.json").read_text() for name in ("run", "again")]
    assert plans[0] == plans[1]
    keys = [(folder / name / "division.key").read_text() for name in ("run", "again")]
    assert keys[0] != keys[1]


def test_public_priors_and_paid_counts_train(capsys, folder):
    for number, options in enumerate((["--class-priors", "0.76,0.24"], ["--class-counts-epsilon", "0.5"])):
        assert train(capsys, *on_table(folder, "good", *options, "--out", folder / str(number)))["epsilon"] <= 4.0
    statement = (folder / "1" / "guarantee.md").read_text()
    assert "Class counts: before the first step" in statement
    history, _, _ = read_history(folder / "1" / "ledger")
    assert len(history.answers["class counts"]) == 2
