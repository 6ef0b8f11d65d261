"""Every recipe of the catalogue, carried out for a step on the first of its examples: data from the cache, never fetched."""

from dataclasses import replace

import pytest
import small
from torch.utils.data import TensorDataset

from privet import data
from privet.errors import PrivetError
from privet.models.pretrained import minilm
from privet_experiments import RECIPES, Extent, features, reproduce
from privet_experiments.features import efficientnet

_EXAMPLES = 64
# A few are enough here; that the others fit their data is seen without training.
_ARMS = 2
# Measured by tests of their own: they take processes.
COSTS = {"time_ratio", "memory_ratio"}


@pytest.fixture
def short_test_part(monkeypatch):
    """Measure on a hundred examples: thousands for each arm would take minutes."""
    real = data.load

    def shortened(*arguments, **options):
        found = real(*arguments, **options)
        test = TensorDataset(*(tensor[:100] for tensor in found.test.tensors))
        return replace(found, test=test)

    monkeypatch.setattr(data, "load", shortened)


@pytest.fixture
def nothing_fetched(monkeypatch):
    """Weights are those of the cache or none."""
    for module in (efficientnet, minilm):
        monkeypatch.setattr(module, "WEIGHTS", replace(module.WEIGHTS, requirement=""))


def possible(recipe, arm):
    try:
        features.check(data.load(recipe.data), recipe.settings(arm).features)
    except PrivetError:
        return False
    return True


@pytest.mark.parametrize("recipe", [
    pytest.param(recipe, id=recipe.name, marks=pytest.mark.slow if place % 8 else ())
    for place, recipe in enumerate(RECIPES.values()) if recipe.data in small.ENTRIES
])  # fmt: skip
def test_the_recipe_comes_to_a_table(recipe, tmp_path, short_test_part, nothing_fetched):
    if not small.ENTRIES[recipe.data].cached:
        pytest.skip(f"{recipe.data} is not on this machine: privet data fetch {recipe.data}")
    names = [arm.name for arm in recipe.arms if possible(recipe, arm)]
    if not names:
        pytest.skip("what its features need is not on this machine")
    arms = tuple(names[:: -(-len(names) // _ARMS)])
    metrics = tuple(metric for metric in recipe.metrics if metric not in COSTS)
    charts = tuple(chart for chart in recipe.charts if chart.metric not in COSTS)
    short = replace(recipe, tuned=False, metrics=metrics, charts=charts, claims=())
    found = reproduce(short, tmp_path, Extent(seeds=1, examples=_EXAMPLES, epochs=1, arms=arms))
    assert [row.arm for row in found.rows] == list(arms)
    assert all(set(row.metrics) == set(metrics) for row in found.rows)
    assert all(f"| {name} |" in (tmp_path / "table.md").read_text(encoding="utf-8") for name in arms)


@pytest.mark.slow
def test_the_table_of_gradient_flow_says_what_the_paper_says(tmp_path):
    found = reproduce(RECIPES["ntk-table"], tmp_path, Extent(arms=("small bound, flat", "small bound, layerwise")))
    for row in found.rows:
        for metric, summary in row.metrics.items():
            if summary.reported is not None:
                assert (summary.mean == 1) == (summary.reported == 1), (row.arm, metric)
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "| small bound, flat | 0/3 | no | 0/3 | no | 3/3 | yes | 2/3 | no | 3/3 | yes |" in table
    assert "learning rate" not in table
    assert (tmp_path / "figures" / "verdicts.svg").is_file()
