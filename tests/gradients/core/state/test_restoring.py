"""Objects whose state is not in attributes are restored after a pass: arrays of objects, streams, caches, generators."""

import contextlib
import functools
import io
import operator
import random
import types
from collections import OrderedDict, defaultdict, deque

import numpy as np
import pytest
import torch
from torch import nn

from privet.errors import UnsupportedModelError
from privet.gradients import per_example_norms
from privet.gradients.core.state.restoring import save_generator


def _write(stream, text):
    read = len(stream.getvalue())
    stream.write(text)
    return read


def _swap(read, change):
    """Return a function that reads an object, changes it, and returns what it read."""
    return lambda held: (read(held), change(held))[0]


def _release(view):
    with contextlib.suppress(BufferError):  # as it should
        view.release()
    return 1


def _show(view):
    try:
        return view.tolist()
    except ValueError:
        return "released"


def _own_module():
    made = types.ModuleType("settings_of_the_user")
    made.factor, made.seen = 1.0, []
    return made


# What a model holds: name → (how it is made, how it is read and then changed, what is the same afterwards).
HELD = {
    "list in an array": (
        lambda: np.array([[1.0], None], dtype=object)[:1], lambda held: (held[0][-1], held[0].append(2.0))[0], lambda x: x[0],
    ),
    "text": (lambda: io.StringIO("ab"), lambda held: _write(held, "some text"), lambda held: (held.getvalue(), held.tell())),
    "bytes": (lambda: io.BytesIO(b"ab"), lambda held: _write(held, b"bytes"), lambda held: (held.getvalue(), held.tell())),
    "text that is read": (lambda: io.StringIO("12"), lambda held: int(held.read(1) or 0), lambda held: held.tell()),
    "text that is closed": (
        lambda: io.StringIO("ab"), _swap(lambda held: 1 + held.closed, io.StringIO.close), lambda held: held.getvalue(),
    ),
    "view that is released": (lambda: memoryview(bytearray(b"\x01")), _release, _show),
    "view of bytes that is released": (lambda: memoryview(b"\x01"), _release, _show),
    "type of an array": (
        lambda: np.ones(2, dtype=np.int32),
        _swap(lambda held: 1 + (held.dtype.kind == "f"), lambda held: setattr(held, "dtype", np.float32)),
        lambda held: (held.dtype, held.tolist()),
    ),
    "names of fields": (
        lambda: np.ones(1, dtype=[("a", "f4")]),
        _swap(lambda held: len(held.dtype.names[0]), lambda held: setattr(held.dtype, "names", ("abc",))),
        lambda held: (held.dtype.names, held.tolist()),
    ),
    "factory of a dictionary": (
        lambda: defaultdict(list),
        _swap(lambda held: 1 + (held.default_factory is None), lambda held: setattr(held, "default_factory", None)),
        lambda held: held.default_factory,
    ),
    "value of an exception": (
        lambda: StopIteration(1), _swap(lambda held: held.value, lambda held: setattr(held, "value", held.value + 1)),
        lambda held: held.value,
    ),
    "number of an error": (
        lambda: OSError(1, "text"), _swap(lambda held: held.errno, lambda held: setattr(held, "errno", held.errno + 1)),
        lambda held: held.errno,
    ),
    "attribute of an empty dictionary": (
        OrderedDict, _swap(lambda held: 1 + len(vars(held)), lambda held: setattr(held, "note", 1)), vars,
    ),
    "number in a module of the user": (
        _own_module, _swap(lambda held: held.factor, lambda held: setattr(held, "factor", held.factor + 1)),
        lambda held: held.factor,
    ),
    "list in a module of the user": (
        _own_module, _swap(lambda held: 1 + len(held.seen), lambda held: held.seen.append(1)), lambda held: held.seen,
    ),
    "cache": (
        lambda: functools.lru_cache(lambda: [1.0]), lambda held: (held()[-1], held().append(2.0))[0],
        lambda held: held.cache_info().currsize,
    ),
}  # fmt: skip


@pytest.mark.parametrize("method", ["ghost", "loop"])
@pytest.mark.parametrize("name", HELD)
def test_state_that_is_not_in_attributes_is_restored(name, method):
    torch.manual_seed(0)
    make, use, told = HELD[name]
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    model.held = make()
    before = repr(told(model.held))

    def loss(m, x):
        return m(x).square().sum(1) * use(m.held)

    norms = per_example_norms(model, loss, x, method=method)
    alone = [per_example_norms(model, loss, x[i : i + 1], method=method).item() for i in range(4)]
    assert norms.tolist() == pytest.approx(alone, rel=1e-5)
    assert norms.min() > 0
    assert repr(told(model.held)) == before


@pytest.mark.parametrize("entries", [1, 2])
@pytest.mark.parametrize("size", [None, 8], ids=["endless", "bounded"])
@pytest.mark.parametrize("make", [lambda: [1.0], lambda: {"last": 1.0}, dict], ids=["list", "dict", "empty dict"])
def test_what_a_cache_held_before_is_restored(make, size, entries):
    """The cache stays as it is, with its results as they were."""
    held = functools.lru_cache(size)(lambda _: make())
    model, before = nn.Linear(3, 2), [held(number) for number in range(entries)]
    model.held = held

    def loss(m, x):
        found = m.held(0)
        factor = found[-1] if isinstance(found, list) else found.get("last", 1.0)
        found.append(2.0) if isinstance(found, list) else found.update(last=2.0)
        return m(x).sum(1) * factor

    norms = [per_example_norms(model, loss, torch.ones(4, 3), method="loop") for _ in range(2)]
    assert torch.equal(*norms)
    assert norms[0].unique().numel() == 1
    after = [held(number) for number in range(entries)]
    assert after == [make()] * entries
    assert all(map(operator.is_, after, before))


def called(*_):
    pytest.fail("a method of the user's was called")


METHODS = ["__iter__", "__len__", "keys", "values", "items", "clear", "update", "extend", "add", "append"]
UNUSUAL = {
    kind.__name__: type(f"Unusual_{kind.__name__}", (kind,), {name: called for name in METHODS if hasattr(kind, name)})
    for kind in (dict, OrderedDict, list, set, deque)
}


@pytest.mark.parametrize("kind", UNUSUAL)
def test_containers_are_restored_without_their_own_methods(kind):
    """Such methods may load files or create modules, and may fail."""
    model, own = nn.Linear(3, 2), UNUSUAL[kind]
    plain = next(base for base in own.__mro__ if base.__module__ in ("builtins", "collections"))
    add = {set: plain.__dict__.get("add"), deque: plain.__dict__.get("append"), list: plain.__dict__.get("append")}.get(
        plain, lambda held, x: plain.__setitem__(held, x, x)
    )
    model.held = own()
    add(model.held, 1)

    def loss(m, x):
        add(m.held, 2)
        return m(x).sum(1) * plain.__len__(m.held)

    norms = [per_example_norms(model, loss, torch.ones(4, 3), method="loop") for _ in range(2)]
    assert torch.equal(*norms)
    assert list(plain.__iter__(model.held)) == [1]


class Proxy:
    """Answers for every attribute, and takes none."""

    __slots__ = ("of",)

    def __getattr__(self, name):
        pytest.fail(f"{name} was asked for")


def test_attributes_are_read_without_an_objects_own_methods():
    model = nn.Linear(3, 2)
    model.held = Proxy()

    def loss(m, x):
        m.held.of = [x]
        return m(x).sum(1)

    assert (per_example_norms(model, loss, torch.ones(4, 3), method="loop") > 0).all()
    with pytest.raises(AttributeError):
        Proxy.of.__get__(model.held)


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_a_stream_that_an_example_closes_is_open_again_and_one_that_was_closed_stays_so(method):
    model = nn.Linear(3, 2)
    model.text, model.bytes, model.other = io.StringIO("text"), io.BytesIO(b"bytes"), io.BytesIO()
    model.text.seek(2)
    model.other.close()

    def loss(m, x):
        m.text.close(), m.bytes.close()
        return m(x).sum(1)

    assert (per_example_norms(model, loss, torch.ones(4, 3), method=method) > 0).all()
    assert (model.text.closed, model.bytes.closed) == (False, False)
    assert (model.text.getvalue(), model.text.tell(), model.bytes.getvalue()) == ("text", 2, b"bytes")
    assert model.other.closed


def _state(generator):
    read = {
        random.Random: lambda made: made.getstate(),
        np.random.RandomState: lambda made: made.get_state()[1:3],
        np.random.Generator: lambda made: (made.bit_generator.state, made.bit_generator.seed_seq.state),
        torch.Generator: lambda made: made.get_state().tolist(),
    }
    return repr(next((how for kind, how in read.items() if isinstance(generator, kind)), lambda made: made.state)(generator))


OWN = {
    "Python's": (random.Random, lambda made: made.random()),
    "NumPy's": (np.random.default_rng, lambda made: made.random()),
    "NumPy's old one": (np.random.RandomState, lambda made: made.rand()),
    "NumPy's Mersenne twister": (lambda seed: np.random.Generator(np.random.MT19937(seed)), lambda made: made.normal()),
    "children of seeds": (np.random.SeedSequence, lambda made: made.spawn(1)[0].spawn_key[-1] + 1),
    "children of a generator": (np.random.default_rng, lambda made: made.spawn(1)[0].random()),
    "NumPy's bits": (np.random.PCG64, lambda made: made.random_raw() % 7),
}


@pytest.mark.parametrize("method", ["ghost", "loop"])
@pytest.mark.parametrize("name", OWN)
def test_draws_from_a_generator_that_is_held_are_refused_and_undone(name, method):
    """Its numbers would be the same for all examples, or depend on how many were drawn before."""
    make, draw = OWN[name]
    model = nn.Linear(3, 2)
    model.source = make(1)
    before = _state(model.source)
    with pytest.raises(UnsupportedModelError, match="generator of Python or NumPy of its own"):
        per_example_norms(model, lambda m, x: m(x).sum(1) * draw(m.source), torch.randn(4, 3), method=method)
    assert _state(model.source) == before


@pytest.mark.parametrize("method", ["ghost", "loop"])
@pytest.mark.parametrize("name", OWN)
def test_a_generator_that_is_held_and_not_drawn_from_is_no_error(name, method):
    model = nn.Linear(3, 2)
    model.source = OWN[name][0](1)
    assert (per_example_norms(model, lambda m, x: m(x).sum(1), torch.randn(4, 3), method=method) > 0).all()


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_a_generator_of_torch_is_as_before(method):
    model = nn.Linear(3, 2)
    model.source = torch.Generator().manual_seed(3)
    before = _state(model.source)

    def loss(m, x):
        m.source.manual_seed(5)
        return m(x).sum(1) * torch.rand((), generator=m.source)

    assert (per_example_norms(model, loss, torch.ones(4, 3), method=method) > 0).all()
    assert _state(model.source) == before


@pytest.mark.parametrize(
    "draw", [random.random, np.random.random, random.SystemRandom().random], ids=["Python", "NumPy", "secret"]
)
def test_global_and_secret_generators_may_be_drawn_from(draw):
    """Draws from global ones are noticed elsewhere, and examples then run alone, each with its own numbers."""
    model = nn.Linear(3, 2)
    model.draw = draw
    torch.manual_seed(0)
    try:
        norms = per_example_norms(model, lambda m, x: m(x).sum(1) * m.draw(), torch.ones(4, 3), method="loop")
    except UnsupportedModelError as error:
        pytest.fail(f"refused: {error}")
    assert len(set(norms.tolist())) == 4


def test_states_are_told_apart_by_their_numbers():
    for make, draw in OWN.values():
        made, drawn = make(7), []
        restore = save_generator(made, lambda drawn=drawn: drawn.append(1))
        restore()
        assert not drawn
        first = draw(made)
        restore()
        assert drawn == [1]
        assert draw(made) == first
