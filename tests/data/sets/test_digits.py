import builtins
import sys

import pytest
import torch

from privet import data
from privet.data.dataset import public_split
from privet.data.download.published import cache_file


def test_digits_are_split_publicly_and_scaled_by_sixteen():
    pytest.importorskip("sklearn")
    digits = data.load("digits")
    assert (len(digits.train), len(digits.test), digits.input_shape, digits.classes) == (1437, 360, (1, 8, 8), 10)
    inputs, labels = digits.train.tensors
    assert (inputs.min(), inputs.max()) == (0, 1)
    assert torch.equal((inputs * 16).round() / 16, inputs)
    assert labels.unique().tolist() == list(range(10))
    assert cache_file("digits").is_file()


def test_without_scikit_learn_the_error_names_the_extra(monkeypatch):
    original = builtins.__import__

    def refuse(name, *arguments, **options):
        if name.startswith("sklearn"):
            raise ImportError(name)
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    for module in [name for name in sys.modules if name.startswith("sklearn")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(data.DataUnavailableError, match=r"scikit-learn: it is not installed; run: pip install 'privet\[data\]'"):
        data.load("digits")


def test_the_split_never_changes():
    train, test = public_split(6, 2)
    assert (train.tolist(), test.tolist()) == ([1, 3, 0, 4], [5, 2])
