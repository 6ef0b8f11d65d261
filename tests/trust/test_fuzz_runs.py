"""A run with damaged files is resumed, or refused in one line, and no spent step is forgotten."""

import contextlib
import io
import json
import shutil
import warnings
import zlib

import numpy as np
import pytest
import torch
from fuzzing import TIMES, altered, bomb, command, damaged, fuzzed, left_over
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import TensorDataset

import privet
from plans import plan
from privet.errors import LedgerError, PrivetError
from privet.ledger import journal, read_history
from privet.training import checkpoint

N, STEPS, TAKEN = 20, 40, 5
SHARED = ("anchor", "budget")
DATA = TensorDataset(torch.randn(N, 4), torch.randn(N))


def loss_fn(model, batch):
    return (model(batch[0])[:, 0] - batch[1]).square()


def parts():
    model = nn.Linear(4, 1)
    return model, loss_fn, torch.optim.Adam(model.parameters()), DATA


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that was stopped, with the anchor that followed it and the budget that it drew from."""
    folder = tmp_path_factory.mktemp("run")
    budget = privet.Budget.create(folder / "budget", epsilon=50.0, delta=1e-3, examples=N)
    made = plan(examples=N, sampling=privet.sampling.Poisson(5), steps=STEPS, delta=1e-3)
    training = privet.Training(made, *parts(), privet.Storage(folder / "run", budget, folder / "anchor", checkpoint_every=2))
    steps = iter(training)
    for _ in range(TAKEN):
        next(steps)
    steps.close()
    training.close()
    for name in SHARED:
        shutil.copy(folder / name, folder / f"{name} as it was")
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory, brief_runs):
    """A run of the command line that is complete."""
    folder = tmp_path_factory.mktemp("finished")
    np.savez(folder / "mine.npz", x_train=np.eye(N, 4), y_train=np.arange(N) % 3, x_test=np.eye(6, 4), y_test=np.arange(6) % 3)
    arguments = (
        f"train --data {folder}/mine.npz --classes 3 --model logistic --steps 2 --batch-size 5 --noise-multiplier 2 --delta 1e-3"
    )
    assert command(*arguments.split(), "--quiet", "--out", folder / "run") == 0
    return folder / "run"


def resumed(folder):
    """Steps that count when the run is resumed; None if it is refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            training = privet.Training.resume(folder, *parts(), reading=privet.Reading(probe=False), method="loop")
        except PrivetError:
            return None
        spent = training.steps_spent
        next(iter(training))
        assert all(parameter.isfinite().all() for parameter in training.model.parameters())
        training.close()
    return spent


def copy_of(run, tmp_path_factory, name, content):
    """The run elsewhere, with one file changed; anchor and budget stay in place, as if no other copy had continued."""
    for shared in SHARED:
        shutil.copy(run / f"{shared} as it was", run / shared)
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(run / "run", folder / "run")
    (folder / "run" / name).write_bytes(content)
    return folder / "run"


def relined(text, change):
    """A journal whose records are others, each line whole and in its place."""
    tip, lines = "0" * 64, b""
    for record in change([json.loads(line[9:]) for line in text.splitlines()]):
        if isinstance(record, dict):
            record["previous"] = tip
        body = json.dumps(record).encode()
        line = b"%08x %s\n" % (zlib.crc32(body), body)
        tip, lines = journal._hash(line), lines + line
    return lines


def is_cut_off(content, whole):
    """Whether the whole lines that are left are the first ones: a last line without its end is what a crash leaves of a write."""
    return whole.startswith(content[: content.rfind(b"\n") + 1])


def test_the_undamaged_run_can_be_resumed(run, tmp_path_factory):
    for _ in range(2):
        assert resumed(copy_of(run, tmp_path_factory, "ledger", (run / "run" / "ledger").read_bytes())) == TAKEN


def test_a_damaged_ledger_never_counts_less(run, tmp_path_factory):
    """But for an end that is cut off in the midst of a line, which is what a crash leaves: the anchor and the checkpoint tell."""
    path = run / "run" / "ledger"
    whole, known = path.read_bytes(), read_history(path)[0]

    @fuzzed(100)
    @given(damaged(whole))
    def hold(content):
        other = tmp_path_factory.mktemp("ledger") / "ledger"
        other.write_bytes(content)
        try:
            found = read_history(other)[0]
        except LedgerError:
            return
        assert found.spent == known.spent or is_cut_off(content, whole)

    hold()


@pytest.mark.parametrize("name", ["ledger", checkpoint.NAME])
def test_a_run_with_a_damaged_ledger_or_checkpoint_is_refused_or_counts_everything(run, tmp_path_factory, name):
    @fuzzed(8)
    @given(damaged((run / "run" / name).read_bytes()))
    def hold(content):
        spent = resumed(copy_of(run, tmp_path_factory, name, content))
        assert spent is None or spent >= TAKEN

    hold()


def test_records_that_make_no_sense_are_refused(run, tmp_path_factory):
    whole = (run / "run" / "ledger").read_bytes()
    records = [json.loads(line[9:]) for line in whole.splitlines()]

    @fuzzed(10)
    @given(altered(records).filter(lambda value: isinstance(value, list)))
    def hold(value):
        folder = copy_of(run, tmp_path_factory, "ledger", relined(whole, lambda _: value))
        command("ledger", "verify", folder)
        command("ledger", "show", folder)
        spent = resumed(folder)
        assert spent is None or spent >= TAKEN  # the anchor and the checkpoints know the lines that were there

    hold()


@pytest.mark.parametrize("name", ["budget", "anchor"])
def test_a_damaged_budget_or_anchor_is_refused_or_counts_everything(run, tmp_path_factory, name):
    whole = (run / name).read_bytes()
    records = [json.loads(line[9:]) for line in whole.splitlines()]
    original = read_history(run / "run" / "ledger")[0]

    @fuzzed(8)
    @given(st.one_of(damaged(whole), altered(records).map(
        lambda value: relined(whole, lambda _: value if isinstance(value, list) else [value]))))  # fmt: skip
    def hold(content):
        path = tmp_path_factory.mktemp("shared") / name
        path.write_bytes(content)
        if name == "budget":
            command("budget", "show", path)
            with contextlib.suppress(PrivetError):
                privet.Budget(path).account().total()
        else:
            with contextlib.suppress(LedgerError):
                privet.ledger.verify_anchor(path, original.run, lambda tip: True)

    hold()


def test_a_checkpoint_of_other_values_is_passed_over_or_refused(run, tmp_path_factory):
    state = checkpoint.read(run / "run" / checkpoint.NAME)
    odd = [None, -1, True, 2**70, "x", float("nan"), [], {}, torch.zeros(2), torch.tensor(float("nan")), {"x": 1}, (1,)]

    @fuzzed(10)
    @given(st.sampled_from(sorted(state)), st.sampled_from(odd), st.booleans())
    def hold(name, value, inside):
        changed = dict(state)
        if inside and isinstance(state[name], dict):
            inner = dict(state[name])
            inner[sorted(inner, key=str)[0]] = value
            changed[name] = inner
        else:
            changed[name] = value
        file = io.BytesIO()
        torch.save(changed, file)
        spent = resumed(copy_of(run, tmp_path_factory, checkpoint.NAME, file.getvalue()))
        assert spent is None or spent >= TAKEN

    hold()


@pytest.mark.parametrize("name", [checkpoint.NAME, checkpoint.PREVIOUS, "plan.json", "ledger", "status.json"])
def test_a_pickle_in_the_place_of_a_file_is_never_read(run, tmp_path_factory, name):
    marker = tmp_path_factory.mktemp("marker") / "executed"
    folder = copy_of(run, tmp_path_factory, name, bomb(marker))
    resumed(folder)
    command("ledger", "verify", folder)
    command("report", folder)
    assert not marker.exists()


@st.composite
def damaged_files(draw, run):
    """The name of one of a run's files, and what has become of its content."""
    name = draw(st.sampled_from([
        "plan.json", "run.json", "status.json", "metrics.jsonl", "evaluation.json", "guarantee.json", "model/model.safetensors"
    ]))  # fmt: skip
    whole = (run / name).read_bytes()
    if name.endswith(".json") and draw(st.booleans()):
        return name, json.dumps(draw(altered(json.loads(whole)))).encode()
    return name, draw(damaged(whole))


@pytest.fixture(scope="module")
def drawn_in_fuzzing_alone():
    """To write figures takes most of the time of a report; `make fuzz` does."""
    with pytest.MonkeyPatch.context() as patch:
        if TIMES == 1:
            patch.setattr("matplotlib.figure.Figure.savefig", lambda figure, stream, **_: stream.write("<svg></svg>"))
        yield


def test_a_run_with_a_damaged_file_is_reported_or_refused(drawn_in_fuzzing_alone, finished, tmp_path_factory):
    @fuzzed(6)
    @given(damaged_files(finished))
    def hold(file):
        name, content = file
        folder = tmp_path_factory.mktemp("finished")
        shutil.copytree(finished, folder, dirs_exist_ok=True)
        (folder / name).write_bytes(content)
        before = (folder / "report.html").read_text(encoding="utf-8")
        if command("report", folder) == 2:
            assert (folder / "report.html").read_text(encoding="utf-8") == before
        command("ledger", "verify", folder)
        command("audit", folder, "--observations", "10")  # whatever it read, so few are refused
        command("train", "--resume", folder, "--quiet")
        assert not left_over(folder)

    hold()
