"""Every example in a docstring gives the output that it shows."""

import doctest
import importlib
import pkgutil

import privet

MODULES = ["privet", *(module.name for module in pkgutil.walk_packages(privet.__path__, "privet."))]


def test_examples_hold():
    failed = []
    for name in MODULES:
        if name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(name)
        except ImportError:
            if not name.startswith("privet.integrations."):  # they need their libraries, which are extras
                raise
            continue
        if doctest.testmod(module).failed:  # prints the differences
            failed.append(name)
    assert not failed
