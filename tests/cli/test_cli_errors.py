"""Every bad argument gets one clear line on standard error and exit status 2, and nothing is written."""

import errno
import json
import re

import pytest
import torch
from asked import ask, refused


@pytest.fixture(scope="module")
def brief_runs():
    """Nothing is left out: some networks here are refused by the check before the first step."""


# Calls, names and settings of the Python interface, which a user of the command line cannot type.
PYTHON = re.compile(r"\w\(|\bprivet\.\w|\bPlan\b|\bTraining\b|=(True|None)\b")

# Command → what is given beside, or in place of, its options → words of the error. Files are those of the fixture `inputs`.
QUESTION = "--examples 60000 --batch-size 256 --delta 1e-5 --steps 100"
CASES = {
    "": {
        "dance": "No such command",
        "data fetch imagenet": "fashion-mnist",
        "report nowhere": "plan.json",
        "train --epsilon 3": "--data",
        "train --data digits": "--epsilon",
        "train --resume nowhere": "no readable run.json",
        f"epsilon {QUESTION} --noise-multiplier 1.1 --frobnicate": "No such option",
        "epsilon --examples 60000 --batch-size 256 --noise-multiplier 1.1 --delta 1e-5": "--steps",
        "epsilon --delta 1e-5": "--examples",
        f"noise {QUESTION} --epsilon 1e-5 --batch-size 60000": "it must be at least",
        "budget create b --epsilon 0 --delta 1e-5 --examples 9": "epsilon",
        "budget create b --epsilon 1 --delta 1e-5": "identify the budget's data set",
        "budget show b": "cannot read the budget",
        "ledger verify nowhere": "no plan.json",
        "ledger show nowhere": "cannot read the ledger",
        "audit": "RUN",
        "audit nowhere": "plan.json",
        "audit --federated": "RUN",
        "audit --plan nowhere.json": "--plan",
        "audit --plan {inputs}/on_fire.py": "plan",
        "check nowhere.py": "MODEL.py",
        "check {inputs}/on_fire.py": "disk on fire",
        "check {inputs}/wrong.py": "dataset",
        "check {inputs}/no_model.py": "defines no model",
        "check {inputs}/odd.py": "odd.py: model is 'int'",
        "federate": "--data is missing",
        "fit --data digits --epsilon 1": "--out is missing",
        "fit --data digits --out run": "--epsilon is missing. Set a budget",
        "predict nowhere --data digits --out found.csv": "It does not exist",
        "guarantee nowhere": "It does not exist",
    },
    f"epsilon {QUESTION} --noise-multiplier 1.1": {
        "--examples 1": "examples",
        "--examples many": "examples",
        "--batch-size 0": "--batch-size is",
        "--steps -5": "--epochs sets it in passes",
        "--epochs 3": "--epochs",
        "--noise-multiplier nan": "--noise-multiplier is",
        "--delta 0": "delta",
        "--accountant crystal-ball": "--accountant",
        "--sampling dice": "--sampling",
        "--sampling shuffle": "adjacency is 'add-remove'; it must be 'replace-one' or 'zero-out' for Shuffled",
        "--sampling full-batch": "--batch-size",
        "--adjacency friends": "adjacency",
        "--sampling truncated-poisson --accountant rdp": "it must be 'pld' for TruncatedPoisson",
        "--unit group:4": "'replace-one' for the unit",
        "--unit person": "--unit is 'person'",
        "--figure /proc/nowhere/figure.svg": "figure",
    },
    f"noise {QUESTION}": {
        "--epsilon 0": "epsilon",
        "--epsilon 1e9": "protects nobody",
        "--epsilon 3 --accountant gdp": "upper bound",
    },
    "epsilon --composition": {
        "{inputs}/mixture.toml --steps 3": "--steps",
        "{inputs}/mixture.toml --sampling shuffle": "--sampling",
        "{inputs}/sampled.json": "--delta",
        "missing.toml": "readable",
        "{inputs}/mixture.toml --accountant gdp": "accountant",
        "{inputs}/mixture.toml --adjacency twins": "adjacency",
    },
    "plan": {
        "": "--data is missing; it must be given, or else --examples and --parameters",
        "--examples 100": "or else --examples and --parameters",
        "--data digits --parameters 9": "--parameters is 9; it must be left out with --data",
        "--data digits --epsilon 1 --noise-multiplier 1": "--noise-multiplier is 1.0; it must be left out",
        "--data digits --epsilon 0": "--epsilon is 0.0",
        "--data nowhere.csv": "nowhere.csv",
        "--data digits --model gpt": "--model is 'gpt'",
        "--data digits --delta 0.1": "--delta is 0.1; it must be below 1 / examples",
        "--examples 100 --parameters 0": "--parameters is 0",
        "--examples 1 --parameters 10": "--examples is 1",
    },
    "train --data digits --epsilon 3 --out run": {
        "--data nope": "--data is 'nope'; it must be one of mnist, fashion-mnist, digits",
        "--data missing.npz": "there is no such file: --data is 'missing.npz'; it must be the path of a file.",
        "--data missing.csv": "there is no such file: --data is 'missing.csv'; it must be the path of a file.",
        "--model gpt": "--model is",
        "--model cnn": "tanh-cnn",
        "--clipping wishful": "--clipping",
        "--bound 0": "--bound is",
        "--stability 0.1": "left out with the rule 'flat'. It is an option of automatic, psac, psasc",
        "--scale 0.9": "--scale",
        "--cutoff 3": "It is an option of global",
        "--clipping layerwise": "--clipping",
        "--clipping psasc --scale 1.5": "--scale is",
        "--clipping psac --stability 0": "--stability is",
        "--clipping psac --scale 0.9": "left out with the rule 'psac'. It is an option of psasc",
        "--clipping global --cutoff -1": "--cutoff is",
        "--style layer": "--style",
        "--adaptive-quantile 1": "clipping.quantile",
        "--optimizer lbfgs": "--optimizer is",
        "--lr -1": "--learning-rate is",
        "--momentum 1": "--momentum is 1.0",
        "--batch-size 5000": "--batch-size is",
        "--physical-batch-size 0": "--physical-batch-size is",
        "--seed -1": "--seed is -1",
        "--noise-source dice": "--noise-source is",
        "--delta 0.01": "--delta is 0.01; it must be below 1 / examples = 0.000696. Lower --delta:",
        "--device abacus": "--device is 'abacus'; it must be one of 'cpu'",
        "--target label": "--target is",
        "--steps x": "--steps",
        "--refresh 2": "left out without --sparsify",
        "--sparsify-ranked": "left out without --sparsify",
        "--inner-momentum 0.8": "--inner-momentum is 0.8; it must be left out without --history",
        "--outer-momentum 0.8 --per-example-momentum 0.5": "--outer-momentum is 0.8; it must be left out with --per-example-mom",
        "--budget b": "cannot read the budget",
        "--log aim": "--log is 'aim'",
        "--log=": "--log is ''",
        "--optimizer adamw --optimizer-options {{": "a JSON object",
        "--optimizer adamw --optimizer-options [1]": "a JSON object",
        '--optimizer adamw --optimizer-options {{"colour":1}}': "unexpected keyword argument 'colour'",
        '--optimizer adamw --optimizer-options {{"weight_decay":-1}}': "Invalid weight_decay",
        '--optimizer adamw --optimizer-options {{"lr":1}}': "multiple values",
    },
    "train --data {inputs}/private.csv --epsilon 3 --out run": {
        "": "privet schema draft {inputs}/private.csv --target COLUMN > schema.toml",
        "--target bigger": "privet schema draft {inputs}/private.csv --target bigger > schema.toml",
        "--data {inputs}/images.npz": "--classes 3",
    },
    "train --data {inputs}/images.npz --classes 3 --epsilon 8 --steps 3 --out run": {
        "": "or name the array of users",
        "--user-column user_train": "--user-cap is missing; it must be given for data with users",
        "--user-column user_train --user-cap 2 --views 3": "--augment is missing; it must be given with views",
        "--user-column user_train --user-cap 2 --augment flip": "--views is missing; it must be given with augment",
        "--user-column user_train --user-cap 0": "--user-cap is 0",
        "--user-column user_train --user-cap 2 --group-size 2": "--group-size is 2; it must be left out with --user-cap",
        "--user-column x_train --user-cap 2": "--user-column is 'x_train'; it must be an array other than inputs and",
        "--user-column who --user-cap 2": "user_train",
        "--user-column user_train --user-cap 2 --views 2 --augment melt": "--augment is 'melt'; it must be one of 'flip'",
        "--user-column user_train --user-cap 2 --adjacency all": "--adjacency is 'all'",
    },
    "train --data {inputs}/plain.npz --classes 3 --model logistic --epsilon 8 --delta 1e-4 --steps 12 --out run": {
        "--group-size 4": "'replace-one' for the unit",
        "--anchors 5": "--anchors is 5; it must be left out without --public",
        "--residual-bound 0.1": "--residual-bound is 0.1; it must be left out without --public",
        "--public dead-leaves --style module": "--public is 'dead-leaves'; it must be left out with --style",
        "--public dead-leaves --adaptive-quantile 0.5": "left out with --style, --adaptive-quantile",
        "--public nowhere": "nowhere",
        "--public dead-leaves --dimensions 0": "dimensions",
        "--public dead-leaves --residual-bound -1": "bound",
        "--public dead-leaves --group-size 2 --adjacency replace-one": "another rule for users or groups",
        "--public dead-leaves --optimizer adam-bc": "without anchor gradients for an optimizer",
        "--public {inputs}/few.npz --anchors 20": "at least the 20 anchors",
        "--public {inputs}/wide.npz --anchors 20": "of shape (1, 14, 14)",
        "--public {inputs}/plain.npz --anchors 20": "other data than those that are trained on",
        "--bands 4": "--bands is 4; it must be left out without --noise banded",
        "--noise tree --buffers 4": "--buffers is 4; it must be left out without --noise buffered",
        "--noise banded --fixed-noise": "--fixed-noise is True; it must be left out without --noise independent",
        "--noise pink": "--noise is 'pink'",
        "--noise tree": "with noise.Tree",
        "--noise banded --adaptive-quantile 0.5": "with noise.Banded",
        "--noise banded --batch-size 60": "at most examples / --batch-size = 4",
    },
    "train --data {inputs}/private.csv --schema {inputs}/bigger.toml --epsilon 4 --steps 4 --batch-size 60 --out run": {
        "--holdout 0.2": "--evaluation-epsilon is missing; it must be given with --holdout",
        "--evaluation-epsilon 0.1": "--holdout is missing; it must be given with --evaluation-epsilon",
        "--holdout 1.5 --evaluation-epsilon 0.1": "holdout is 1.5",
        "--holdout 0.2 --evaluation-epsilon 9": "at most the target, 4",
        "--holdout 0.2 --evaluation-epsilon 0": "it must be",
        "--class-priors 0.5,much": "--class-priors is '0.5,much'",
        "--class-priors 0.2,0.3,0.5": "2 numbers, one per class",
        "--class-priors 0.5,0.5 --class-counts-epsilon 1": "Choose one of the two",
        "--model regression-mlp": "use 'logistic', 'mlp' or 'table'",
        "--model linear": "use 'logistic', 'mlp' or 'table'",
        "--schema {inputs}/left.toml --model logistic": "use 'linear', 'regression-mlp', 'mlp' or 'table'",
        "--schema {inputs}/left.toml --class-counts-epsilon 1": "left out for a regression",
    },
    "train --data digits --model logistic --batch-size 90 --steps 3 --epsilon 2 --scale-from {inputs}/sgd --out run": {
        "--learning-rate 0.1": "left out with --learning-rate",
        "--optimizer adam": "the optimizer of this one, adam",
        "--optimizer rmsprop": "with --scale-from, one of sgd",
        "--steps 4": "the number of steps of this one, 4",
        "--batch-size 80": "the expected batch size of this one, 80",
        "--sparsify 0.5": "the sparsification of this one",
        "--inner-momentum 0.5 --history 2": "the momentum of gradients of this one",
        "--scale-from none": "none holds no run",
    },
    "federate --data {inputs}/private.csv --schema {inputs}/users.toml --delta 1e-3 --user-cap 4 --out run": {
        "": "--epsilon is missing",
        "--epsilon 8 --noise-multiplier 3": "--noise-multiplier is 3.0; it must be left out with --epsilon",
        "--epsilon 8 --fed-sgd --proximal 0.1": "--proximal is 0.1",
        "--epsilon 8 --local-learning-rate -1": "--local-learning-rate is -1",
        "--epsilon 8 --cohort 31": "--cohort is 31",
        "--epsilon 8 --server-optimizer lion": "--server-optimizer is 'lion'",
        "--epsilon 8 --schema {inputs}/bigger.toml": "data with users",
    },
    "federate --data {inputs}/private.csv --schema {inputs}/users.toml --delta 1e-3 --epsilon 8": {
        "--out run": "--user-cap is missing"
    },
    "train --data {inputs}/private.csv --schema {inputs}/users.toml --epsilon 8 --user-cap 2 --out run": {
        "--views 2 --augment flip": "augment is"
    },
    "fit --data digits --epsilon 1 --out run": {
        "--noise-multiplier 2": "Choose one of the two",
        "--adjacency replace-one": "--adjacency is 'replace-one'",
        "--regularisation 0": "--regularisation is 0.0; it must be greater than 0",
        "--regularisation 0.01": "--regularisation is 0.01; it must be at least",
        "--mechanism gradient": "--mechanism is 'gradient'",
        "--delta 0.5": "--delta is 0.5",
        "--radius -1": "--radius is -1.0",
    },
    "bench": {
        "--rounds 0": "--rounds is 0",
        "--batch-size 0": "--batch-size is 0",
        "--model gpt": "--model is 'gpt'",
        "--shape 3,x": "--shape is '3,x'",
        "--shape 3,4 --model cnn": "input_shape is (3, 4)",
        "--device abacus": "--device is 'abacus'",
        "--clipping wishful": "--clipping",
        "{inputs}/ids.py --batch-size 41": "at most the 40 examples of ids.py",
        "{inputs}/ids.py --model mlp": "left out with a file",
        "nowhere.py": "MODEL.py is 'nowhere.py'",
        "{inputs}/coupled.py": "BatchNorm1d",
        "{inputs}/wrong.py": "defines no batch",
        "{inputs}/unlike.py": "loss_fn is 'float'",
    },
}
# Errors that quote an expression of the user, of torch or of a plan.
WITH_PYTHON = (
    "nowhere.py", "coupled.py", "on_fire.py", "optimizer-options", "--noise tree", "--noise banded", "run --sparsify 0.5",
    "--history 2",
)  # fmt: skip


@pytest.mark.with_report
@pytest.mark.parametrize(
    ("command", "says"),
    [(f"{command} {options}".strip(), says) for command, group in CASES.items() for options, says in group.items()],
    ids=lambda value: value[-60:],
)
def test_refused_in_one_line(command, says, capsys, monkeypatch, tmp_path, inputs):
    monkeypatch.chdir(tmp_path)
    error = refused(capsys, *command.format(inputs=inputs).split())
    assert says.format(inputs=inputs) in error
    assert error.startswith("privet: error: ")
    assert any(place in command for place in WITH_PYTHON) or not PYTHON.search(error)
    assert list(tmp_path.iterdir()) == []


# Options of `privet train` or a file for --config, which refuse each other or themselves → words of the error.
FLAT, POISSON = 'clipping = {kind = "Flat", bound = 1.0}', 'sampling = {kind = "Poisson", batch_size = 9}'
FILES = {
    ("train", FLAT, "--bound 2"): "--bound",
    ("train", FLAT, "--clipping psac"): "--clipping",
    ("train", f'{FLAT}\nstyle = "module"', ""): "--style",
    ("train", POISSON, "--batch-size 8"): "--batch-size",
    ("train", 'noise = {kind = "Gaussian", multiplier = 2.0}', "--noise-multiplier 2"): "--noise-multiplier",
    ("train", 'clipping = {kind = "Flat", bound = -1.0}', ""): "bound",
    ("train", 'clipping = {kind = "Flt", bound = 1.0}', ""): "clipping.kind is 'Flt'",
    ("train", 'clipping = {kind = "Poisson", batch_size = 2}', ""): "clipping.kind is 'Poisson'",
    ("train", 'clipping = {kind = "Flat"}\n[plan]\nexamples = 9', ""): "plan",
    ("train", "batch-size = []", ""): "batch_size is []",
    ("train", "quiet = 0.5", ""): "quiet",
    ("train", "seed = inf", ""): "seed",
    ("train", f"lr = -1{'0' * 400}", ""): "",
    ("train", "epsilon = {a = 1}", ""): "epsilon",
    ("train", "classes = 10", ""): "classes",
    ("train", 'colour = "red"', ""): "colour",
    ("train", "[", ""): "does not parse",
    ("train", "plan = {examples = 1437}", ""): "plan",
    ("train", "plan = 0.5", ""): "a table with the fields of a plan",
    ("train", 'optimizer = "best"', ""): "optimizer",
    ("federate", "batch-size = 5", ""): "batch_size",
    ("federate", 'clipping = {kind = "Flat", bound = 0.4}\nbound = 0.2', ""): "--bound",
    ("federate", 'momentum = {kind = "Outer", factor = 0.9}', ""): "momentum",
    ("federate", f"{FLAT.replace('clipping', 'plan.clipping')}\n{POISSON.replace('sampling', 'plan.sampling')}\n"
                 "plan.examples = 30\nplan.steps = 3\nplan.delta = 1e-3", ""): "a plan",
}  # fmt: skip


@pytest.mark.parametrize(("asked", "says"), FILES.items(), ids=lambda value: str(value)[:60])
def test_a_configuration_file_is_refused_in_one_line(asked, says, capsys, monkeypatch, tmp_path, inputs):
    verb, text, options = asked
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    data = "--data digits" if verb == "train" else f"--data {inputs}/private.csv --schema {inputs}/users.toml --user-cap 4"
    goal = "" if text.startswith("epsilon") else "--epsilon 3"
    assert says in refused(capsys, *f"{verb} {data} {goal} --config mine.toml --out run {options}".split())
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


@pytest.mark.parametrize(
    ("text", "says"),
    [("[1, 2]", "a table of options"), ("{", "does not parse"), ('{"data": "own.npz", "classes": {"a": 1}}', "classes")],
)
def test_a_json_file_is_refused_in_one_line(text, says, capsys, tmp_path):
    (tmp_path / "it.json").write_text(text, encoding="utf-8")
    assert says in refused(capsys, "train", "--config", tmp_path / "it.json", "--epsilon", 3, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_device_that_this_torch_cannot_use_is_refused_with_the_reason(capsys, tmp_path):
    error = ask(capsys, "train", "--data", "digits", "--epsilon", 3, "--device", "cuda", "--out", tmp_path / "run")[2]
    assert "--device is 'cuda'; it must be one of 'cpu', which torch can use on this machine." in error
    assert "built without CUDA" in error or "finds no CUDA device" in error


@pytest.mark.parametrize(("written", "rest"), [("unfinished", "privet train --resume"), ("complete", "privet report")])
def test_a_disk_that_is_full_in_the_middle_of_a_run_says_how_to_go_on(written, rest, capsys, tmp_path, monkeypatch):
    def start(setup, plan, dataset, directory, **options):
        directory.mkdir()
        (directory / "status.json").write_text(json.dumps({"state": written}), encoding="utf-8")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("privet.cli._verbs.train.runs.start", start)
    code, _, error = ask(capsys, "train", "--data", "digits", "--epsilon", 3, "--steps", 2, "--out", tmp_path / "a run")
    assert (code, error.count("\n")) == (2, 1)
    assert "No space left on device" in error
    assert error.endswith(f"{rest} '{tmp_path / 'a run'}'\n")


@pytest.mark.parametrize("made", ["a file of the user", "a run", "a file", "a place that cannot be written"])
def test_out_is_refused_before_the_data_are_loaded(made, capsys, tmp_path, monkeypatch):
    out = tmp_path / "run"
    if made == "a file of the user":
        out.mkdir()
        (out / "thesis.txt").write_text("mine", encoding="utf-8")
    elif made == "a run":
        out.mkdir()
        (out / "ledger").write_text("{}\n", encoding="utf-8")
    elif made == "a file":
        out.write_text("mine", encoding="utf-8")
    else:
        out = tmp_path / "file" / "run"
        (tmp_path / "file").write_text("mine", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr("privet.runs.config.load_for_run", None)  # what is not called cannot fail
    code, _, error = ask(capsys, "train", "--data", "digits", "--epsilon", 3, "--out", out)
    assert (code, error.count("\n")) == (2, 1)
    assert "--out is" in error
    assert ("privet train --resume" in error) == (made == "a run")
    assert sorted(tmp_path.rglob("*")) == before


def test_an_operating_system_error_is_one_line(capsys):
    code, _, error = ask(capsys, "ledger", "verify", "a" * 5000)
    assert (code, error.count("\n"), "too long" in error) == (2, 1, True)
