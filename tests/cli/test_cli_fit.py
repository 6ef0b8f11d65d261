import json

import numpy as np
import pytest
import torch
from asked import ask, succeed

import privet
from privet.convex import ConvexPlan
from privet.errors import LedgerError
from privet.ledger import read_history
from privet.runs.verification import verify
from rounding import assert_equal_up_to_rounding


def run(capsys, *arguments):
    code, out, error = ask(capsys, *arguments)
    assert code == 0, error
    return out


def fit(capsys, *arguments):
    return succeed(capsys, "fit", *arguments)


def refusal(capsys, *arguments):
    code, _, error = ask(capsys, "fit", *arguments)
    assert code == 2
    return error


@pytest.mark.parametrize("mechanism", ["objective", "output"])
def test_a_fit_is_released_evaluated_stated_and_verified(capsys, tmp_path, mechanism):
    out = tmp_path / "run"
    found = fit(capsys, "--data", "digits", "--epsilon", 5, "--delta", 1e-4, "--mechanism", mechanism, "--out", out)
    assert 4.99 < found["epsilon"] <= 5
    assert found["test_accuracy"] > 0.5
    assert json.loads((out / "guarantee.json").read_text())["epsilon"] == found["epsilon"]
    plan = ConvexPlan.from_json((out / "plan.json").read_text())
    assert plan.epsilon() == found["epsilon"]
    assert "5.000, 0.0001)-differential privacy" in run(capsys, "guarantee", out)
    assert "the weights were released" in run(capsys, "ledger", "verify", out)
    # The model in the folder is the release: linear on bounded rows.
    model = privet.load(out)
    weights = torch.tensor(read_history(out / "ledger")[0].answers["solution"]).view(plan.shape)
    assert_equal_up_to_rounding(model.module.output.weight, weights)


def test_a_regression_is_fitted_from_a_table(capsys, tmp_path):
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, (4000, 2))
    lines = ["a,b,y", *(f"{a},{b},{3 * a - b}" for a, b in x)]
    for name, rows in (("train", lines[:1] + lines[501:]), ("test", lines[:501])):
        (tmp_path / f"{name}.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "s.toml").write_text(
        '[target]\ncolumn = "y"\ntask = "regression"\nlower = -4\nupper = 4\n\n[columns]\n'
        'a = { kind = "number", lower = -1, upper = 1 }\nb = { kind = "number", lower = -1, upper = 1 }\n'
    )
    options = ("--data", tmp_path / "train.csv", "--schema", tmp_path / "s.toml", "--test", tmp_path / "test.csv")
    found = fit(capsys, *options, "--epsilon", 2, "--radius", 2, "--out", tmp_path / "run")
    assert found["test_r_squared"] > 0.9
    predicted = privet.load(tmp_path / "run").predict({"a": [1.0, -1.0], "b": [0.0, 0.0]})
    assert predicted[0] > 1 > -1 > predicted[1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--epsilon 1", "--out is None"),
        ("--epsilon 1 --noise-multiplier 2 --out {}/x", "Choose one of the two"),
        ("--out {}/x", "--epsilon is None; it must be given. Set a budget"),
        ("--epsilon 1 --out {}/x --adjacency replace-one", "--adjacency is 'replace-one'"),
        ("--epsilon 1 --out {}/x --regularisation 0", "--regularisation is 0.0; it must be greater than 0"),
        ("--epsilon 1 --out {}/x --regularisation 0.01", "--regularisation is 0.01; it must be at least"),
        ("--epsilon 1 --out {}/x --mechanism gradient", "--mechanism is 'gradient'"),
        ("--epsilon 1 --out {}/x --delta 0.5", "--delta is 0.5"),
        ("--epsilon 1 --out {}/x --radius -1", "--radius is -1.0"),
    ],
)
def test_what_cannot_be_fitted_is_refused_in_one_line_and_writes_nothing(capsys, tmp_path, options, words):
    error = refusal(capsys, "--data", "digits", *options.format(tmp_path).split())
    assert words in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_directory_is_used_once(capsys, tmp_path):
    options = ("--data", "digits", "--epsilon", 5, "--out", tmp_path / "run")
    fit(capsys, *options)
    assert "holds a run" in refusal(capsys, *options)


def test_a_ledger_of_another_plan_does_not_verify(capsys, tmp_path):
    fit(capsys, "--data", "digits", "--epsilon", 5, "--out", tmp_path)
    plan = tmp_path / "plan.json"
    plan.write_text(plan.read_text().replace('"radius": 1.0', '"radius": 2.0'))
    with pytest.raises(LedgerError, match="another plan: radius"):
        verify(tmp_path)
