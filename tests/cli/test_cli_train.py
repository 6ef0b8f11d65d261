"""A first run: one command leaves a complete directory; an interrupted one leaves a directory that can be resumed."""

import json
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from asked import ask, plan_in, succeed
from safetensors.torch import load_file

from privet import Plan, models
from privet.clipping import PSAC, PSASC, AdaptiveQuantile, Automatic, Flat, Global, Layerwise, Normalize
from privet.momentum import InnerOuter

pytest.importorskip("sklearn", reason="the digits come with scikit-learn: pip install 'privet[data]'")

QUICK = "--epsilon 8 --delta 1e-5 --quiet --json"


def train(capsys, command):
    return succeed(capsys, "train", *command.split())


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
    assert json.loads((run / "status.json").read_text(encoding="utf-8"))["state"] == "complete"
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


@pytest.mark.parametrize("options", ["logistic --clipping automatic --stability 0.05 --optimizer adam", "tanh-cnn"])
def test_models_rules_and_optimizers_combine(capsys, tmp_path, options):
    assert train(capsys, f"--data digits --model {options} --steps 3 --out {tmp_path}/run {QUICK}")["steps"] == 3


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ("", Flat(1.0)),
        ("--clipping normalize --bound 0.2", Normalize(0.2)),
        ("--clipping psac --stability 1e-3", PSAC(1.0, stability=1e-3)),
        ("--clipping psasc --bound 0.3 --scale 0.9 --stability 1e-4", PSASC(0.3, scale=0.9, stability=1e-4)),
        ("--clipping global --bound 0.5 --cutoff 4", Global(0.5, cutoff=4.0)),
        ("--clipping psasc --style parameter", Layerwise(PSASC(1.0), by="parameter")),
        ("--style module --adaptive-quantile 0.7", AdaptiveQuantile(Layerwise(Flat(1.0), by="module"), quantile=0.7)),
        ("--clipping automatic --adaptive-quantile 0.2", AdaptiveQuantile(Automatic(1.0), quantile=0.2)),
    ],
    ids=str,
)
def test_every_rule_and_style_has_a_name(prepared, options, rule):
    assert prepared(*f"--data digits --model logistic --steps 2 {options} {QUICK}".split())[1].clipping == rule


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
    options = f"--data digits --steps 2 --delta 1e-5 --quiet --json --out {tmp_path}"
    assert train(capsys, f"{options}/a --noise-multiplier 3")["epsilon"] < 8
    assert train(capsys, f"{options}/b --noise-multiplier 0")["epsilon"] == "inf"
    words = ("--data", "digits", "--steps", 2, "--noise-multiplier", 0, "--out", tmp_path / "c")
    assert told(capsys, "train", *words).startswith("NO PRIVACY (ε = ∞): ")
    assert "NO PRIVACY" in (tmp_path / "b" / "guarantee.md").read_text(encoding="utf-8")


def table(path, rows, labels=("no", "yes"), seed=0):
    generator = np.random.default_rng(seed)
    lines = (f"{a:.3f},{b:.3f},{labels[int(a > b)]}" for a, b in generator.normal(size=(rows, 2)))
    path.write_text("left,right,bigger\n" + "\n".join(lines) + "\n")
    return path


def schema(folder):
    """Write the schema of such a table, and return the options that name both the file and the target."""
    number = '{ kind = "number", lower = -3, upper = 3 }'
    target = '[target]\ncolumn = "bigger"\ntask = "classification"\nclasses = ["no", "yes"]\n'
    (folder / "own.toml").write_text(f"{target}\n[columns]\nleft = {number}\nright = {number}\n")
    return f"--target bigger --schema {folder}/own.toml"


@pytest.mark.with_report
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
    for name in ("guarantee.md", "report.html"):
        assert "provided as public test data" in (tmp_path / "b" / name).read_text(), name


@pytest.mark.with_report
def test_a_table_has_a_test_accuracy_only_with_a_test_file(capsys, tmp_path):
    own, test = table(tmp_path / "own.csv", 150), table(tmp_path / "test.csv", 40, seed=1)
    options = f"--data {own} {schema(tmp_path)} --steps 3"
    found = train(capsys, f"{options} --out {tmp_path}/a {QUICK}")
    assert (found["test_accuracy"], found["test_data"], found["test_examples"]) == (None, None, None)
    assert Plan.from_json((tmp_path / "a" / "plan.json").read_text()).examples == 150
    assert "no public test data" in (tmp_path / "a" / "report.html").read_text()
    assert "test set" not in (tmp_path / "a" / "guarantee.md").read_text()
    found = train(capsys, f"{options} --test {test} --out {tmp_path}/b {QUICK}")
    assert (0 <= found["test_accuracy"] <= 1, found["test_examples"]) == (True, 40)
    assert found["test_data"] == f"the file {test}, provided as public test data"
    for name in ("guarantee.md", "report.html"):
        assert "provided as public test data" in (tmp_path / "b" / name).read_text(), name


def test_prose_explains_a_missing_test_accuracy(capsys, tmp_path):
    own = table(tmp_path / "own.csv", 150)
    options = f"--data {own} {schema(tmp_path)} --steps 2 --epsilon 8"
    for number, full in enumerate(([], ["--full"])):
        printed = told(capsys, "train", *options.split(), "--out", f"{tmp_path}/run{number}", *full)
        assert "No test result: no public test data was given (--test FILE)." in printed
        assert "--holdout 0.2 --evaluation-epsilon 0.1" in printed


def test_an_undeclared_label_changes_no_shape(capsys, tmp_path):
    """One changed label of one row must not distinguish data sets, neither by a shape nor by an error."""
    kept, states, notes = table(tmp_path / "own.csv", 150), [], []
    changed = tmp_path / "changed.csv"
    lines = kept.read_text().splitlines()
    changed.write_text("\n".join([lines[0], lines[1].rpartition(",")[0] + ",perhaps", *lines[2:]]) + "\n")
    for path in (kept, changed):
        run = tmp_path / path.stem
        found = train(capsys, f"--data {path} {schema(tmp_path)} --steps 2 --out {run} {QUICK}")
        states.append({name: value.shape for name, value in load_file(run / "model" / "model.safetensors").items()})
        notes.append((found["epsilon"], found["steps"], (run / "guarantee.md").read_text()))
    assert states[0] == states[1]
    assert states[0]["output.weight"][0] == 2
    assert notes[0] == notes[1]
    assert "of 2 columns and the target 'bigger' (2 classes) decided all shapes, classes" in notes[0][2]
    assert "the schema of the table: it was written without looking at the private rows" in notes[0][2]


@pytest.mark.parametrize("labels", [("SECRET", "OTHER"), ("SECRET", "SECRET")])
def test_without_schema_or_classes_a_file_is_refused_and_its_content_not_disclosed(capsys, tmp_path, labels):
    own = table(tmp_path / "own.csv", 30, labels)
    np.savez(tmp_path / "own.npz", x_train=np.zeros((30, 2)), y_train=np.arange(30) % 7)
    drafted = f"privet schema draft {own} --target bigger > schema.toml"
    for data, fix in ((f"{own} --target bigger", drafted), (f"{tmp_path}/own.npz", "--classes 3")):
        code, _, error = ask(capsys, "train", "--data", *data.split(), "--epsilon", "3", "--out", tmp_path / "run")
        assert (code, len(error.strip().splitlines())) == (2, 1)
        assert fix in error
        assert not re.search("SECRET|OTHER|7", error.replace(str(tmp_path), ""))
        assert not (tmp_path / "run").exists()


def test_a_run_on_a_table_is_repeated_by_its_plan_which_holds_the_schema(capsys, tmp_path):
    own, test = table(tmp_path / "own.csv", 150), table(tmp_path / "test.csv", 40, seed=1)
    train(capsys, f"--data {own} {schema(tmp_path)} --test {test} --steps 2 --out {tmp_path}/a {QUICK}")
    (tmp_path / "own.toml").unlink()
    train(capsys, f"--config {tmp_path}/a/plan.json --out {tmp_path}/b --quiet --json")
    setups, plans = ([json.loads((tmp_path / name / file).read_text()) for name in "ab"] for file in ("run.json", "plan.json"))
    for name in ("test", "test_data", "provenance"):
        assert setups[0][name] == setups[1][name] is not None, name
    assert plans[0]["schema"] == plans[1]["schema"] is not None
    assert (tmp_path / "a" / "schema.toml").read_text() == (tmp_path / "b" / "schema.toml").read_text()


def test_inner_and_outer_momentum_are_in_the_plan(capsys, prepared, tmp_path):
    options = "--model logistic --steps 4 --inner-momentum 0.8 --outer-momentum 0.2 --history 2"
    setup, plan = prepared(*f"--data digits {options} {QUICK}".split())
    assert plan.momentum == InnerOuter(inner=0.8, outer=0.2, length=2)
    assert setup.momentum == 0.0
    words = ("--data", "digits", "--epsilon", "3", "--inner-momentum", "0.8")
    code, _, error = ask(capsys, "train", *words, "--out", tmp_path / "other")
    assert (code, "--inner-momentum is 0.8; it must be left out without --history" in error) == (2, True)


def told(capsys, *arguments):
    code, out, error = ask(capsys, *arguments)
    assert code == 0, error
    return out


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
    assert told_later.startswith("(")
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
    code, _, error = ask(capsys, "guarantee", tmp_path)
    assert (code, "privet train --resume" in error) == (2, True)
    assert ask(capsys, "guarantee", tmp_path / "absent")[2].strip().endswith("It does not exist.")


# The process kills itself after its second regular checkpoint, independent of its speed.
KILLED = """
import os, signal, sys
from privet.training import checkpoint
from privet.cli import main

save = checkpoint.save

def then_die(directory, step, *rest):
    save(directory, step, *rest)
    if step == 200:
        os.kill(os.getpid(), signal.SIGKILL)

checkpoint.save = then_die
main(["train", "--data", "digits", "--steps", "300", "--epsilon", "8", "--out", sys.argv[1]])
"""


def test_a_killed_run_is_unfinished_and_can_be_resumed(capsys, tmp_path):
    run = tmp_path / "run"
    ended = subprocess.run([sys.executable, "-c", KILLED, run], capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert (run / "checkpoint-previous.pt").exists()
    assert json.loads((run / "status.json").read_text(encoding="utf-8"))["state"] == "unfinished"
    assert not (run / "model" / "model.safetensors").exists()
    found = train(capsys, f"--resume {run} --quiet --json")
    assert found["epsilon"] <= 8
    assert found["steps"] == 300
    code, _, error = ask(capsys, "train", "--resume", run)
    assert (code, "complete" in error) == (2, True)


def test_an_interrupted_run_prints_how_to_resume(capsys, interrupt_once, tmp_path):
    interrupt_once(3)
    code, _, errors = ask(capsys, "train", "--data", "digits", "--steps", 5, "--epsilon", 8, "--out", tmp_path / "run")
    assert code == 130
    assert errors.strip().splitlines()[-1].endswith(f"privet train --resume {tmp_path / 'run'}")
    assert "Traceback" not in errors
    assert json.loads((tmp_path / "run" / "status.json").read_text(encoding="utf-8"))["state"] == "unfinished"


def test_the_seed_is_of_the_initial_parameters_only(capsys, tmp_path):
    state = torch.get_rng_state()
    for name in "ab":
        train(capsys, f"--data digits --model logistic --seed 7 --steps 2 --out {tmp_path}/{name} {QUICK}")
    assert torch.equal(torch.get_rng_state(), state)
    one, other = (load_file(tmp_path / name / "model" / "model.safetensors") for name in "ab")
    assert not torch.equal(one["output.weight"], other["output.weight"])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--sparsify 0.9", {"kind": "Random", "final_rate": 0.9, "refresh": 1, "seed": 0}),
        ("--sparsify 0.5 --refresh 2 --sparsify-ranked", {"kind": "Ranked", "final_rate": 0.5, "refresh": 2}),
    ],
)
def test_sparsification_is_part_of_the_plan_and_named_in_the_statement(capsys, tmp_path, options, expected):
    run = tmp_path / "run"
    train(capsys, f"--data digits --model mlp --epsilon 3 --steps 4 {options} --out {run} --quiet --json")
    assert json.loads((run / "plan.json").read_text(encoding="utf-8"))["sparsification"] == expected
    assert "do not improve ε" in (run / "guarantee.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("option", ["--refresh 2", "--sparsify-ranked"])
def test_options_of_sparsification_need_a_rate(capsys, tmp_path, option):
    code, _, error = ask(capsys, "train", "--data", "digits", "--epsilon", "3", *option.split(), "--out", tmp_path / "run")
    assert (code, "left out without --sparsify" in error) == (2, True)
