"""Objects that `copy.deepcopy` refuses are copied part by part; only what holds nothing is shared."""

import collections
import copy
import functools
import math
import mmap
import threading
import types
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from privet.gradients.core.copying import UncopyableError, deep_copy, is_bare


class Record:
    """An object that cannot be copied because of a lock."""

    def __init__(self, **attributes):
        self.lock = threading.Lock()
        vars(self).update(attributes)


class Slotted:
    __slots__ = ("__hidden", "lock", "unset", "x")

    def __init__(self, x):
        self.x, self.lock, self.__hidden = x, threading.RLock(), x


class Hiding(Slotted):
    """Slots of a base class, and attributes."""

    def __init__(self, x):
        super().__init__(x)
        self.more = [x]


@dataclass(frozen=True)
class Frozen:
    x: torch.Tensor
    lock: object = field(default_factory=threading.Lock)


class Refusing:
    """Says that it cannot be copied."""

    def __init__(self, x):
        self.x = x

    def __reduce_ex__(self, protocol):
        raise TypeError("no")


class RefusingDeepCopies(Record):
    def __deepcopy__(self, memo):
        raise RuntimeError("no")


class Listing(list):
    """A list with attributes."""


class Local(threading.local):
    """Attributes of one thread."""


Pair = collections.namedtuple("Pair", "x lock")


def listing(x):
    made = Listing([x])
    made.lock, made.x = threading.Lock(), x
    return made


def local(kind, x):
    made = kind()
    made.x = x
    return made


def computed(x):
    """Return an equal tensor that has a history."""
    return x * torch.ones(2, requires_grad=True)


def module_of(x):
    made = torch.nn.Linear(2, 2)
    made.seen = computed(x)
    return made


# How an object is made of a tensor x, and how that is read from it.
KINDS = {
    "an attribute": (lambda x: Record(x=x), lambda made: made.x),
    "an array": (lambda x: Record(x=x.numpy()), lambda made: torch.from_numpy(made.x)),
    "a list in a dict": (lambda x: Record(held={"a": [x]}), lambda made: made.held["a"][0]),
    "a default dict": (lambda x: collections.defaultdict(threading.Lock, a=Record(x=x)), lambda made: made["a"].x),
    "a queue": (lambda x: collections.deque([Record(x=x)], 3), lambda made: made[0].x),
    "a tuple": (lambda x: (x, threading.Lock()), lambda made: made[0]),
    "a named tuple": (lambda x: Pair(x, threading.Lock()), lambda made: made.x),
    "an array of objects": (lambda x: np.array([Record(x=x), None]), lambda made: made[0].x),
    "a function with arguments": (lambda x: functools.partial(torch.add, Record(x=x)), lambda made: made.args[0].x),
    "a view of a dict": (lambda x: Record(held={"a": x}.values()), lambda made: next(iter(made.held))),
    "a proxy": (lambda x: Record(held=types.MappingProxyType({"a": x})), lambda made: made.held["a"]),
    "a cell": (lambda x: Record(held=types.CellType(x)), lambda made: made.held.cell_contents),
    "slots": (Slotted, lambda made: made.x),
    "hidden slots": (Slotted, lambda made: made._Slotted__hidden),
    "slots of a base class": (Hiding, lambda made: made.x),
    "attributes next to slots": (Hiding, lambda made: made.more[0]),
    "a frozen class": (Frozen, lambda made: made.x),
    "a class that refuses": (Refusing, lambda made: made.x),
    "a class that refuses deep copies": (lambda x: RefusingDeepCopies(x=x), lambda made: made.x),
    "a list with attributes": (listing, lambda made: made.x),
    "elements of a list with attributes": (listing, lambda made: made[0]),
    "attributes of a thread": (lambda x: Record(held=local(threading.local, x)), lambda made: made.held.x),
    "a class of attributes of a thread": (lambda x: Record(held=local(Local, x)), lambda made: made.held.x),
    "a tensor with a history": (lambda x: types.SimpleNamespace(x=computed(x)), lambda made: made.x),
    "a module with such a tensor": (module_of, lambda made: made.seen),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_object_holds_is_copied(kind):
    make, read = KINDS[kind]
    value = make(torch.tensor([1.0, 2.0]))
    with pytest.raises(Exception):  # noqa: B017
        copy.deepcopy(value)
    made = deep_copy(value)
    with torch.no_grad():
        read(value).fill_(9.0)
    assert type(made) is type(value)
    assert read(made).tolist() == [1.0, 2.0]
    assert not read(made).requires_grad


def test_memory_is_copied():
    buffer = bytearray(np.arange(6.0).tobytes())
    record = Record(view=memoryview(buffer).cast("d", (2, 3)), read_only=memoryview(buffer).toreadonly())
    made = deep_copy(record)
    buffer[:] = bytes(len(buffer))
    assert made.view.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert made.read_only.readonly
    assert any(made.read_only)


def test_what_holds_nothing_is_shared(tmp_path):
    path = tmp_path / "rows"
    path.write_text("a")
    with path.open() as file:
        numbers = (number for number in range(3))
        held = {"file": file, "numbers": numbers, "module": math, "kind": Record, "function": deep_copy}
        made = deep_copy(Record(**held))
        assert all(getattr(made, name) is part for name, part in held.items())
        assert made.lock.acquire(blocking=False)
        assert file.read() == "a"
    assert not is_bare(local(threading.local, 1))


def test_parts_that_are_one_object_stay_one_and_cycles_end():
    x = torch.ones(2)
    record = Record(one=[x], other=(x, threading.Lock()), part=Record())
    record.self, record.part.owner = record, record
    made = deep_copy(record)
    assert made is not record
    assert made.self is made
    assert made.part.owner is made
    assert made.one[0] is made.other[0]


class Owning(Record):
    """Releases what it holds."""

    def __del__(self):
        self.released = True


@pytest.mark.parametrize("make", [lambda: mmap.mmap(-1, 8), lambda: Owning(x=1)], ids=["memory", "a resource"])
def test_contents_that_cannot_be_copied_are_an_error_that_names_the_class(make):
    value = make()
    with pytest.raises(UncopyableError, match=type(value).__name__):
        deep_copy(Record(part=[value]))
