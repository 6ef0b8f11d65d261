import json

import numpy as np
import pytest
import torch
from asked import refused, succeed, told

import privet
from privet.convex import ConvexPlan
from privet.errors import LedgerError
from privet.ledger import read_history
from privet.runs.verification import verify
from rounding import assert_equal_up_to_rounding


def fit(capsys, *arguments):
    return succeed(capsys, "fit", *arguments)


@pytest.mark.parametrize("mechanism", ["objective", "output"])
def test_a_fit_is_released_evaluated_stated_and_verified(capsys, tmp_path, mechanism):
    out = tmp_path / "run"
    options = ("--data", "digits", "--epsilon", 5, "--delta", 1e-4, "--mechanism", mechanism)
    found = fit(capsys, *options, "--out", out, "--purpose", "to read")
    assert 4.99 < found["epsilon"] <= 5
    assert found["test_accuracy"] > 0.5
    assert json.loads((out / "guarantee.json").read_text())["epsilon"] == found["epsilon"]
    plan = ConvexPlan.from_json((out / "plan.json").read_text())
    assert plan.epsilon() == found["epsilon"]
    assert "5.000, 0.0001)-differential privacy" in told(capsys, "guarantee", out)
    assert "Purpose: to read." in told(capsys, "guarantee", out)
    assert "in the words of whoever ran it: to read" in (out / "model" / "README.md").read_text(encoding="utf-8")
    assert "the weights were released" in told(capsys, "ledger", "verify", out)
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


def test_priors_of_the_schema_make_the_classes_count_alike(capsys, tmp_path):
    generator = np.random.default_rng(0)
    rare = generator.random(9000) < 0.1
    x = generator.normal(rare, 1.0).clip(-4, 4)
    lines = ["x,y", *(f"{value},{label}" for value, label in zip(x, np.where(rare, "ill", "well"), strict=True))]
    for name, rows in (("train", lines[:6001]), ("test", lines[:1] + lines[6001:])):
        (tmp_path / f"{name}.csv").write_text("\n".join(rows) + "\n")
    found = {}
    for priors in ("", "priors = [0.9, 0.1]\n"):
        (tmp_path / "s.toml").write_text(
            f'[target]\ncolumn = "y"\ntask = "classification"\nclasses = ["well", "ill"]\n{priors}\n'
            '[columns]\nx = { kind = "number", lower = -4, upper = 4 }\n'
        )
        options = ("--data", tmp_path / "train.csv", "--schema", tmp_path / "s.toml", "--test", tmp_path / "test.csv")
        options += ("--epsilon", 3, "--radius", 1.5, "--out", tmp_path / f"run{len(found)}")
        found[priors] = told(capsys, "fit", *options)
        verify(options[-1])
    plain, adjusted = (json.loads((tmp_path / f"run{index}" / "evaluation.json").read_text()) for index in range(2))
    assert plain["confusion"][1][1] / sum(plain["confusion"][1]) < 0.3
    assert adjusted["confusion"][1][1] / sum(adjusted["confusion"][1]) > 0.6
    assert all("Always predicting 'well'" in text and "Judge by AUROC and recalls" in text for text in found.values())


def test_a_directory_is_used_once_and_a_ledger_of_another_plan_does_not_verify(capsys, tmp_path, inputs):
    options = ("--data", inputs / "plain.npz", "--classes", 3, "--epsilon", 5, "--out", tmp_path)
    fit(capsys, *options)
    assert "holds a run" in refused(capsys, "fit", *options)
    plan = tmp_path / "plan.json"
    plan.write_text(plan.read_text().replace('"radius": 1.0', '"radius": 2.0'))
    with pytest.raises(LedgerError, match="another plan: radius"):
        verify(tmp_path)
