"""Users, groups and views from the command line: the plan names the unit, and runs can be repeated and resumed."""

import csv
import json
import re

import numpy as np
import pytest
from asked import ask_json, plan_in
from safetensors.torch import load_file

from privet.accounting.privacy_unit import group_unit
from privet.runs import run as runs

EXAMPLES, USERS, SIDE = 240, 60, 14
QUICK = ["--epsilon", "8", "--delta", "1e-5", "--steps", "3", "--quiet", "--json"]
SCHEMA = """
[target]
column = "bigger"
task = "classification"
classes = ["no", "yes"]

[columns]
left = { kind = "number", lower = -3, upper = 3 }
right = { kind = "number", lower = -3, upper = 3 }
who = "user"
"""


def train(capsys, *arguments):
    return ask_json(capsys, "train", *arguments)


def saved(path, **more):
    generator = np.random.default_rng(3)
    x, y = generator.integers(0, 256, (EXAMPLES, SIDE, SIDE), dtype=np.uint8), generator.integers(0, 3, EXAMPLES)
    np.savez(path, x_train=x, y_train=y, **more)
    return path


@pytest.fixture
def images(tmp_path):
    return saved(tmp_path / "images.npz", user_train=np.array([f"user {number % USERS}" for number in range(EXAMPLES)]))


@pytest.fixture
def table(tmp_path):
    generator, path = np.random.default_rng(5), tmp_path / "table.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["left", "who", "right", "bigger"])
        for number in range(EXAMPLES):
            left, right = generator.normal(size=2)
            rows.writerow([left, f"u{number % USERS}", right, "yes" if left > right else "no"])
    path.with_suffix(".toml").write_text(SCHEMA)
    return [path, "--schema", path.with_suffix(".toml")]


@pytest.mark.parametrize(("model", "views"), [("mlp", []), ("cnn", ["--views", 2, "--augment", "flip,shift"])])
def test_users_of_an_array_are_the_unit_and_plan_json_repeats_the_run(request, capsys, tmp_path, images, model, views):
    options = ["--model", model, "--user-column", "user_train", "--user-cap", 3, "--batch-size", 12, *views]
    code, found, error = train(capsys, "--data", images, "--classes", 3, *options, *QUICK, "--out", tmp_path / "run")
    assert code == 0, error
    plan = plan_in(tmp_path / "run")
    assert (plan.unit, plan.examples, plan.sampling.batch_size) == ("one user", USERS, 12)
    assert found["epsilon"] <= 8
    assert json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))["gradients"] == "ghost"
    assert f"of {USERS} users" in (tmp_path / "run" / "guarantee.md").read_text(encoding="utf-8")
    again = request.getfixturevalue("prepared")("--config", tmp_path / "run" / "plan.json")
    assert again == (runs.read_setup(tmp_path / "run"), plan)
    assert not again[0].defaults  # a repetition is given every setting


def test_users_of_a_table_are_the_unit_and_not_a_feature(capsys, tmp_path, table):
    options = ["--user-cap", 10, "--batch-size", 20, "--model", "mlp"]
    code, found, error = train(capsys, "--data", *table, *options, *QUICK, "--out", tmp_path / "run")
    assert code == 0, error
    plan = plan_in(tmp_path / "run")
    assert (plan.unit, plan.examples) == ("one user", USERS)
    assert found["test_accuracy"] is None
    assert load_file(tmp_path / "run" / "model" / "model.safetensors")["hidden1.weight"].shape[1] == 2


def test_groups_of_examples_are_the_unit(capsys, tmp_path):
    options = ["--group-size", 4, "--adjacency", "replace-one", "--views", 2, "--augment", "shift"]
    code, _, error = train(
        capsys, "--data", saved(tmp_path / "plain.npz"), "--classes", 3, *options, *QUICK, "--out", tmp_path / "run"
    )
    assert code == 0, error
    plan = plan_in(tmp_path / "run")
    assert (plan.unit, plan.examples) == (group_unit(4), EXAMPLES // 4)


def test_an_interrupted_run_on_users_and_views_resumes(capsys, tmp_path, images, interrupt_once):
    options = ["--user-column", "user_train", "--user-cap", 2, "--views", 2, "--augment", "flip", "--model", "logistic"]
    interrupt_once(2)
    code, _, _ = train(capsys, "--data", images, "--classes", 3, *options, *QUICK, "--out", tmp_path / "run")
    assert code == 130
    code, found, error = train(capsys, "--resume", tmp_path / "run", "--quiet", "--json")
    assert code == 0, error
    assert found["steps"] == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--user-column", "user_train"], "--user-cap is None; it must be given for data with users"),
        ([], r"--data is .*or name the array of users"),
        (["--user-column", "user_train", "--user-cap", 2, "--views", 3], "--augment is None; it must be given with views"),
        (["--user-column", "user_train", "--user-cap", 2, "--augment", "flip"], "--views is None; it must be given with augment"),
        (["--user-column", "user_train", "--user-cap", 0], "--user-cap is 0"),
        (
            ["--user-column", "user_train", "--user-cap", 2, "--group-size", 2],
            "--group-size is 2; it must be left out with --user-cap",
        ),
        (["--user-column", "x_train", "--user-cap", 2], "--user-column is 'x_train'; it must be an array other than inputs and"),
        (["--user-column", "who", "--user-cap", 2], "--user-column is 'who'.* user_train"),
        (["--user-column", "user_train", "--user-cap", 2, "--views", 2, "--augment", "melt"], "--augment is 'melt'.*flip"),
        (["--user-column", "user_train", "--user-cap", 2, "--adjacency", "all"], "--adjacency is 'all'"),
    ],
    ids=str,
)
def test_contradictory_options_are_refused_in_one_line(capsys, tmp_path, images, options, words):
    code, _, error = train(capsys, "--data", images, "--classes", 3, *options, *QUICK, "--out", tmp_path / "run")
    assert code == 2
    assert len(error.strip().splitlines()) == 1
    assert re.search(words, error)


def test_groups_require_replace_one_adjacency(capsys, tmp_path):
    code, _, error = train(
        capsys, "--data", saved(tmp_path / "plain.npz"), "--classes", 3, "--group-size", 4, *QUICK, "--out", tmp_path / "run"
    )
    assert (code, "'replace-one' for the unit" in error) == (2, True)


def test_views_require_images(capsys, tmp_path, table):
    options = ["--user-cap", 2, "--views", 2, "--augment", "flip"]
    code, _, error = train(capsys, "--data", *table, *options, *QUICK, "--out", tmp_path / "run")
    assert (code, "augment is" in error) == (2, True)
