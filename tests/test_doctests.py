import doctest
import importlib
from pathlib import Path

import privet

SOURCE = Path(privet.__file__).parents[1]
FILES = [path for path in sorted((SOURCE / "privet").rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]


def test_examples_hold():
    failed = []
    for path in FILES:
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        try:
            module = importlib.import_module(name)
        except ImportError:
            if not name.startswith("privet.integrations."):  # they need their libraries, which are extras
                raise
            continue
        if doctest.testmod(module).failed:  # prints the differences
            failed.append(name)
    assert not failed
