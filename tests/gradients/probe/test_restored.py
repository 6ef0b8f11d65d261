"""A model that changes its own state is told that every pass restores it, from made-up input alone."""

import warnings
from collections import deque

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import privet
from privet.errors import PrivetWarning
from privet.gradients.core.examples import split_batch
from privet.gradients.methods.ghost import Program
from privet.gradients.parameters import trainable
from privet.gradients.probe.probe import probe
from privet.gradients.probe.restored import find_restored


class Changing(nn.Module):
    """A linear layer, and a function that changes the module."""

    def __init__(self, change):
        super().__init__()
        self.change, self.layer = change, nn.Linear(4, 3)
        self.steps, self.warm, self.seen, self.recent = 0, False, [], deque(maxlen=4)
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        y = self.layer(x)
        self.change(self, y.detach())
        return y


def cache(module, y):
    module.cached, module.mask = y.shape, torch.ones(y.shape)


def remember(module, y):
    SEEN.append(1)


def total(module, y):
    TOTAL.add_(1)


def number(module, y):
    global NUMBER
    NUMBER += 1


SEEN, TOTAL, NUMBER = [], torch.zeros(()), 0


def losses(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


def examples():
    return split_batch((torch.randn(5, 4), torch.arange(5) % 3))


def count(module, y):
    module.steps += 1


@pytest.mark.parametrize(("change", "name"), [
    (lambda module, y: module.mean.add_(y.mean(0)), "buffer 'inner.mean'"),
    (lambda module, y: setattr(module, "mean", module.mean + y.mean(0)), "buffer 'inner.mean'"),
    (count, "attribute 'inner.steps'"), (lambda module, y: setattr(module, "warm", True), "attribute 'inner.warm'"),
    (lambda module, y: module.seen.append(1), "attribute 'inner.seen'"),
    (lambda module, y: module.recent.append(1), "attribute 'inner.recent'"),
    (lambda module, y: setattr(module, "last", y), "attribute 'inner.last'"),
    (lambda module, y: setattr(module, "last", (y, y)), r"attribute 'inner.last'\[0\], attribute 'inner.last'\[1\]"),
    (remember, "name 'SEEN' of remember"), (total, "name 'TOTAL' of total"), (number, "name 'NUMBER' of number"),
])  # fmt: skip
def test_what_a_model_changes_is_named_and_stays_as_it_was(change, name):
    inner = Changing(change)
    model = nn.Sequential()
    model.add_module("inner", inner)
    with pytest.warns(PrivetWarning, match=f"changes its own state while it runs \\({name}\\)"):
        probe(model, losses, [examples()])
    assert (inner.steps, inner.warm, inner.seen, list(inner.recent)) == (0, False, [], [])
    assert not inner.mean.any()
    assert (SEEN, int(TOTAL), NUMBER) == ([], 0, 0)


@pytest.mark.parametrize("model", [
    Changing(lambda module, y: None),
    Changing(cache),
    nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)), nn.Dropout(0.1)),
    nn.utils.spectral_norm(nn.Linear(4, 3)),
], ids=["nothing", "cache", "spectral norm", "old spectral norm"])  # fmt: skip
def test_nothing_is_said_of_caches_and_of_what_is_advanced_between_steps(model):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        probe(model, losses, [examples()])
    assert not [each for each in said if issubclass(each.category, PrivetWarning)]


def test_a_model_that_fails_is_left_to_the_check():
    def fail(module, y):
        module.steps += 1
        raise ValueError

    model = Changing(fail)
    assert find_restored(Program(model, losses, trainable(model)), examples()) == []
    assert model.steps == 0


def test_a_long_list_is_cut():
    def change(module, y):
        for number in range(9):
            setattr(module, f"count{number}", getattr(module, f"count{number}") + 1)

    model = Changing(change)
    for number in range(9):
        setattr(model, f"count{number}", 0)
    with pytest.warns(PrivetWarning, match=r"'count2' and 6 more\)"):
        probe(model, losses, [examples()])


def test_training_says_so_before_its_first_step():
    plan = privet.Plan(
        examples=20, sampling=privet.sampling.Poisson(batch_size=5), steps=2, clipping=privet.clipping.Flat(bound=0.3), delta=1e-3
    ).calibrate(epsilon=4.0)
    model = Changing(count)
    data = TensorDataset(torch.randn(20, 4), torch.arange(20) % 3)
    with pytest.warns(PrivetWarning, match="attribute 'steps'"):
        training = privet.Training(plan, model, losses, torch.optim.SGD(model.parameters(), lr=0.3), data)
    training.run()
    assert model.steps == 0
