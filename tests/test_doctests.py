"""Every example in a docstring gives the output that it shows."""

import doctest
import importlib
import pkgutil

import pytest

import privet

MODULES = ["privet", *(module.name for module in pkgutil.walk_packages(privet.__path__, "privet."))]


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_examples_hold(name):
    found = doctest.testmod(importlib.import_module(name))
    assert found.failed == 0
