"""Every recipe of the catalogue, carried out for a step on the first of its examples: data from the cache, never fetched."""

import importlib.util
from dataclasses import replace

import pytest
import small
from torch.utils.data import TensorDataset

from privet import data
from privet.data import DataSet
from privet.recipes import RECIPES, Extent, reproduce

_EXAMPLES = 64
# A few are enough here; that the others fit their data is seen without training.
_ARMS = 3


@pytest.fixture
def short_test_part(monkeypatch):
    """Measure on a hundred examples: thousands for each arm would take minutes."""
    real = data.load

    def shortened(*arguments, **options):
        found = real(*arguments, **options)
        test = TensorDataset(*(tensor[:100] for tensor in found.test.tensors))
        return DataSet(found.name, found.train, test, found.classes, found.provenance)

    monkeypatch.setattr(data, "load", shortened)


def possible(recipe, arm):
    return "scattering" not in recipe.settings(arm).features or importlib.util.find_spec("kymatio") is not None


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_the_recipe_comes_to_a_table(recipe, tmp_path, short_test_part):
    if not small.ENTRIES[recipe.data].cached:
        pytest.skip(f"{recipe.data} is not on this machine: privet data fetch {recipe.data}")
    names = [arm.name for arm in recipe.arms if possible(recipe, arm)]
    arms = tuple(names[:: max(1, len(names) // _ARMS)])
    found = reproduce(replace(recipe, tuned=False), tmp_path, Extent(seeds=1, examples=_EXAMPLES, epochs=1, arms=arms))
    assert [row.arm for row in found.rows] == list(arms)
    assert all(set(row.metrics) == set(recipe.metrics) for row in found.rows)
    assert all(f"| {name} |" in (tmp_path / "table.md").read_text() for name in arms)
