import importlib
import sys

import pytest

from privet import integrations

NEEDED = {
    "transformers": "privet.integrations.transformers",
    "accelerate.optimizer": "privet.integrations.transformers",
    "trl": "privet.integrations.trl",
    "flwr.app": "privet.integrations.flower",
}


@pytest.mark.parametrize("library", NEEDED)
def test_a_missing_library_is_named_with_its_extra(library, monkeypatch):
    module = NEEDED[library]
    if module.endswith("trl"):
        pytest.importorskip("transformers")
        pytest.importorskip("accelerate")
    for name, loaded in [*sys.modules.items()]:
        package, _, own = name.rpartition(".")
        if package == "privet.integrations":
            monkeypatch.setattr(integrations, own, loaded)  # to be put back
        if name.startswith("privet.integrations."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    extra = module.rpartition(".")[2]
    with pytest.raises(ImportError, match=rf"{module} needs .*pip install 'privet\[{extra}\]'"):
        importlib.import_module(module)
