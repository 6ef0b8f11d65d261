"""Data sets of papers are in the catalogue where the experiments are installed."""

from importlib.metadata import entry_points

import pytest

from privet import data, models
from privet.data.loading import published_sets
from privet.errors import InvalidArgumentError


def test_the_catalogue_has_the_sets_of_papers():
    sets = {"cifar-10", "sst2", "covertype", "california-housing", "wine-quality-red"}
    assert {entry.name for entry in entry_points(group="privet.data_sets")} >= sets
    assert {entry.name for entry in data.catalogue()} >= sets
    assert all(one.name == name for name, one in published_sets().items())


def test_networks_of_papers_can_be_named():
    for entry in entry_points(group="privet.networks"):
        assert entry.name in models.NAMES
        with pytest.raises(InvalidArgumentError, match="input_shape"):
            models.build(entry.name, (1, 2, 3, 4), 2)
