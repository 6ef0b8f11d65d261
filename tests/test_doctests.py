"""Every example in a docstring gives the output that it shows."""

import doctest
import importlib
import pkgutil

import pytest

import privet

MODULES = ["privet", *(module.name for module in pkgutil.walk_packages(privet.__path__, "privet."))]


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_examples_hold(name):
    # Integrations need their libraries, which are extras.
    integrated = name.startswith("privet.integrations.")
    module = pytest.importorskip(name, exc_type=ImportError) if integrated else importlib.import_module(name)
    found = doctest.testmod(module)
    assert found.failed == 0
