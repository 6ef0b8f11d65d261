import json

import pytest
import torch
from asked import ask

from privet import runs
from privet.cli._verbs import plan as verb
from privet.runs.config import Setup
from privet.training.loop import Loop
from privet.tuning.feasibility import format_signal


def rows(capsys, *words):
    code, out, error = ask(capsys, "plan", *words, "--json")
    assert code == 0, error
    return json.loads(out)["rows"]


def test_a_data_set_of_the_catalogue_is_planned_without_reading_it(capsys, monkeypatch):
    monkeypatch.setattr("privet.runs.config.load_for_run", None)  # what is not called cannot fail
    found = rows(capsys, "--data", "mnist", "--epsilon", 3, "--model", "logistic", "--batch-size", 256, "--steps", 10)
    assert [(row["examples"], row["parameters"], row["batch_size"], row["steps"]) for row in found] == [(60_000, 7850, 256, 10)]
    assert found[0]["seconds"] > 0


def test_noise_and_signal_are_those_of_the_run(capsys, tmp_path):
    options = ("--data", "digits", "--model", "logistic", "--epsilon", 2, "--delta", 1e-5, "--batch-size", 200, "--steps", 3)
    (planned,) = rows(capsys, *options)
    code, _, error = ask(capsys, "train", *options, "--out", tmp_path / "run")
    assert code == 0, error
    made = json.loads((tmp_path / "run" / "plan.json").read_text(encoding="utf-8"))
    assert made["noise"]["multiplier"] == pytest.approx(planned["noise_multiplier"])
    line = next(line for line in error.splitlines() if line.startswith("Plan: "))
    assert f"{planned['parameters']:,} parameters" in line
    assert f"signal at most {format_signal(planned['signal'])} standard deviations" in line


def test_a_row_for_every_epsilon(capsys):
    found = rows(capsys, "--data", "digits", "--model", "logistic", "--steps", 10)
    assert [row["epsilon"] for row in found] == pytest.approx([0.5, 1.0, 2.0, 3.0, 4.0, 8.0], rel=1e-4)
    assert sorted(row["signal"] for row in found) == [row["signal"] for row in found]


def test_without_data_there_is_no_time(capsys):
    row, = rows(
        capsys, "--examples", 50_000, "--parameters", 10**6, "--batch-size", 500, "--epochs", 2, "--noise-multiplier", 1.5
    )  # fmt: skip
    assert (row["steps"], row["seconds"], row["model"]) == (200, None, None)
    assert row["signal"] == pytest.approx(500 * 200**0.5 / 1.5)


def test_a_regression_and_full_batches_are_planned(capsys, tmp_path):
    table, schema = tmp_path / "rows.csv", tmp_path / "schema.toml"
    table.write_text("size,price\n" + "".join(f"{number / 60},{number}\n" for number in range(60)), encoding="utf-8")
    schema.write_text(
        '[target]\ncolumn = "price"\ntask = "regression"\nlower = 0\nupper = 60\n\n'
        '[columns]\nsize = {kind = "number", lower = 0, upper = 1}\n',
        encoding="utf-8",
    )
    row, = rows(
        capsys, "--data", table, "--schema", schema, "--sampling", "full-batch", "--steps", 2, "--epsilon", 1, "--model", "linear"
    )  # fmt: skip
    assert row["batch_size"] == row["examples"] == 60
    assert row["efficiency"] == pytest.approx(1.0, abs=1e-3)


def test_groups_are_the_unit(capsys):
    row, = rows(
        capsys, "--data", "digits", "--model", "logistic", "--steps", 2, "--epsilon", 1, "--group-size", 4, "--adjacency",
        "replace-one", "--batch-size", 50,
    )  # fmt: skip
    assert row["examples"] == 360


def test_the_table_says_what_its_columns_mean_and_warns_once(capsys):
    code, out, error = ask(
        capsys, "plan", "--data", "digits", "--model", "logistic", "--epsilon", "1e-4", "--epsilon", 3, "--delta", 6e-4,
        "--steps", 9,
    )  # fmt: skip
    assert (code, error) == (0, "")
    assert "digits: 1,437 examples, δ = 0.0006 (add-remove), poisson sampling" in out
    assert "Signal: " in out
    assert out.count("Warning (ε = 0.0001): ε = 0.0001 is hopeless") == 1
    assert out.count("Warning: δ = 0.0006") == 1


def test_training_warns_of_a_hopeless_epsilon_before_its_first_step_and_in_its_statement(capsys, tmp_path, monkeypatch):
    announced = []
    take = Loop._take

    def steps(training, update):
        announced.append(capsys.readouterr().err)
        yield from take(training, update)

    monkeypatch.setattr(Loop, "_take", steps)
    options = ("--data", "digits", "--model", "logistic", "--epsilon", "1e-4", "--steps", 2, "--batch-size", 1000, "--quiet")
    code, out, _ = ask(capsys, "train", *options, "--out", tmp_path / "run", "--full")
    assert code == 0
    assert len(announced[0].splitlines()) == 1
    assert announced[0].startswith("Warning: ε = 0.0001 is hopeless for 1,437 examples")
    assert announced[0].strip().removeprefix("Warning: ") in " ".join(out.split())
    assert "hopeless" in (tmp_path / "run" / "guarantee.json").read_text(encoding="utf-8")


def test_what_is_foreseen_reads_no_data():
    dataset = verb._find_in_catalogue(verb.PlanOptions(data="digits"))
    setup = Setup(data="digits", model="logistic", learning_rate=1.0)
    model = setup.build_model(dataset)
    dataset.train.tensors[0].data = torch.full_like(dataset.train.tensors[0], float("nan"))
    given = verb.PlanOptions(noise_multiplier=1.0, steps=5, batch_size=100)
    planned = verb._plan(given, dataset, "logistic", 1437, None)
    assert runs.run.foresee(setup, planned, dataset, model).signal == pytest.approx(100 * 5**0.5)
