import copy
import errno
import functools
import os
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import TensorDataset

import one_layer
import privet
from one_layer import stop_after
from privet.errors import InvalidArgumentError, LedgerError, PrivetWarning
from privet.ledger import journal
from privet.momentum import InnerOuter
from privet.training import checkpoint
from privet.training.state import ClippingState

N, STEPS, STOP = 50, 12, 7


class Net(nn.Module):
    """With a buffer, tied weights, and parameters of two precisions."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.last = nn.Linear(4, 1, dtype=torch.float64)
        self.register_buffer("shift", torch.randn(4))

    def forward(self, x):
        hidden = self.second(torch.tanh(self.first(x + self.shift)))
        return self.last(hidden.double())[:, 0]


def loss_fn(model, batch):
    return model(batch[0]).square()


plan = functools.partial(one_layer.plan, 10.0, STEPS, examples=N)


PLANS = {
    "plain": plan(),
    "adaptive bound": plan(clipping=privet.clipping.AdaptiveQuantile(privet.clipping.Flat(0.6), learning_rate=0.5)),
    "adaptive bounds of layers": plan(
        clipping=privet.clipping.AdaptiveQuantile(privet.clipping.Layerwise(privet.clipping.Flat(0.6)))
    ),
    "momentum": plan(momentum=InnerOuter(0.8, 0.3, 2)),
    "random masks": plan(sparsification=privet.sparsification.Random(0.5, refresh=1)),
    "ranked masks": plan(sparsification=privet.sparsification.Ranked(0.5, refresh=1)),
    "scheduled bound": plan(bound_schedule=privet.schedules.Geometric()),
}
OPTIMIZERS = {
    "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.8, nesterov=True),
    "adamw": lambda model: torch.optim.AdamW(model.parameters(), lr=0.02, amsgrad=True),
}
SCHEDULERS = {
    "none": lambda optimizer: None,
    "one cycle": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=STEPS, cycle_momentum=False),
    "lambda": lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step),
    "sequence": lambda optimizer: torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [torch.optim.lr_scheduler.LinearLR(optimizer), torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)],
        milestones=[4],
    ),
}
AVERAGES = {
    "none": lambda model: None,
    "ema": lambda model: AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.7)),
}


DATA = TensorDataset(torch.randn(N, 4))


def started(directory, the_plan, optimizer="sgd", scheduler="none", average="none", resume=False):
    model = Net()
    made = OPTIMIZERS[optimizer](model)
    parts, options = (model, loss_fn, made, DATA), {"scheduler": SCHEDULERS[scheduler](made), "average": AVERAGES[average](model)}
    if resume:
        return privet.Training.resume(directory, *parts, **options)
    return privet.Training(the_plan, *parts, directory, **options)


resumed = functools.partial(started, resume=True)


def stopped(training):
    stop_after(training, STOP)


def public_state(training):
    parts = {name: part.state_dict() for name, part in training._state.parts.items()}
    return copy.deepcopy({"model": training.model.state_dict(), **parts})


def identical(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and one.numpy().tobytes() == other.numpy().tobytes()
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(identical(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(identical, one, other))
    return one == other


CASES = [
    *[(name, "sgd", "none", "none") for name in PLANS],
    *[("plain", optimizer, "none", "none") for optimizer in OPTIMIZERS if optimizer != "sgd"],
    *[("plain", "sgd", scheduler, "none") for scheduler in SCHEDULERS if scheduler != "none"],
    *[("plain", "sgd", "none", average) for average in AVERAGES if average != "none"],
    ("ranked masks", "adamw", "sequence", "ema"),
]


@pytest.mark.product
@pytest.mark.parametrize("case", CASES, ids=", ".join)
def test_the_public_state_is_restored_to_the_last_bit(tmp_path, case):
    the_plan, *others = PLANS[case[0]], *case[1:]
    first = started(tmp_path, the_plan, *others)
    stopped(first)
    again = resumed(tmp_path, the_plan, *others)
    assert identical(public_state(first), public_state(again))
    upcoming = STOP + 1
    (rule, masks), (same_rule, same_masks) = first._state.at(upcoming), again._state.at(upcoming)
    assert rule == same_rule
    assert identical(masks, same_masks)


def test_the_randomness_of_a_resumed_run_is_new(tmp_path):
    """Two continuations of one state: were any of it stored, their difference would be free of noise."""
    the_plan = PLANS["plain"]
    stopped(started(tmp_path, the_plan))
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    ends = []
    for _ in range(2):
        for path, content in files.items():
            path.write_bytes(content)
        with resumed(tmp_path, the_plan) as training:
            training.run()
        ends.append(training.model.first.weight.detach().clone())
    assert not (ends[0] == ends[1]).any()


def test_a_crash_between_the_two_moves_of_a_checkpoint_leaves_the_one_before(tmp_path):
    stopped(started(privet.Storage(tmp_path, checkpoint_every=3), PLANS["plain"]))
    (tmp_path / checkpoint.NAME).unlink()
    training = resumed(tmp_path, PLANS["plain"])
    assert training._record.completed == 6
    assert training.steps_spent == STOP


@pytest.mark.parametrize("content", [b"", b"half a file", pickle.dumps({"step": 3}, protocol=2)])
def test_a_checkpoint_that_cannot_be_read_gives_way_to_the_one_before_and_says_so(tmp_path, content):
    stopped(started(privet.Storage(tmp_path, checkpoint_every=3), PLANS["plain"]))
    (tmp_path / checkpoint.NAME).write_bytes(content)
    with pytest.warns(PrivetWarning, match="is used instead"):
        training = resumed(tmp_path, PLANS["plain"])
    assert training._record.completed == 6
    training.close()
    (tmp_path / checkpoint.NAME).write_bytes(content)
    (tmp_path / checkpoint.PREVIOUS).write_bytes(content)
    with pytest.raises(LedgerError, match="neither can the previous one"):
        resumed(tmp_path, PLANS["plain"])


class Bomb:
    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return os.mkdir, (str(self.place),)


@pytest.mark.parametrize("write", [functools.partial(pickle.dump, protocol=2), torch.save])
def test_nothing_that_a_checkpoint_says_is_executed(tmp_path, write):
    run, place = tmp_path / "run", tmp_path / "exploded"
    stopped(started(run, PLANS["plain"]))
    for name in (checkpoint.NAME, checkpoint.PREVIOUS):
        with (run / name).open("wb") as file:
            write({"step": 3, "ledger": "", "model": Bomb(place)}, file)
    with pytest.raises(LedgerError, match="cannot be read"):
        resumed(run, PLANS["plain"])
    assert not place.exists()


def test_a_newer_checkpoint_than_the_ledger_is_refused_though_an_older_one_would_do(tmp_path):
    training = started(privet.Storage(tmp_path, checkpoint_every=3), PLANS["plain"])
    old = (tmp_path / "ledger").read_bytes()
    stopped(training)
    (tmp_path / "ledger").write_bytes(old)
    with pytest.raises(LedgerError, match="newer than, or foreign to"):
        resumed(tmp_path, PLANS["plain"])


def test_state_that_could_not_be_read_again_is_refused_before_the_first_step(tmp_path):
    class Diary(torch.optim.SGD):
        def state_dict(self):
            return {**super().state_dict(), "diary": Bomb(tmp_path / "exploded")}

    model = Net()
    arguments = (PLANS["plain"], model, loss_fn, Diary(model.parameters(), lr=0.1), DATA)
    with pytest.raises(LedgerError, match="could not be resumed"):
        privet.Training(*arguments, tmp_path / "run")
    assert not (tmp_path / "exploded").exists()
    assert not list((tmp_path / "run").iterdir())
    privet.Training(*arguments).run()  # without a directory there is nothing to resume


def test_a_refused_run_leaves_room_where_open_files_cannot_be_removed(tmp_path, monkeypatch):
    """As on Windows."""
    unlink = Path.unlink

    def removed(path, missing_ok=False):
        if any(chain.held and chain.path == path for chain in journal._OPEN if isinstance(chain, journal.Journal)):
            raise PermissionError(errno.EACCES, "in use", str(path))
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", removed)
    test_state_that_could_not_be_read_again_is_refused_before_the_first_step(tmp_path)


def test_leftovers_of_writes_that_were_killed_are_removed(tmp_path):
    stopped(started(tmp_path, PLANS["plain"]))
    (tmp_path / f".{checkpoint.NAME}.{'0' * 32}").write_bytes(b"half")
    resumed(tmp_path, PLANS["plain"]).close()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_disk_that_refuses_a_checkpoint_is_named_and_the_last_one_stays(tmp_path, monkeypatch):
    training = started(tmp_path, PLANS["plain"])
    next(iter(training))

    def write_to_full_disk(path, write, *, keep):
        write(Path("/dev/full"))

    monkeypatch.setattr(checkpoint, "write_atomically", write_to_full_disk)
    with pytest.raises(LedgerError, match=r"could not be written: No space left on device\. Free some space"):
        training.save()
    monkeypatch.undo()
    training.close()
    assert resumed(tmp_path, PLANS["plain"]).steps_spent == 1


def test_a_closed_training_writes_nothing_more(tmp_path):
    training = started(tmp_path, PLANS["plain"])
    steps = iter(training)
    next(steps)
    training.close()
    with resumed(tmp_path, PLANS["plain"]) as again:
        again.run()
        after = {path.name: path.read_bytes() for path in tmp_path.glob("*") if path.is_file()}
    steps.close()
    training.close()
    with pytest.raises(LedgerError, match="was closed"):
        training.save()
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*") if path.is_file()} == after


@pytest.mark.parametrize(("name", "value"), [("step", -1), ("step", "1"), ("ledger", None), ("model", None)])
def test_state_of_other_kinds_is_no_checkpoint(tmp_path, name, value):
    torch.save({"step": 1, "ledger": "", "model": {}} | {name: value}, tmp_path / "checkpoint.pt")
    with pytest.raises(checkpoint.CorruptCheckpointError, match="no state of a run"):
        checkpoint.read(tmp_path / "checkpoint.pt")


@pytest.mark.parametrize("rule", [None, {"rule": 3}, {"rule": {"kind": "Flat", "bound": 7.0}}])
def test_a_checkpoint_does_not_replace_the_rule(rule):
    current = ClippingState(privet.clipping.Flat(0.6), [1.0], ["w"])
    with pytest.raises((InvalidArgumentError, TypeError)):
        current.load_state_dict(rule)
    assert current.at(1) == privet.clipping.Flat(0.6)


def test_a_checkpoint_in_which_a_bit_has_changed_is_unreadable(tmp_path):
    """A weight of another sign, or a tensor that takes the memory of another, would be read as if nothing had happened."""
    path = tmp_path / "checkpoint.pt"
    checkpoint._write({"step": 1, "ledger": "", "model": {"weight": torch.ones(4), "bias": torch.ones(1)}}, path)
    assert checkpoint.read(path)["step"] == 1
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as parts:
        places = [whole.index(content) for entry in parts.infolist() if len(content := parts.read(entry)) >= 4]
    for place in places:
        path.write_bytes(whole[: place + 3] + bytes([whole[place + 3] ^ 1]) + whole[place + 4 :])
        with pytest.raises(checkpoint.CorruptCheckpointError):
            checkpoint.read(path)
