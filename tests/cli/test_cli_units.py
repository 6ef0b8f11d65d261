import json

import pytest
from asked import ask, plan_in, succeed
from safetensors.torch import load_file

from privet.accounting.privacy_unit import group_unit
from privet.runs import run as runs

QUICK = ["--epsilon", "8", "--delta", "1e-5", "--steps", "3", "--quiet"]


@pytest.fixture
def users(inputs):
    return ["--data", inputs / "images.npz", "--classes", 3, "--user-column", "user_train"]


@pytest.mark.parametrize(("model", "views"), [("mlp", []), ("cnn", ["--views", 2, "--augment", "flip,shift"])])
def test_users_of_an_array_are_the_unit_and_plan_json_repeats_the_run(request, capsys, tmp_path, users, model, views):
    options = ["--model", model, "--user-cap", 3, "--batch-size", 12, *views]
    found = succeed(capsys, "train", *users, *options, *QUICK, "--out", tmp_path / "run")
    plan = plan_in(tmp_path / "run")
    assert (plan.unit, plan.examples, plan.sampling.batch_size) == ("one user", 60, 12)
    assert found["epsilon"] <= 8
    assert json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))["gradients"] == "ghost"
    assert "of 60 users" in (tmp_path / "run" / "guarantee.md").read_text(encoding="utf-8")
    again = request.getfixturevalue("prepared")("--config", tmp_path / "run" / "plan.json")
    assert again == (runs.read_setup(tmp_path / "run"), plan)
    assert not again[0].defaults  # a repetition is given every setting


def test_users_of_a_table_are_the_unit_and_not_a_feature(capsys, tmp_path, inputs):
    options = ["--schema", inputs / "users.toml", "--user-cap", 10, "--batch-size", 20, "--model", "mlp"]
    found = succeed(capsys, "train", "--data", inputs / "private.csv", *options, *QUICK, "--out", tmp_path / "run")
    plan = plan_in(tmp_path / "run")
    assert (plan.unit, plan.examples) == ("one user", 30)
    assert found["test_accuracy"] is None
    assert load_file(tmp_path / "run" / "model" / "model.safetensors")["hidden1.weight"].shape[1] == 2


def test_groups_of_examples_are_the_unit(capsys, tmp_path, inputs):
    options = ["--group-size", 4, "--adjacency", "replace-one", "--views", 2, "--augment", "shift"]
    data = ["--data", inputs / "plain.npz", "--classes", 3]
    succeed(capsys, "train", *data, *options, *QUICK, "--out", tmp_path / "run")
    plan = plan_in(tmp_path / "run")
    assert (plan.unit, plan.examples) == (group_unit(4), 240 // 4)


def test_an_interrupted_run_on_users_and_views_resumes(capsys, tmp_path, users, interrupt_once):
    options = ["--user-cap", 2, "--views", 2, "--augment", "flip", "--model", "logistic"]
    interrupt_once(2)
    assert ask(capsys, "train", *users, *options, *QUICK, "--out", tmp_path / "run")[0] == 130
    assert succeed(capsys, "train", "--resume", tmp_path / "run", "--quiet")["steps"] == 3
