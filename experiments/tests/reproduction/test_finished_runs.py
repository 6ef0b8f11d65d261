"""What is said to be done are a recipe's own runs, each once and whole."""

from dataclasses import replace

import pytest
import small

from privet_experiments import Extent, Records, finished_runs, reproduce

pytest.importorskip("sklearn", reason="the small recipe trains on scikit-learn's digits")


@pytest.fixture(scope="module")
def carried_out(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs")
    reproduce(small.recipe(), directory)
    return directory / "runs.jsonl"


def done(recipe, records):
    return len(finished_runs(recipe, records))


def kept(carried_out, tmp_path, change=lambda record: [record]):
    """The runs with a change to each, in a file of their own."""
    records = Records(tmp_path / "runs.jsonl")
    for record in Records(carried_out):
        for changed in change(record):
            records.add(changed)
    return records


def test_all_runs_of_a_recipe_count(carried_out):
    assert done(small.recipe(), Records(carried_out)) == small.recipe().runs == 4


def test_a_file_that_is_not_there_holds_none(tmp_path):
    assert done(small.recipe(), Records(tmp_path / "none.jsonl")) == 0


@pytest.mark.parametrize(
    "change",
    [{"seed": 100}, {"examples": 500}, {"rate": 9.0}, {"arm": "another"}, {"curve": []}, {"metrics": {"accuracy": 0.5}}],
    ids=["search", "reduced", "other rate", "other arm", "evaluated less often", "fewer metrics"],
)
def test_what_another_question_asked_for_does_not_count(carried_out, tmp_path, change):
    first = next(iter(Records(carried_out)))

    def changed(record):
        return [replace(record, **change)] if record.key == first.key else [record]

    assert done(small.recipe(), kept(carried_out, tmp_path, changed)) == 3


def test_shorter_runs_do_not_count(tmp_path):
    reproduce(small.recipe(), tmp_path, Extent(seeds=1, epochs=0.1))
    assert done(small.recipe(), Records(tmp_path / "runs.jsonl")) == 0


def test_an_arm_with_fewer_runs_has_no_more_to_show(carried_out):
    one, two = small.recipe().arms
    assert done(small.recipe(arms=(replace(one, seeds=1), two)), Records(carried_out)) == 3


def test_a_run_with_two_rates_is_one_of_a_tuned_recipe(carried_out, tmp_path):
    def doubled(record):
        return [record, replace(record, rate=2 * record.rate)]

    assert done(small.recipe(tuned=True), kept(carried_out, tmp_path, doubled)) == 4


def test_runs_without_the_studies_asked_for_are_not_done(carried_out):
    assert done(small.recipe(studies=("norms",)), Records(carried_out)) == 2  # those of the second seed, which nobody studies
