import copy
import io
import os
import pickle

import pytest
import torch
from torch import nn

from one_layer import D, N, plan, setup
from privet import Training
from privet.budget import Budget
from privet.errors import LedgerError
from privet.ledger import Ledger
from privet.ledger.journal import Chain, Journal
from privet.noise import Token
from privet.noise.prefetch import Prefetcher
from privet.noise.sources import SOURCES, Keystream

STEPS = 5


def training(directory=None):
    return setup(plan(steps=STEPS), torch.randn(N, D), directory)


def budget(folder):
    return Budget.create(folder / "budget", epsilon=30.0, delta=1e-5, examples=N)


UNIQUE = {
    "a training": lambda folder: training(),
    "a training with a directory": lambda folder: training(folder / "run"),
    "the record of a run": lambda folder: training()._record,
    "a ledger": lambda folder: Ledger.create({}, [1.0, 1.0], folder / "ledger"),
    "a ledger in memory": lambda folder: Ledger.create({}, [1.0, 1.0], None),
    "a chain": lambda folder: Chain("a chain"),
    "a journal": lambda folder: Journal(folder / "journal", "the journal"),
    "a token": lambda folder: Token(1, 1.3),
    "a keystream": lambda folder: Keystream(),
    "numbers drawn ahead": lambda folder: Prefetcher.start(lambda block: None, []),
    "a budget": budget,
    "an account": lambda folder: budget(folder).account(),
    **{f"the source {name}": lambda folder, kind=kind: kind() for name, kind in SOURCES.items()},
}
WAYS = [
    copy.copy, copy.deepcopy, pickle.dumps, lambda x: torch.save(x, io.BytesIO()), lambda x: copy.deepcopy([x]),
    lambda x: copy.deepcopy(_holding(x)),
]  # fmt: skip


def _holding(x):
    module = nn.Linear(1, 1)
    module.held = x
    return module


@pytest.mark.parametrize("make", UNIQUE.values(), ids=list(UNIQUE))
def test_nothing_that_spends_can_be_copied(make, tmp_path):
    made = make(tmp_path)
    if isinstance(made, Training):
        with pytest.raises(TypeError, match=r"taken twice, and the ledger would count them once.*Training\.resume"):
            copy.copy(made)
    for way in WAYS:
        with pytest.raises(TypeError, match=rf"^a {type(made).__name__} cannot be copied or pickled\. .{{30,}}\.$"):
            way(made)


def test_what_runs_release_and_promise_can_be_copied():
    done = training()
    done.run()
    for value in (done.plan, done.guarantee(), done.model, done.optimizer.state_dict()):
        copy.deepcopy(value)
        pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize(("begun", "where"), [(False, "memory"), (True, "memory"), (True, "directory")])
def test_a_fork_takes_no_step(begun, where, tmp_path):
    original = training(None if where == "memory" else tmp_path)
    steps = iter(original)
    if begun:
        next(steps)
    before = original.model.w.detach().clone()
    child = os.fork()
    if child == 0:
        code = 9
        try:
            for attempt in (lambda: next(steps), original.run):
                try:
                    attempt()
                except LedgerError as error:
                    same = torch.equal(original.model.w.detach(), before)
                    code = 7 if "a fork must not spend" in str(error) and same else 8
                if code != 7:
                    break
        finally:
            os._exit(code)  # whatever happens: this process must not return to pytest
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) in ((7,) if not begun else (7, 9))
    assert not (tmp_path / "guarantee.md").exists()  # a fork must not state what it did not see
    original.run()
    assert original.steps_spent == STEPS
    assert (tmp_path / "guarantee.md").exists() == (where == "directory")
    assert len(list(steps)) == 0
