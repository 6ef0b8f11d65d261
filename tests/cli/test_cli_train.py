import json
import os
import re
import signal

import numpy as np
import pytest
import torch
from asked import ask, plan_in, refused, succeed, told
from made import write_people
from safetensors.torch import load_file

import privet
from privet import models
from privet.runs import Setup
from privet.runs.tasks import cross_entropy
from privet.training import checkpoint

pytest.importorskip("sklearn", reason="the digits come with scikit-learn: pip install 'privet[data]'")

QUICK = "--epsilon 8 --delta 1e-5 --quiet"


def train(capsys, command):
    return succeed(capsys, "train", *command.split())


def read(run, name):
    return json.loads((run / name).read_text(encoding="utf-8"))


@pytest.mark.with_report
def test_a_run_is_complete_and_agrees_with_itself(capsys, tmp_path):
    found = train(capsys, f"--data digits --model mlp --steps 40 --out {tmp_path}/run {QUICK}")
    assert found.keys() >= {"epsilon", "delta", "test_accuracy", "steps", "seconds", "directory"}
    low, high = found["test_intervals"]["negative_log_likelihood"]
    assert low < found["test_negative_log_likelihood"] < high
    assert 0 <= found["test_expected_calibration_error"] <= found["test_maximum_calibration_error"] <= 1
    run = tmp_path / "run"
    assert {path.name for path in run.iterdir()} == {
        "plan.json", "run.json", "manifest.json", "ledger", "checkpoint.pt", "checkpoint-previous.pt", "metrics.jsonl",
        "fingerprint.json", "model", "evaluation.json",
        "guarantee.json", "guarantee.md", "report.html", "figures", "status.json",
    }  # fmt: skip
    plan = plan_in(run)
    assert plan.epsilon() == found["epsilon"] <= 8
    assert found["steps"] == plan.total_steps == 40
    assert read(run, "status.json")["state"] == "complete"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    last = {name: value for line in lines if line["step"] == 40 for name, value in line.items()}
    assert last["epsilon"] == found["epsilon"]
    assert last["test_accuracy"] == found["test_accuracy"] > 0.5
    model = models.build("mlp", (1, 8, 8), 10)
    model.load_state_dict(load_file(run / "model" / "model.safetensors"))
    assert "(8.000, 1e-05)-differential privacy" in (run / "guarantee.md").read_text(encoding="utf-8")
    (run / "report.html").unlink()
    assert succeed(capsys, "report", run)["report"].endswith("report.html")
    assert (run / "report.html").exists()


def test_what_is_left_out_is_chosen_and_said(prepared):
    setup, plan = prepared(*f"--data digits --steps 3 --momentum 0.5 {QUICK}".split())
    assert setup.defaults == {"model": "logistic", "bound": 1.0, "batch_size": 1437, "learning_rate": setup.learning_rate}
    assert (setup.momentum, plan.total_steps) == (0.5, 3)
    few, many = (prepared(*f"--data digits --steps {n} --batch-size 64 {QUICK}".split())[0].learning_rate for n in (3, 30))
    assert many < few / 2
    _, plan = prepared(*f"--data digits --model logistic --steps 3 --sampling full-batch {QUICK}".split())
    assert (type(plan.sampling).__name__, plan.sampling_rate) == ("FullBatch", 1.0)
    _, plan = prepared(*f"--data digits --noise-multiplier 3 --batch-size 200 {QUICK}".split())
    assert 7.5 < plan.epsilon() <= 8


def test_noise_alone_and_no_noise(capsys, tmp_path):
    options = f"--data digits --steps 2 --delta 1e-5 --quiet --out {tmp_path}"
    assert train(capsys, f"{options}/a --noise-multiplier 3")["epsilon"] < 8
    assert train(capsys, f"{options}/b --noise-multiplier 0")["epsilon"] == "inf"
    words = ("--data", "digits", "--steps", 2, "--noise-multiplier", 0, "--out", tmp_path / "c")
    assert told(capsys, "train", *words).startswith("NO PRIVACY (ε = ∞): ")
    assert "NO PRIVACY" in (tmp_path / "b" / "guarantee.md").read_text(encoding="utf-8")


def test_training_on_the_users_arrays(capsys, tmp_path):
    generator = np.random.default_rng(0)
    x, y = generator.integers(0, 256, (120, 16, 16), dtype=np.uint8), generator.integers(0, 3, 120)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y)
    found = train(capsys, f"--data {tmp_path}/own.npz --classes 3 --steps 2 --out {tmp_path}/a {QUICK}")
    assert (found["test_accuracy"], found["test_data"]) == (None, None)
    np.savez(tmp_path / "both.npz", x_train=x, y_train=y, x_test=x[:5], y_test=y[:5])
    found = train(capsys, f"--data {tmp_path}/both.npz --classes 3 --steps 2 --out {tmp_path}/b {QUICK}")
    assert 0 <= found["test_accuracy"] <= 1
    assert found["test_data"] == f"x_test and y_test of {tmp_path}/both.npz, provided as public test data"
    assert found["test_data"] == read(tmp_path / "b", "run.json")["test_data"]  # which the report quotes
    assert found["test_data"] in (tmp_path / "b" / "guarantee.md").read_text()


def test_a_table_has_a_test_accuracy_only_with_a_test_file_and_its_plan_repeats_the_run(capsys, tmp_path, inputs):
    schema = tmp_path / "own.toml"
    schema.write_text((inputs / "bigger.toml").read_text())
    options = f"--data {inputs}/private.csv --schema {schema} --target bigger --steps 3"
    found = train(capsys, f"{options} --out {tmp_path}/a {QUICK}")
    assert (found["test_accuracy"], found["test_data"], found["test_examples"]) == (None, None, None)
    assert plan_in(tmp_path / "a").examples == 150
    assert read(tmp_path / "a", "run.json")["test_data"] is None
    assert "test set" not in (tmp_path / "a" / "guarantee.md").read_text()
    found = train(capsys, f"{options} --test {inputs}/public.csv --out {tmp_path}/b {QUICK}")
    assert (0 <= found["test_accuracy"] <= 1, found["test_examples"]) == (True, 40)
    assert found["test_data"] == f"the file {inputs}/public.csv, provided as public test data"
    assert found["test_data"] in (tmp_path / "b" / "guarantee.md").read_text()
    schema.unlink()  # its plan holds the schema
    train(capsys, f"--config {tmp_path}/b/plan.json --out {tmp_path}/c --quiet")
    setups = [read(tmp_path / name, "run.json") for name in "bc"]
    for name in ("test", "test_data", "provenance"):
        assert setups[0][name] == setups[1][name] is not None, name
    assert plan_in(tmp_path / "b").schema == plan_in(tmp_path / "c").schema is not None
    assert (tmp_path / "b" / "schema.toml").read_text() == (tmp_path / "c" / "schema.toml").read_text()


def test_prose_explains_a_missing_test_accuracy(capsys, tmp_path, inputs):
    options = f"--data {inputs}/private.csv --schema {inputs}/bigger.toml --steps 2 --epsilon 8"
    for number, full in enumerate(([], ["--full"])):
        printed = told(capsys, "train", *options.split(), "--out", f"{tmp_path}/run{number}", *full)
        assert "No test result: no public test data was given (--test FILE)." in printed
        assert "--holdout 0.2 --evaluation-epsilon 0.1" in printed


def test_an_undeclared_label_changes_no_shape(capsys, tmp_path, inputs):
    """One changed label of one row must not distinguish data sets, neither by a shape nor by an error."""
    changed, states, notes = tmp_path / "changed.csv", [], []
    lines = (inputs / "private.csv").read_text().splitlines()
    changed.write_text("\n".join([lines[0], lines[1].rpartition(",")[0] + ",perhaps", *lines[2:]]) + "\n")
    for path in (inputs / "private.csv", changed):
        run = tmp_path / path.stem
        found = train(capsys, f"--data {path} --schema {inputs}/bigger.toml --steps 2 --out {run} {QUICK}")
        states.append({name: value.shape for name, value in load_file(run / "model" / "model.safetensors").items()})
        notes.append((found["epsilon"], found["steps"], (run / "guarantee.md").read_text()))
    assert states[0] == states[1]
    assert states[0]["output.weight"][0] == 2
    assert notes[0] == notes[1]
    assert "of 2 columns and the target 'bigger' (2 classes) decided all shapes, classes" in notes[0][2]
    assert "the schema of the table: it was written without looking at the private rows" in notes[0][2]


@pytest.mark.parametrize("labels", [("SECRET", "OTHER"), ("SECRET", "SECRET")])
def test_a_refused_file_is_not_disclosed(capsys, tmp_path, labels):
    own = write_people(tmp_path / "own.csv", 30, labels=labels)
    np.savez(tmp_path / "own.npz", x_train=np.zeros((30, 2)), y_train=np.arange(30) % 7)
    for data in (f"{own} --target bigger", f"{tmp_path}/own.npz"):
        error = refused(capsys, "train", "--data", *data.split(), "--epsilon", "3", "--out", tmp_path / "run")
        assert not re.search("SECRET|OTHER|7", error.replace(str(tmp_path), ""))


def test_training_ends_with_a_short_summary(capsys, tmp_path):
    run = tmp_path / "run"
    lines = told(capsys, "train", "--data", "digits", "--steps", 2, "--epsilon", 8, "--out", run).splitlines()
    assert len(lines) <= 8
    assert re.fullmatch(r"ε = [78][\d.]*, δ = 1e-05 for one example \(add-remove neighbours\)", lines[0])
    assert re.fullmatch(
        r"No membership attack finds more than [\d.]+\s% of the members at 1\s% false positives; .* at most [\d.]+\s%\.", lines[1]
    )
    assert re.fullmatch(r"Accuracy [\d.]+\s% \([\d.]+ to [\d.]+\s%\) on 360 public test examples \(95\s% interval\)", lines[2])
    assert lines[-2:] == [f"Report: {(run / 'report.html').as_uri()}", f"Full statement: privet guarantee {run}"]
    told_later = told(capsys, "guarantee", run)
    assert told_later.startswith("What was done: ")
    assert "your own" not in told_later
    assert "differential privacy for one example" in told_later
    assert told_later.strip() in (run / "guarantee.md").read_text(encoding="utf-8")
    assert json.loads(told(capsys, "guarantee", run, "--json"))["delta"] == 1e-5


def test_full_and_quiet_print_more_and_less(capsys, tmp_path):
    words = ("train", "--data", "digits", "--steps", 2, "--epsilon", 8, "--out")
    text = told(capsys, *words, tmp_path / "full", "--full")
    assert "differential privacy for one example" in text
    assert "Not covered:" in text
    for name in ("Accuracy", "Negative log-likelihood", "Expected calibration error"):
        assert re.search(rf"{name}\s+[\d.]+(\s%)?\s\([\d.]+\sto\s[\d.]+(\s%)?\)", text), name
    assert (tmp_path / "full" / "report.html").as_uri() in text
    text = told(capsys, *words, tmp_path / "quiet", "--quiet")
    assert re.fullmatch(rf"{re.escape(str(tmp_path / 'quiet'))}  ε = [78][\d.]*\n", text)


def test_a_run_that_is_not_finished_has_no_statement(capsys, tmp_path):
    """And is not told to run a command that would refuse it."""
    assert refused(capsys, "guarantee", tmp_path).endswith("It holds no run.\n")
    (tmp_path / "run.json").write_text('{"command": "federate"}', encoding="utf-8")
    assert f"privet federate --resume {tmp_path}" in refused(capsys, "guarantee", tmp_path)


@pytest.mark.with_report
def test_a_run_from_python_is_stated_verified_and_reported(capsys, tmp_path):
    run = tmp_path / "run"
    data = torch.utils.data.TensorDataset(torch.randn(100, 3), torch.randint(2, (100,)))
    model = torch.nn.Linear(3, 2)
    sizes = {"examples": 100, "sampling": privet.sampling.Poisson(20), "steps": 4, "clipping": privet.clipping.Flat(1.0)}
    plan = privet.Plan(**sizes, delta=1e-4).calibrate(epsilon=4.0)
    training = privet.Training(plan, model, cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1), data, run)
    for step in training:
        training.log({"public_loss": 1.0 / step.number, "share": step.number / 4})
        if step.number == 2:
            error = refused(capsys, "guarantee", run)
            assert "Finish the run in the Python program that began it" in error
            assert "privet train" not in error
            privet.save(training)
            assert "in 2 steps" in told(capsys, "guarantee", run)
            told(capsys, "report", run)
            assert "This run is unfinished" in (run / "report.html").read_text(encoding="utf-8")
    assert "in 4 steps" in told(capsys, "guarantee", run)
    assert "4 of 4 steps count" in told(capsys, "ledger", "verify", run)
    told(capsys, "report", run)
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "unfinished" not in page
    assert "What was done: a model was trained" in page.split("<details")[0]
    assert all(words in page for words in ("public_loss is 0.25 after step 4", "share is 1 after step 4"))


def test_a_killed_run_is_unfinished_and_can_be_resumed(capsys, tmp_path):
    run, save = tmp_path / "run", checkpoint.save

    def then_die(directory, step, *rest):
        """Save, and kill the process after its second regular checkpoint, independent of its speed."""
        save(directory, step, *rest)
        if step == 4:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        Setup.checkpoint_every, checkpoint.save = lambda setup, plan: 2, then_die
        ask(capsys, "train", "--data", "digits", "--steps", 6, "--batch-size", 50, "--epsilon", 8, "--out", run)
        os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert (run / "checkpoint-previous.pt").exists()
    assert read(run, "status.json")["state"] == "unfinished"
    assert not (run / "model" / "model.safetensors").exists()
    found = train(capsys, f"--resume {run} --quiet")
    assert found["epsilon"] <= 8
    assert found["steps"] == 6
    assert "complete" in refused(capsys, "train", "--resume", run)


def test_an_interrupted_run_prints_how_to_resume(capsys, interrupt_once, tmp_path):
    interrupt_once(3)
    code, _, errors = ask(capsys, "train", "--data", "digits", "--steps", 5, "--epsilon", 8, "--out", tmp_path / "run")
    assert code == 130
    assert errors.strip().splitlines()[-1].endswith(f"privet train --resume {tmp_path / 'run'}")
    assert "Traceback" not in errors
    assert read(tmp_path / "run", "status.json")["state"] == "unfinished"


def test_the_seed_is_of_the_initial_parameters_only(capsys, tmp_path):
    state = torch.get_rng_state()
    for name in "ab":
        train(capsys, f"--data digits --model logistic --seed 7 --steps 2 --out {tmp_path}/{name} {QUICK}")
    assert torch.equal(torch.get_rng_state(), state)
    one, other = (load_file(tmp_path / name / "model" / "model.safetensors") for name in "ab")
    assert not torch.equal(one["output.weight"], other["output.weight"])
