"""`privet federate`: users of a file are the clients, every round is in the log, and a lost round of a killed run is not free."""

import json
import math
import random
from dataclasses import replace

import pytest
from asked import ask, plan_in, refused, succeed, told
from safetensors.torch import load_file

from privet.clipping import AdaptiveQuantile, Flat, Layerwise, Normalize
from privet.federated import LocalSteps, Simulation
from privet.runs import run as runs
from privet.runs.federated_run import FederatedSetup
from privet.sampling import FullBatch, Poisson
from rounding import assert_equal_up_to_rounding

USERS, ROUNDS = 30, 6
QUICK = ["--model", "logistic", "--rounds", ROUNDS, "--user-cap", 4, "--delta", "1e-3", "--quiet"]


def federate(capsys, *arguments):
    return succeed(capsys, "federate", *arguments)


@pytest.fixture
def table(inputs):
    return ["--data", inputs / "private.csv", "--schema", inputs / "users.toml"]


def lines_of(directory):
    joined = {}
    for line in (directory / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        joined.setdefault(json.loads(line)["step"], {}).update(json.loads(line))
    return joined


def test_users_of_a_table_are_the_clients(capsys, tmp_path, table, inputs):
    options = ("--test", inputs / "public.csv", "--epsilon", 8, "--cohort", 15)
    found = federate(capsys, *table, *QUICK, *options, "--out", tmp_path / "run")
    plan = plan_in(tmp_path / "run")
    assert (plan.unit, plan.examples, plan.sampling, plan.total_steps) == ("one user", USERS, Poisson(15.0), ROUNDS)
    assert (found["epsilon"], found["steps"]) == (plan.epsilon(), ROUNDS)
    assert 7 < found["epsilon"] <= 8
    assert 0 <= found["test_accuracy"] <= 1
    assert found["test_examples"] == 40
    assert load_file(tmp_path / "run" / "model" / "model.safetensors")["output.weight"].shape == (2, 2)
    statement = (tmp_path / "run" / "guarantee.md").read_text(encoding="utf-8")
    assert "Trusted: the server and the transport" in statement
    assert "which is assumed public" in statement
    assert f"{ROUNDS} of {ROUNDS} steps count" in told(capsys, "ledger", "verify", tmp_path / "run")


def test_the_log_has_the_epsilon_of_a_user_after_every_round(capsys, tmp_path, table):
    federate(capsys, *table, *QUICK, "--noise-multiplier", 2, "--rounds", 45, "--out", tmp_path / "run")
    plan, lines = plan_in(tmp_path / "run"), lines_of(tmp_path / "run")
    assert sorted(lines) == list(range(1, 46))
    for number in (1, 17, 45):
        assert lines[number]["epsilon"] == plan.epsilon(steps=number)
    # All clients take part in every round, so nothing is amplified by sampling.
    assert lines[45]["epsilon"] == pytest.approx(replace(plan, sampling=FullBatch()).epsilon(), rel=1e-3)


def test_communication_is_that_of_the_expected_cohort(capsys, tmp_path, table):
    options = ("--epsilon", 8, "--cohort", 10, "--sparsify", 0.9, "--refresh", 3)
    found = federate(capsys, *table, *QUICK, *options, "--out", tmp_path / "run")
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
        code, _, error = ask(capsys, "federate", *table, *QUICK, "--epsilon", 8, "--out", tmp_path / "run")
    assert code == 130
    again = f"privet federate --resume {tmp_path / 'run'}"
    assert again in error
    assert again in refused(capsys, "train", "--resume", tmp_path / "run")
    assert runs.state(tmp_path / "run") == "unfinished"
    # The third round has no result, and counts.
    assert succeed(capsys, "ledger", "verify", tmp_path / "run")["steps_spent"] == 3
    found = federate(capsys, "--resume", tmp_path / "run", "--quiet")
    assert set(lines_of(tmp_path / "run")) == {1, 2, 4, 5, 6}
    assert (found["steps"], found["epsilon"]) == (ROUNDS, plan_in(tmp_path / "run").epsilon())
    assert "already complete" in refused(capsys, "federate", "--resume", tmp_path / "run")


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


def test_what_is_left_out_is_chosen_as_for_training_with_users(prepared, table):
    known = (*table, "--user-cap", 4, "--epsilon", 8, "--delta", "1e-3")
    (central, central_plan), (setup, plan) = (prepared(*known, verb=verb) for verb in ("train", "federate"))
    assert plan == central_plan
    settings = ("model", "optimizer", "momentum", "learning_rate", "physical_batch_size")
    assert [getattr(setup, name) for name in settings] == [getattr(central, name) for name in settings]
    assert setup.local == LocalSteps.fed_sgd()
    names = {"batch_size": "cohort", "steps": "rounds", "learning_rate": "server_learning_rate", "momentum": "server_optimizer"}
    assert setup.defaults.keys() == {names.get(name, name) for name in central.defaults} | {"local_steps", "local_learning_rate"}


@pytest.mark.parametrize("local", [(1, 0.05), (4, 0.25), (3, 2.0)])
def test_the_bound_follows_the_local_steps_and_the_server_rate_the_bound(prepared, table, local):
    known = (*table, "--user-cap", 4, "--epsilon", 8, "--delta", "1e-3", "--cohort", 2)
    usual, plan = prepared(*known, verb="federate")
    assert plan.total_steps == 10 * USERS / 2  # a client takes part about ten times
    other, scaled = prepared(*known, "--local-steps", local[0], "--local-learning-rate", local[1], verb="federate")
    assert scaled.clipping.bound == pytest.approx(plan.clipping.bound * math.prod(local))
    assert other.learning_rate * scaled.clipping.bound == pytest.approx(usual.learning_rate * plan.clipping.bound)


@pytest.fixture(scope="module")
def moods(tmp_path_factory):
    """Options for a table of 400 users' texts, of which about three in five have one of three moods, and public test data."""
    folder, generator = tmp_path_factory.mktemp("moods"), random.Random(3)
    words, filler = {"plain": "fine usual calm", "glad": "great love sunny", "cross": "late lost awful"}, range(40)
    for name, rows in (("private.csv", 800), ("public.csv", 200)):
        lines = ["who,said,mood"]
        for number, mood in enumerate(generator.choices(list(words), (6, 2, 2), k=rows)):
            said = (*generator.choices(words[mood].split(), k=3), *generator.choices(filler, k=17))
            lines.append(f"{number % 400},{' '.join(map(str, said))},{mood}")
        (folder / name).write_text("\n".join(lines), encoding="utf-8")
    target = f'[target]\ncolumn = "mood"\ntask = "classification"\nclasses = {json.dumps(list(words))}\n'
    columns = '[columns]\nwho = "user"\nsaid = {kind = "text", size = 128}\n'
    (folder / "moods.toml").write_text(target + columns, encoding="utf-8")
    files = {"data": "private.csv", "test": "public.csv", "schema": "moods.toml"}
    return [*(f"--{name}={folder / file}" for name, file in files.items()), "--user-cap=4", "--epsilon=8", "--delta=1e-4"]


@pytest.mark.parametrize(("options", "learns"), [((), True), (("--server-optimizer=sgd", "--server-learning-rate=0.1"), False)])
def test_a_run_learns_from_text_by_defaults_and_warns_of_one_that_does_not(capsys, tmp_path, moods, options, learns):
    found = federate(capsys, *moods, *options, "--out", tmp_path / "run", "--quiet")
    assert (found["test_accuracy"] > 0.8) == learns
    statement = (tmp_path / "run" / "guarantee.md").read_text(encoding="utf-8")
    assert ("always predicting 'plain'" in statement) == (not learns)


def test_fed_sgd_sends_gradients(capsys, tmp_path, table):
    federate(capsys, *table, *QUICK, "--epsilon", 8, "--fed-sgd", "--out", tmp_path / "run")
    local = runs.read_setup(tmp_path / "run", FederatedSetup).local
    assert (local.learning_rate, local.steps, local.proximal) == (1.0, 1, 0.0)


def test_several_processes_train_the_same_clients(capsys, tmp_path, table):
    weights = []
    for processes in (1, 2):
        out = tmp_path / str(processes)
        options = ("--noise-multiplier", 0, "--user-cap", 5, "--processes", processes)
        federate(capsys, *table, *QUICK, *options, "--out", out)
        weights.append(load_file(out / "model" / "model.safetensors")["output.weight"])
    assert_equal_up_to_rounding(*weights)


def test_options_and_parts_come_from_a_file(prepared, tmp_path, table):
    config = tmp_path / "run.toml"
    config.write_text('epsilon = 8\ncohort = 15\nlocal-steps = 2\nclipping = {kind = "Normalize", bound = 0.4}\n')
    setup, plan = prepared(*table, *QUICK, "--config", config, verb="federate")
    assert (plan.clipping, plan.sampling, setup.local_steps) == (Normalize(0.4), Poisson(15.0), 2)
    assert 7 < plan.epsilon() <= 8


def test_the_schema_of_a_configuration_file_has_the_options_of_the_command(capsys):
    found = json.loads(told(capsys, "federate", "--config-schema"))
    assert found["title"] == "Configuration of privet federate"
    assert {"rounds", "cohort", "clipping", "budget-file"} <= found["properties"].keys()
    assert "plan" not in found["properties"]


def test_a_budget_pays_for_the_rounds(capsys, tmp_path, table):
    known = ("--delta", 1e-3, "--data", table[1], "--examples", USERS, "--unit", "one user")
    succeed(capsys, "budget", "create", tmp_path / "budget", "--epsilon", 2, *known)
    options = (*table, *QUICK, "--budget", tmp_path / "budget")
    federate(capsys, *options, "--epsilon", 1, "--out", tmp_path / "a")
    assert "the budget" in ask(capsys, "federate", *options, "--epsilon", 1.9, "--out", tmp_path / "b")[2]
