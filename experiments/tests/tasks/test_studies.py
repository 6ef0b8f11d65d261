"""Studies inside runs: asked for by a recipe, on its first seed, marked wherever they go, and without a trace in the run."""

import json

import numpy as np
import pytest
import small
import torch
from drawings import numbers

from privet import clipping
from privet.data import load
from privet.noise import Gaussian
from privet.plan.mechanism import epochs
from privet.runs.tasks import cross_entropy
from privet.sampling import Poisson
from privet_experiments import Arm, Chart, Extent, Records, reproduce
from privet_experiments.studies import WARNING
from privet_experiments.tasks.studies import LOOKS, STUDIES, GradientObserver, moments, numbers_of, values

pytest.importorskip("sklearn", reason="the small recipe trains on scikit-learn's digits")

CHARTS = (
    Chart("weights", "trace", "mean_weight", logarithmic=True),
    Chart("similarity", "histogram", "noised_similarity", against="flat"),
    Chart("norms", "histogram", "norm", logarithmic=True),
)
STUDIED = {"studies": ("scaling_weight", "similarity", "norms"), "study_epochs": 0.2, "charts": CHARTS}


def test_only_the_first_seed_is_looked_at_and_what_was_seen_is_kept_with_its_run(tmp_path):
    reproduce(small.recipe(**STUDIED), tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["seed"] for line in lines if line["study"]] == [1, 1]
    for line in lines:
        if study := line["study"]:
            assert (study["private"], study["warning"]) == (False, WARNING)
            assert [look["step"] for look in study["looks"]] == [5, 6, 7, 8, 9, 10, 11, 12, 13]  # the last 0.2 epochs of 13 steps
            assert study["looks"][0].keys() == {"step", *numbers_of(STUDIED["studies"])}
            assert (np.diff(values(study, "norm").reshape(9, -1)) >= 0).all()
            assert (np.abs(values(study, "noised_similarity")) <= 1).all()


def test_table_and_figures_say_that_they_are_not_private(tmp_path):
    reproduce(small.recipe(**STUDIED), tmp_path, Extent(seeds=1))
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert f"**{WARNING}**" in table
    assert "| arm | mean weight | clipped share | clipped similarity |" in table
    for name in ("weights", "similarity", "norms"):
        figure = (tmp_path / "figures" / f"{name}.svg").read_text(encoding="utf-8")
        assert WARNING in figure
        assert "normalised" in figure


def test_runs_without_a_study_are_repeated_if_the_recipe_has_one(tmp_path):
    extent = Extent(seeds=1, arms=("flat",))
    reproduce(small.recipe(), tmp_path, extent)
    assert "Gradients" not in (tmp_path / "table.md").read_text(encoding="utf-8")
    reproduce(small.recipe(**STUDIED), tmp_path, extent)
    assert len((tmp_path / "runs.jsonl").read_text(encoding="utf-8").splitlines()) == 2
    assert len(Records(tmp_path / "runs.jsonl")) == 1
    reproduce(small.recipe(), tmp_path, extent)  # and a recipe that asks for less takes what is there
    assert len((tmp_path / "runs.jsonl").read_text(encoding="utf-8").splitlines()) == 2


@pytest.mark.parametrize(("total", "steps", "expected"), [(10, 3.0, {8, 9, 10}), (10, 99, set(range(1, 11))), (5, 0.1, {5})])
def test_the_last_steps_are_looked_at(total, steps, expected):
    assert moments(total, steps) == expected


def test_many_steps_are_looked_at_in_equal_distances():
    found = sorted(moments(5000, 1000))
    assert (len(found), found[-1], set(np.diff(found))) == (LOOKS, 5000, {10})


def test_looking_changes_nothing():
    digits = load("digits")
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    plan = {"clipping": clipping.Flat(0.5), "noise": Gaussian(1.0), "steps": epochs(1), "sampling": Poisson(32)}
    plan = small.recipe().settings(Arm("one", {"epsilon": None, "plan": plan})).plan_for(1437)
    observer = GradientObserver(tuple(STUDIES), 1, plan, model, cross_entropy, digits.train)
    before, state = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    observer.look(plan.total_steps)
    assert observer.kept()["looks"][0]["step"] == plan.total_steps
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_without_studies_nothing_is_observed():
    observer = GradientObserver(
        (), 10, small.recipe().settings(small.recipe().arms[0]).plan_for(1437).calibrate(4.0), None, None, None
    )
    observer.look(13)
    assert observer.kept() is None


NEW = {"new_studies": ("norms",), "study_epochs": 0.3, "charts": (Chart("trend", "trace", "gradient_norm"),)}


def test_a_study_that_came_later_is_made_by_new_runs_and_not_asked_of_old_ones(tmp_path):
    extent = Extent(seeds=1, arms=("flat",))
    reproduce(small.recipe(), tmp_path / "old", extent)
    reproduce(small.recipe(**NEW), tmp_path / "old", extent)
    assert len((tmp_path / "old" / "runs.jsonl").read_text(encoding="utf-8").splitlines()) == 1
    page = (tmp_path / "old" / "table.md").read_text(encoding="utf-8")
    assert "## Missing figures\n\n`trend.svg`: these runs did not record" in page
    assert not (tmp_path / "old" / "figures" / "trend.svg").exists()
    reproduce(small.recipe(**NEW), tmp_path / "new", extent)
    assert "Missing figures" not in (tmp_path / "new" / "table.md").read_text(encoding="utf-8")
    (record,) = Records(tmp_path / "new" / "runs.jsonl")
    points, line = numbers((tmp_path / "new" / "figures" / "trend.svg").read_text(encoding="utf-8"))
    assert points.reshape(-1, 2)[:, 1] == pytest.approx(values(record.study, "gradient_norm"), rel=1e-4)
    assert points.reshape(-1, 2)[:, 0].tolist() == list(range(1, 14))
    assert line.reshape(-1, 2)[0, 1] == pytest.approx(values(record.study, "gradient_norm")[:10].mean(), rel=1e-4)
