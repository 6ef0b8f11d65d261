"""`privet federate`: users of a file are the clients, every round is in the log, and a lost round of a killed run is not free."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from asked import ask_json, plan_in
from safetensors.torch import load_file

from privet.cli import main
from privet.clipping import AdaptiveQuantile, Flat, Layerwise, Normalize
from privet.federated import Simulation
from privet.runs import run as runs
from privet.runs.federated_run import FederatedSetup
from privet.sampling import FullBatch, Poisson
from rounding import assert_equal_up_to_rounding

USERS, ROUNDS = 30, 6
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
QUICK = ["--model", "logistic", "--rounds", ROUNDS, "--user-cap", 4, "--delta", "1e-3", "--quiet", "--json"]


def federate(capsys, *arguments):
    return ask_json(capsys, "federate", *arguments)


def write_table(path, users, each=5):
    generator = np.random.default_rng(5)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["left", "who", "right", "bigger"])
        for number in range(users * each):
            left, right = generator.normal(size=2)
            rows.writerow([left, f"u{number % users}", right, "yes" if left > right else "no"])
    return path


@pytest.fixture
def table(tmp_path):
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return ["--data", write_table(tmp_path / "table.csv", USERS), "--schema", tmp_path / "schema.toml"]


def lines_of(directory):
    joined = {}
    for line in (directory / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        joined.setdefault(json.loads(line)["step"], {}).update(json.loads(line))
    return joined


def test_users_of_a_table_are_the_clients(capsys, tmp_path, table):
    test = write_table(tmp_path / "test.csv", 20)
    code, found, error = federate(
        capsys, *table, "--test", test, *QUICK, "--epsilon", 8, "--cohort", 15, "--out", tmp_path / "run"
    )
    assert code == 0, error
    plan = plan_in(tmp_path / "run")
    assert (plan.unit, plan.examples, plan.sampling, plan.total_steps) == ("one user", USERS, Poisson(15.0), ROUNDS)
    assert (found["epsilon"], found["steps"]) == (plan.epsilon(), ROUNDS)
    assert 7 < found["epsilon"] <= 8
    assert 0 <= found["test_accuracy"] <= 1
    assert found["test_examples"] == 100
    assert load_file(tmp_path / "run" / "model" / "model.safetensors")["output.weight"].shape == (2, 2)
    statement = (tmp_path / "run" / "guarantee.md").read_text(encoding="utf-8")
    assert "Trusted: the server and the transport" in statement
    assert "which is assumed public" in statement
    with pytest.raises(SystemExit) as stop:
        main(["ledger", "verify", str(tmp_path / "run")])
    assert stop.value.code == 0
    assert f"{ROUNDS} of {ROUNDS} steps count" in capsys.readouterr().out


def test_the_log_has_the_epsilon_of_a_user_after_every_round(capsys, tmp_path, table):
    assert federate(capsys, *table, *QUICK, "--noise-multiplier", 2, "--rounds", 45, "--out", tmp_path / "run")[0] == 0
    plan, lines = plan_in(tmp_path / "run"), lines_of(tmp_path / "run")
    assert sorted(lines) == list(range(1, 46))
    for number in (1, 17, 45):
        assert lines[number]["epsilon"] == plan.epsilon(steps=number)
    # All clients take part in every round, so nothing is amplified by sampling.
    assert lines[45]["epsilon"] == pytest.approx(replace(plan, sampling=FullBatch()).epsilon(), rel=1e-3)


def test_communication_is_that_of_the_expected_cohort(capsys, tmp_path, table):
    code, found, error = federate(
        capsys, *table, *QUICK, "--epsilon", 8, "--cohort", 10, "--sparsify", 0.9, "--refresh", 3, "--out", tmp_path / "run"
    )
    assert code == 0, error
    sent, size = found["communication"], 4 * 6  # two weights and a bias of two classes
    assert json.loads((tmp_path / "run" / "communication.json").read_text()) == sent
    assert (sent["client"]["dense_up"], sent["client"]["down"]) == (size, size + 12)
    assert sent["client"]["up"] < size
    assert sent["run"]["dense_up"] == 10 * ROUNDS * size
    last = lines_of(tmp_path / "run")[ROUNDS]
    assert last["communicated"] == sent["run"]["up"] + sent["run"]["down"]
    assert last["communicated_dense"] == sent["run"]["dense_up"] + sent["run"]["dense_down"]


def test_an_interrupted_run_goes_on_and_counts_the_round_that_was_lost(capsys, tmp_path, table, monkeypatch):
    gather = Simulation.gather

    def gather_or_stop(population, told, cohort):
        """Stop in the third round, when it has been paid for and its clients have been asked."""
        if told.number == 3:
            raise KeyboardInterrupt
        return gather(population, told, cohort)

    with monkeypatch.context() as patch:
        patch.setattr(Simulation, "gather", gather_or_stop)
        code, _, error = federate(capsys, *table, *QUICK, "--epsilon", 8, "--out", tmp_path / "run")
    assert code == 130
    assert f"privet federate --resume {tmp_path / 'run'}" in error
    with pytest.raises(SystemExit):
        main(["train", "--resume", str(tmp_path / "run")])
    assert f"privet federate --resume {tmp_path / 'run'}" in capsys.readouterr().err
    assert runs.state(tmp_path / "run") == "unfinished"
    with pytest.raises(SystemExit):
        main(["ledger", "verify", str(tmp_path / "run"), "--json"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["steps_spent"] == 3  # the third has no result, and counts
    code, found, error = federate(capsys, "--resume", tmp_path / "run", "--quiet", "--json")
    assert code == 0, error
    assert set(lines_of(tmp_path / "run")) == {1, 2, 4, 5, 6}
    assert (found["steps"], found["epsilon"]) == (ROUNDS, plan_in(tmp_path / "run").epsilon())
    code, _, error = federate(capsys, "--resume", tmp_path / "run")
    assert code == 2
    assert "already complete" in error


def test_options_reach_plan_server_and_clients(prepared, table):
    setup, plan = prepared(
        *table, *QUICK, "--epsilon", 8, "--style", "parameter", "--adaptive-quantile", 0.5,
        "--bound", 0.3, "--server-optimizer", "momentum", "--server-learning-rate", 0.2, "--local-steps", 3,
        "--local-batch-size", 2, "--local-learning-rate", 0.05, "--proximal", 0.01, "--full-weight", 3, verb="federate",
    )  # fmt: skip
    assert plan.clipping == AdaptiveQuantile(Layerwise(Flat(0.3), by="parameter"), quantile=0.5)
    assert (setup.optimizer, setup.momentum, setup.learning_rate) == ("sgd", 0.9, 0.2)
    local = setup.local
    assert (local.learning_rate, local.steps, local.batch_size, local.proximal, local.full_weight) == (0.05, 3, 2, 0.01, 3)


def test_fed_sgd_sends_gradients(capsys, tmp_path, table):
    code, _, error = federate(capsys, *table, *QUICK, "--epsilon", 8, "--fed-sgd", "--out", tmp_path / "run")
    assert code == 0, error
    local = runs.read_setup(tmp_path / "run", FederatedSetup).local
    assert (local.learning_rate, local.steps, local.proximal) == (1.0, 1, 0.0)


def test_several_processes_train_the_same_clients(capsys, tmp_path, table):
    weights = []
    for processes in (1, 2):
        out = tmp_path / str(processes)
        code, _, error = federate(
            capsys, *table, *QUICK, "--noise-multiplier", 0, "--user-cap", 5, "--processes", processes, "--out", out
        )
        assert code == 0, error
        weights.append(load_file(out / "model" / "model.safetensors")["output.weight"])
    assert_equal_up_to_rounding(*weights)


def test_users_of_an_array_are_the_clients(prepared, tmp_path):
    generator = np.random.default_rng(3)
    x, y = generator.normal(size=(90, 4)).astype(np.float32), generator.integers(0, 3, 90)
    np.savez(tmp_path / "arrays.npz", x_train=x, y_train=y, user_train=np.arange(90) % USERS)
    known = ["--data", tmp_path / "arrays.npz", "--classes", 3, "--user-column", "user_train"]
    assert prepared(*known, *QUICK, "--epsilon", 8, verb="federate")[1].examples == USERS


def test_what_cannot_be_is_refused_in_one_line(capsys, tmp_path, table):
    (tmp_path / "plain.toml").write_text(SCHEMA.replace('who = "user"\n', ""))
    cases = {
        "--data is None": [],
        "--epsilon is None": [*table, "--user-cap", 4],
        "--user-cap is None": [*table, "--epsilon", 8],
        "--proximal is 0.1": [*table, *QUICK, "--epsilon", 8, "--fed-sgd", "--proximal", 0.1],
        "--local-learning-rate is -1": [*table, *QUICK, "--epsilon", 8, "--local-learning-rate", -1],
        "--cohort is 31": [*table, *QUICK, "--epsilon", 8, "--cohort", 31],
        "--server-optimizer is 'lion'": [*table, *QUICK, "--epsilon", 8, "--server-optimizer", "lion"],
        "data with users": [*table[:2], "--schema", tmp_path / "plain.toml", "--epsilon", 8, "--delta", 1e-3],
    }
    for words, arguments in cases.items():
        code, _, error = federate(capsys, *arguments, "--out", tmp_path / "run")
        assert (code, error.count("\n")) == (2, 1), error
        assert words in error
        assert not (tmp_path / "run").exists()


def test_options_and_parts_come_from_a_file(prepared, tmp_path, table):
    config = tmp_path / "run.toml"
    config.write_text('epsilon = 8\ncohort = 15\nlocal-steps = 2\nclipping = {kind = "Normalize", bound = 0.4}\n')
    setup, plan = prepared(*table, *QUICK, "--config", config, verb="federate")
    assert (plan.clipping, plan.sampling, setup.local_steps) == (Normalize(0.4), Poisson(15.0), 2)
    assert 7 < plan.epsilon() <= 8


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("batch-size = 5", "batch_size"),
        ('clipping = {kind = "Flat", bound = 0.4}\nbound = 0.2', "--bound"),
        ('momentum = {kind = "Outer", factor = 0.9}', "momentum"),
        ('[plan]\nexamples = 30\nsteps = 3\ndelta = 1e-3\nsampling = {kind = "FullBatch"}\n'
         'clipping = {kind = "Flat", bound = 1}', "a plan"),
    ],
)  # fmt: skip
def test_a_file_with_what_a_federated_run_does_not_take_is_refused(content, message, capsys, tmp_path, table):
    (tmp_path / "run.toml").write_text(content)
    code, _, error = federate(
        capsys, *table, *QUICK, "--epsilon", 8, "--config", tmp_path / "run.toml", "--out", tmp_path / "run"
    )
    assert code == 2
    assert message in error
    assert not (tmp_path / "run" / "ledger").exists()


def test_the_schema_of_a_configuration_file_has_the_options_of_the_command(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["federate", "--config-schema"])
    found = json.loads(capsys.readouterr().out)
    assert stop.value.code == 0
    assert found["title"] == "Configuration of privet federate"
    assert {"rounds", "cohort", "clipping", "budget-file"} <= found["properties"].keys()
    assert "plan" not in found["properties"]


def create_budget(capsys, file, data):
    with pytest.raises(SystemExit):
        main(["budget", "create", str(file), "--epsilon", "2", "--delta", "1e-3", "--data", str(data),
              "--examples", str(USERS), "--unit", "one user"])  # fmt: skip
    assert not capsys.readouterr().err
    return ["--budget", file]


def test_a_budget_pays_for_the_rounds(capsys, tmp_path, table):
    paid = create_budget(capsys, tmp_path / "budget", table[1])
    code, _, error = federate(capsys, *table, *QUICK, "--epsilon", 1, *paid, "--out", tmp_path / "a")
    assert code == 0, error
    code, _, error = federate(capsys, *table, *QUICK, "--epsilon", 1.9, *paid, "--out", tmp_path / "b")
    assert code == 2
    assert "the budget" in error
