"""What is held by objects without attributes is as before after a pass: by views, cells, locks, exceptions and the like."""

import threading
import types
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

from privet.gradients import per_example_norms


class Held:
    number = 1.0


def append(items):
    items.append(2.0)
    return items[-2]


def of_a_thread(held):
    old, held.number = getattr(held, "number", 1.0), 2.0
    return old


def attribute(held):
    old, held.number = held.number, 2.0
    return old


def byte(held):
    old, held[0] = float(held[0]), 2
    return old


def field(held):
    old, held["number"] = float(held["number"]), 2.0
    return old


def arguments(held):
    old, held.args = held.args[0], (2.0,)
    return old


def cause(held):
    old, held.__cause__ = held.__cause__, KeyError()
    return 1.0 if old is None else 2.0


def flag(held):
    old = 2.0 if held[0].requires_grad else 1.0
    held[0].requires_grad_(True)
    return old


def contents(held):
    try:
        old = held.cell_contents
    except ValueError:
        old = 1.0
    held.cell_contents = 2.0
    return old


def lock(held):
    return 1.0 if held.acquire(blocking=False) else 2.0


def unlock(held):
    if not held.locked():
        return 2.0
    held.release()
    return 1.0


def locked():
    made = threading.Lock()
    made.acquire()
    return made


def lock_again(held):
    if held._is_owned():
        return 2.0
    held.acquire()
    return 1.0


def unlock_again(held):
    if not held._is_owned():
        return 2.0
    held.release()
    return 1.0


def owned():
    made = threading.RLock()
    made.acquire()
    return made


# What a model holds, and what reads and changes it: 1 at first, 2 ever after.
PROGRAMS = {
    "thread-local": (threading.local, of_a_thread),
    "read-only dictionary": (lambda: types.MappingProxyType({"key": [1.0]}), lambda held: append(held["key"])),
    "values": (lambda: {"key": [1.0]}.values(), lambda held: append(next(iter(held)))),
    "items": (lambda: OrderedDict(key=[1.0]).items(), lambda held: append(next(iter(held))[1])),
    "memory": (lambda: memoryview(bytearray([1])), byte),
    "part of a memory": (lambda: memoryview(bytearray([0, 1]))[1:], byte),
    "record of an array": (lambda: np.ones(2, dtype=[("number", "f4"), ("count", "i4")])[0], field),
    "record by itself": (lambda: np.rec.array([(1.0, 2)], dtype=[("number", "f4"), ("count", "i4")])[0].copy(), field),
    "arguments of an exception": (lambda: ValueError(1.0), arguments),
    "list in an exception": (lambda: ValueError([1.0]), lambda held: append(held.args[0])),
    "cause of an exception": (lambda: ValueError(1.0), cause),
    "frozen set": (lambda: frozenset([Held()]), lambda held: attribute(next(iter(held)))),
    "slice": (lambda: slice([1.0]), lambda held: append(held.stop)),
    "cell": (lambda: types.CellType(1.0), contents),
    "empty cell": (types.CellType, contents),
    "open lock": (threading.Lock, lock),
    "closed lock": (locked, unlock),
    "open recursive lock": (threading.RLock, lock_again),
    "closed recursive lock": (owned, unlock_again),
    "gradient flag": (lambda: [torch.ones(1)], flag),
}


class Model(nn.Module):
    def __init__(self, held, factor):
        super().__init__()
        self.layer, self.held, self.factor = nn.Linear(3, 2), held, factor

    def forward(self, x):
        return self.layer(x) * self.factor(self.held)


def loss(model, x):
    return model(x).square().sum(1)


@pytest.mark.parametrize("method", ["loop", "auto"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_does_not_meet_what_another_has_left(name, method):
    make, factor = PROGRAMS[name]
    x, held = torch.randn(4, 3), make()
    model = Model(held, lambda _: 1.0)
    expected = per_example_norms(model, loss, x, method=method).tolist()
    model.factor = factor
    assert per_example_norms(model, loss, x, method=method).tolist() == pytest.approx(expected)
    assert factor(held) == 1.0
    assert factor(held) == 2.0
