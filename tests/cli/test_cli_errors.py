"""Every bad argument gets one clear line on standard error and exit status 2, and nothing is written."""

import errno
import json
import re

import pytest
import torch
from asked import ask

EPSILON = "epsilon --examples 60000 --batch-size 256 --steps 100 --noise-multiplier 1.1 --delta 1e-5"
NOISE = "noise --examples 60000 --batch-size 256 --steps 100 --epsilon 3 --delta 1e-5"
TRAIN = "train --data digits --epsilon 3 --out run"


def changed(command, option, value):
    words = command.split()
    if option in words:
        words[words.index(option) + 1] = value
        return words
    return [*words, *option.split(), value]


# Calls, names and settings of the Python interface, which a user of the command line cannot type.
PYTHON = re.compile(r"\w\(|\bprivet\.\w|\bPlan\b|\bTraining\b|=(True|None)\b")

CASES = [
    (["dance"], "No such command"),
    (["data", "fetch", "imagenet"], "fashion-mnist"),
    (["report", "nowhere"], "plan.json"),
    (["train", "--epsilon", "3"], "--data"),
    (["train", "--data", "digits"], "--epsilon"),
    (["train", "--resume", "nowhere"], "no readable run.json"),
    ([*EPSILON.split(), "--frobnicate"], "No such option"),
    ([word for word in EPSILON.split() if word not in ("--steps", "100")], "--steps"),
    (changed(NOISE.replace("--batch-size 256", "--batch-size 60000"), "--epsilon", "1e-5"), "it must be at least"),
    *[
        (changed(EPSILON, option, value), says)
        for option, value, says in [
            ("--examples", "1", "examples"),
            ("--examples", "many", "examples"),
            ("--batch-size", "0", "--batch-size is"),
            ("--batch-size", "60001", "--batch-size is"),
            ("--batch-size", "nan", "--batch-size is"),
            ("--steps", "0", "steps"),
            ("--steps", "-5", "--epochs sets it in passes"),
            ("--epochs", "3", "--epochs"),
            ("--noise-multiplier", "-1", "--noise-multiplier is"),
            ("--noise-multiplier", "nan", "--noise-multiplier is"),
            ("--noise-multiplier", "inf", "--noise-multiplier is"),
            ("--delta", "0", "delta"),
            ("--delta", "1", "delta"),
            ("--delta", "nan", "delta"),
            ("--accountant", "crystal-ball", "--accountant"),
            ("--sampling", "dice", "--sampling"),
            ("--sampling", "shuffle", "adjacency is 'add-remove'; it must be 'replace-one' or 'zero-out' for Shuffled"),
            ("--sampling", "full-batch", "--batch-size"),
            ("--adjacency", "friends", "adjacency"),
            ("--sampling truncated-poisson --accountant", "rdp", "it must be 'pld' for TruncatedPoisson"),
            ("--figure", "/proc/nowhere/figure.svg", "figure"),
        ]
    ],
    *[
        (changed(NOISE, option, value), says)
        for option, value, says in [
            ("--epsilon", "0", "epsilon"),
            ("--epsilon", "nan", "epsilon"),
            ("--epsilon", "1e9", "protects nobody"),
            ("--accountant", "gdp", "upper bound"),
        ]
    ],
    *[
        (changed(TRAIN, option, value), says)
        for option, value, says in [
            ("--data", "nope", "--data is 'nope'; it must be one of mnist, fashion-mnist, digits"),
            ("--data", "missing.npz", "--data is 'missing.npz'; it must be the path of a file. It does not exist."),
            ("--data", "missing.csv", "--data is 'missing.csv'; it must be the path of a file. It does not exist."),
            ("--model", "gpt", "--model is"),
            ("--model", "cnn", "tanh-cnn"),
            ("--clipping", "wishful", "--clipping"),
            ("--bound", "0", "--bound is"),
            ("--bound", "inf", "--bound is"),
            ("--stability", "0.1", "left out with the rule 'flat'. It is an option of automatic, psac, psasc"),
            ("--scale", "0.9", "--scale"),
            ("--cutoff", "3", "It is an option of global"),
            ("--clipping", "layerwise", "--clipping"),
            ("--clipping", "batchclipping", "--clipping"),
            ("--clipping psasc --scale", "1.5", "--scale is"),
            ("--clipping psac --stability", "0", "--stability is"),
            ("--clipping psac --scale", "0.9", "left out with the rule 'psac'. It is an option of psasc"),
            ("--clipping global --cutoff", "-1", "--cutoff is"),
            ("--style", "layer", "--style"),
            ("--adaptive-quantile", "1", "clipping.quantile"),
            ("--optimizer", "lbfgs", "--optimizer is"),
            ("--lr", "-1", "--learning-rate is"),
            ("--lr", "nan", "--learning-rate is"),
            ("--momentum", "1", "--momentum is 1.0"),
            ("--batch-size", "5000", "--batch-size is"),
            ("--physical-batch-size", "0", "--physical-batch-size is"),
            ("--seed", "-1", "--seed is -1"),
            ("--noise-source", "dice", "--noise-source is"),
            ("--delta", "0.01", "--delta is 0.01; it must be below 1 / examples = 0.000696. Lower --delta:"),
            ("--device", "abacus", "--device is 'abacus'; it must be one of 'cpu'"),
            ("--target", "label", "--target is"),
            ("--steps", "x", "--steps"),
        ]
    ],
]


@pytest.mark.with_report
@pytest.mark.parametrize(("arguments", "says"), CASES, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_refused_in_one_line(arguments, says, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, out, err = ask(capsys, *arguments)
    assert code == 2
    assert says in err
    assert err.startswith("privet: error: ")
    assert err.count("\n") == 1
    assert not PYTHON.search(err)
    assert out == ""
    assert list(tmp_path.iterdir()) == []


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
    monkeypatch.setattr("privet.cli.running.load", None)  # what is not called cannot fail
    code, _, error = ask(capsys, "train", "--data", "digits", "--epsilon", 3, "--out", out)
    assert (code, error.count("\n")) == (2, 1)
    assert "--out is" in error
    assert ("privet train --resume" in error) == (made == "a run")
    assert sorted(tmp_path.rglob("*")) == before


def test_an_operating_system_error_is_one_line(capsys):
    code, _, error = ask(capsys, "ledger", "verify", "a" * 5000)
    assert (code, error.count("\n"), "too long" in error) == (2, 1, True)
