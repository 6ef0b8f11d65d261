import importlib
import inspect
import types

import privet
from privet import budget, plan

# The packages whose names are documented: those of the front door, and two whose classes it has.
FRONT = [getattr(privet, name) for name in privet.__all__]
PACKAGES = [*(value for value in FRONT if isinstance(value, types.ModuleType)), budget, plan]
# Each name at the front door also has a place in the package that documents it.
MOST = 205


def names_of(package):
    return [name for name in package.__all__ if not isinstance(getattr(package, name), types.ModuleType)]


def is_defined(value):
    """Return whether a value is a class or a function, and not a constant or an alias of a type."""
    return isinstance(value, type) or inspect.isroutine(value)


def test_public_names_are_few():
    found = [f"{package.__name__}.{name}" for package in (privet, *PACKAGES) for name in names_of(package)]
    assert len(found) - len(names_of(privet)) <= MOST, found


def test_every_public_class_and_function_has_a_docstring():
    without = [
        f"{package.__name__}.{name}"
        for package in (privet, *PACKAGES)
        for name in names_of(package)
        if is_defined(getattr(package, name)) and not inspect.getdoc(getattr(package, name))
    ]
    assert without == []


def test_a_public_name_means_one_thing():
    """Two packages may both have a `load`; what they may not have is the same class or function under two names."""
    places = {}
    for package in PACKAGES:
        for name in names_of(package):
            value = getattr(package, name)
            if is_defined(value):
                places.setdefault(value, set()).add(f"{package.__name__}.{name}")
    assert not [sorted(where) for where in places.values() if len(where) > 1]


def test_every_public_name_exists_where_it_is_listed():
    for package in PACKAGES:
        module = importlib.import_module(package.__name__)
        assert [name for name in module.__all__ if not hasattr(module, name)] == []
