from dataclasses import replace

import pytest
import tiny

from privet import data
from privet.data.loading import published_sets
from privet.errors import InvalidArgumentError


def test_the_catalogue_describes_every_set_and_what_is_cached(monkeypatch):
    entries = {entry.name: entry for entry in data.catalogue()}
    assert list(entries)[:3] == ["mnist", "fashion-mnist", "digits"]
    assert (entries["mnist"].train, entries["mnist"].test, entries["mnist"].input_shape) == (60_000, 10_000, (1, 28, 28))
    assert not any(entry.cached for entry in entries.values())
    monkeypatch.setitem(published_sets(), "mnist", replace(tiny.image_set(lambda: tiny.ARRAYS), name="mnist"))
    data.fetch("mnist")
    assert [entry.name for entry in data.catalogue() if entry.cached] == ["mnist"]


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(InvalidArgumentError, match=r"name is 'cifar'; it must be one of 'mnist', 'fashion-mnist', 'digits'"):
        data.fetch("cifar")
