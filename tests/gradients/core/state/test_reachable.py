"""What model and loss use is found wherever the user's own files define it: functions, modules, and what wraps a function."""

import contextlib
import functools
import importlib
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from privet.gradients import per_example_norms
from privet.gradients.core.state.bindings import read_bindings
from privet.gradients.core.state.reachable import find_functions
from privet.gradients.core.state.user_code import is_user_code

FILES = {
    "__init__": "",
    "memory": """
kept, total = [1.0], 1.0

def use():
    kept.append(2.0)
    return kept[-2]

def rebind():
    global total
    old, total = total, 2.0
    return old
""",
    "programs": """
from . import memory

def of_a_sibling():
    return memory.use()

def imported_where_it_is_used():
    from .memory import use
    return use()

def package_imported_where_it_is_used():
    from . import memory as other
    return other.use()
""",
    "inner/__init__": "",
    "inner/local": """
def imported_in_a_local_function():
    def inner():
        from of_the_user.memory import use
        return use()
    return inner()
""",
    "inner/programs": """
def imported_from_the_package_above():
    from ..memory import use
    return use()
""",
}
PROGRAMS = [
    "programs.of_a_sibling",
    "programs.imported_where_it_is_used",
    "programs.package_imported_where_it_is_used",
    "inner.local.imported_in_a_local_function",
    "inner.programs.imported_from_the_package_above",
]
KEPT = [1.0]


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A package of the user's with several files."""
    folder = tmp_path_factory.mktemp("files") / "of_the_user"
    (folder / "inner").mkdir(parents=True)
    for name, text in FILES.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    sys.path.insert(0, str(folder.parent))
    yield importlib.import_module("of_the_user.programs")
    sys.path.remove(str(folder.parent))
    for name in [name for name in sys.modules if name.partition(".")[0] == "of_the_user"]:
        del sys.modules[name]


def check_isolated(factor, method):
    """A loss that multiplies by a factor, which changes when it is read, gives each example what it gives it alone."""
    torch.manual_seed(0)
    model, x = nn.Linear(3, 2), torch.randn(4, 3)

    def loss(m, x):
        return m(x).square().sum(1) * factor()

    norms = per_example_norms(model, loss, x, method=method)
    alone = [per_example_norms(model, loss, x[i : i + 1], method=method).item() for i in range(4)]
    assert norms.tolist() == pytest.approx(alone, rel=1e-5)


@pytest.mark.parametrize("method", ["ghost", "loop"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_functions_of_other_files_are_followed(package, name, method):
    file, _, function = name.rpartition(".")
    check_isolated(getattr(importlib.import_module(f"of_the_user.{file}"), function), method)
    assert package.memory.kept == [1.0]


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_names_in_other_files_are_bound_as_before(package, method):
    memory = package.memory  # a module in a closure

    def assigned():
        old, memory.total = memory.total, 3.0
        return old

    for factor in (memory.rebind, lambda: memory.rebind(), assigned):
        check_isolated(factor, method)
        assert memory.total == 1.0


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_a_file_imported_by_its_full_name_is_followed(package, method):
    def factor():
        import of_the_user.memory as other

        return other.use()

    check_isolated(factor, method)
    assert package.memory.kept == [1.0]


def use():
    KEPT.append(2.0)
    return KEPT[-2]


class Meta(type):
    def read(cls):
        return use()


class OfMeta(metaclass=Meta):
    pass


class ByPartial:
    way = functools.partialmethod(lambda _, factor: factor(), use)


class Static:
    way = staticmethod(use)


class Listed:
    way = (use,)


class ByProperty:
    @property
    def way(self):
        return use()


class Once:
    @functools.cached_property
    def way(self):
        return use()


class Dispatched:
    @functools.singledispatchmethod
    def way(self, _):
        return 1.0

    @way.register
    def _(self, _: int):
        return use()


class Cached:
    @functools.cache  # noqa: B019
    def way(self):
        return use()


class ByClass:
    @classmethod
    def way(cls):
        return use()


class Decorated:
    @torch.enable_grad()
    def way(self):
        return use()


@functools.singledispatch
def dispatched(_):
    return 1.0


@dispatched.register
def _(_: int):
    return use()


@contextlib.contextmanager
def entered():
    yield use()


def inside_a_function():
    def inner():
        class Innermost:
            def read(self):
                return use()

        return Innermost().read()

    return inner()


def inside_a_context():
    with entered() as factor:
        return factor


def hidden():
    return use()


# Ways to a function that keeps state in a global of this file.
WAYS = {
    "partial method": lambda: ByPartial().way(),
    "static method": lambda: Static().way(),
    "tuple of a class": lambda: Listed().way[0](),
    "property": lambda: ByProperty().way,
    "cached property": lambda: Once().way,
    "method by type": lambda: Dispatched().way(1),
    "cached method": lambda: Cached().way(),
    "class method": lambda: ByClass().way(),
    "method decorated by a library": lambda: Decorated().way(),
    "metaclass": lambda: OfMeta.read(),
    "function by type": lambda: dispatched(1),
    "context": inside_a_context,
    "local function": inside_a_function,
    "generator": lambda: sum(use() for _ in range(1)),
    "function of a library": torch.enable_grad()(hidden),
    "partial of a partial": functools.partial(functools.partial(hidden)),
}


@pytest.mark.parametrize("method", ["ghost", "loop"])
@pytest.mark.parametrize("way", WAYS)
def test_functions_are_followed_however_they_are_wrapped(way, method):
    check_isolated(WAYS[way], method)
    assert KEPT == [1.0]


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_what_a_held_function_names_is_followed(method):
    """No function of the model or the loss names it: it is an item of a list that the model holds."""
    table = {"of a file": [hidden], "of an object": [Decorated().way]}
    for functions in table.values():
        holder = nn.Module()
        holder.functions = functions
        check_isolated(lambda holder=holder: holder.functions[0](), method)
        assert KEPT == [1.0]


def first_use():
    global counted
    try:
        return counted
    except NameError:
        counted = 2.0
    return 1.0


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_names_that_had_no_value_have_none_afterwards(package, method):
    empty = None
    del empty
    memory = package.memory

    def in_a_closure():
        nonlocal empty
        try:
            return empty
        except NameError:
            empty = 2.0
        return 1.0

    def in_another_file():
        old = getattr(memory, "created", 1.0)
        memory.created = 2.0
        return old

    for factor in (first_use, in_a_closure, in_another_file):
        check_isolated(factor, method)
        assert factor() == 1.0
        assert factor() == 2.0
        globals().pop("counted", None)
    del memory.created


counter = sys


def name_of_a_module():
    global counter
    counter, old = itertools.count(2), counter
    return 1.0 if old is sys else next(old)


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_names_of_modules_are_bound_as_before(method):
    """A module that one example replaces by an object would tell the next one that it was there."""
    closed = sys

    def in_a_closure():
        nonlocal closed
        closed, old = [2.0], closed
        return 1.0 if old is sys else old[0]

    for factor in (name_of_a_module, in_a_closure):
        check_isolated(factor, method)
        assert factor() == 1.0
        assert factor() == 2.0
        globals()["counter"] = sys


class Disguised:
    __module__ = "torch.nn"
    kept = [1.0]

    def use(self):
        self.kept.append(2.0)
        return self.kept[-2]


@functools.wraps(mse_loss)
def wrapping():
    return use()


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_code_is_the_users_whatever_module_it_names(method):
    """`functools.wraps` copies the module's name of what is wrapped, and a class may name any."""
    holder = nn.Module()
    holder.functions, holder.disguised = [wrapping], Disguised()
    check_isolated(lambda: holder.functions[0](), method)
    assert KEPT == [1.0]
    check_isolated(lambda: holder.disguised.use(), method)
    assert Disguised.kept == [1.0]


def test_functions_of_libraries_are_not_followed():
    def loss(model, batch):
        return mse_loss(model(batch), torch.zeros_like(batch)) + np.mean([1.0])

    assert list(find_functions(loss)) == [loss]


def test_what_is_user_code():
    for name in ("__main__", __name__, "module_without_a_file"):
        assert is_user_code(name), name
    for name in ("sys", "builtins", "importlib._bootstrap", "os", "json.decoder", "numpy.random", "torch.nn", "privet.errors"):
        importlib.import_module(name)
        assert not is_user_code(name), name


def test_programs_next_to_python_are_user_code(monkeypatch, package):
    """Python may lie in /usr/lib/python3.11, and the user's program in /usr/src/app."""
    monkeypatch.setattr(sys, "base_prefix", str(Path(package.__file__).parents[1]))
    is_user_code.cache_clear()
    assert is_user_code(package.__name__)


def test_modules_of_the_user_that_name_each_other_are_read_once():
    one, other = (type(sys)(name) for name in ("first_of_two", "second_of_two"))
    one.other, other.other, other.kept = other, one, KEPT

    def factor():
        return one.other.other.kept

    assert [(name, value) for name, value, _ in read_bindings(factor).found] == [("kept", KEPT)]
