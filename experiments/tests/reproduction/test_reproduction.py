"""A recipe is carried out once: what is there is not done again, and table and figures follow from the records alone."""

import csv
import json
import math
import re
import shutil
import statistics
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import small
import torch
from drawings import numbers

from privet._utils import malloc
from privet.cli import main
from privet.errors import InvalidArgumentError, PrivetError
from privet_experiments import RECIPES, Chart, Claim, Extent, PublishedNumber, Records, finished_runs, judge, reproduce
from privet_experiments.reproduction import reproduction, workers
from privet_experiments.reproduction.reproduction import TUNING_SEED

ARMS = ("flat", "normalised")
RESULTS = Path(__file__).parents[3] / "docs" / "results"
UNDRAWN = small.recipe(charts=())

pytest.importorskip("sklearn", reason="the small recipe trains on scikit-learn's digits")
pytestmark = pytest.mark.usefixtures("brief_runs")


def lines(folder):
    return [json.loads(line) for line in (folder / "runs.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def performed(monkeypatch):
    """Count the runs that are really done."""
    done, real = [], workers.perform

    def counted(job, advance):
        done.append((job.arm, job.rate, job.seed))
        return real(job, advance)

    monkeypatch.setattr(workers, "perform", counted)
    return done


@pytest.fixture(scope="module")
def all_runs(tmp_path_factory, brief_runs):
    found = tmp_path_factory.mktemp("small")
    reproduce(small.recipe(), found)
    return found


@pytest.fixture
def carried_out(all_runs, tmp_path):
    """A folder with all runs of the small recipe, which are not done again."""
    return shutil.copytree(all_runs, tmp_path / "small")


def test_the_page_judges_claims_of_whole_runs_only(tmp_path, carried_out):
    claims = (Claim("One is better", "accuracy", "flat", "higher", "normalised", size=0.02),)
    published = (PublishedNumber(0.987, "a linear model", 3.0, "somebody, Table 1", "flat"),)
    recipe = replace(UNDRAWN, claims=claims, published=published, remark="Read with care.")
    reproduce(recipe, tmp_path / "reduced", Extent(epochs=0.2))
    assert "## Claims" not in (tmp_path / "reduced" / "table.md").read_text(encoding="utf-8")
    reproduce(recipe, tmp_path / "one", Extent(arms=("flat",)))
    assert "Verdict: runs are missing." in (tmp_path / "one" / "table.md").read_text(encoding="utf-8")
    reproduce(recipe, carried_out)
    page = (carried_out / "table.md").read_text(encoding="utf-8").replace("\u00a0", " ")
    found = judge(claims[0], Records(carried_out / "runs.jsonl"))
    assert f"| One is better (accuracy) | 2.00 points | {100 * found.difference:+.2f}".replace("-", "−") in page
    assert f"Verdict: **{found.verdict}**." in page
    assert "| 98.70 % | 3 | a linear model | somebody, Table 1 |" in page
    assert "Read with care." in page


def test_every_arm_is_run_with_every_seed_and_says_how_it_came_about(carried_out):
    found = reproduce(UNDRAWN, carried_out)
    assert [(line["arm"], line["seed"]) for line in lines(carried_out)] == [
        ("flat", 1), ("normalised", 1), ("flat", 2), ("normalised", 2),
    ]  # fmt: skip
    for line in lines(carried_out):
        assert line["plan"]["noise"]["multiplier"] > 0
        assert line["epsilon"] <= 4.0
        assert [point["step"] for point in line["curve"]] == [5, 9, 13]  # thirds of 13 steps, rounded up
        assert line["metrics"] == {name: line["curve"][-1][name] for name in ("accuracy", "negative_log_likelihood")}
    assert [(row.arm, row.runs) for row in found.rows] == [("flat", 2), ("normalised", 2)]


def test_an_arm_may_have_its_own_number_of_runs(tmp_path, performed):
    flat, normalised = small.recipe().arms
    recipe = replace(UNDRAWN, arms=(flat, replace(normalised, seeds=1)))
    assert recipe.runs == 3
    reproduce(recipe, tmp_path)
    assert performed == [("flat", 0.7, 1), ("normalised", 0.7, 1), ("flat", 0.7, 2)]


def test_a_search_may_take_shorter_runs_at_the_same_epsilon(tmp_path):
    reproduce(replace(UNDRAWN, tuned=True, trial=0.5), tmp_path, Extent(seeds=1, arms=("flat",)))
    search = [line for line in lines(tmp_path) if line["seed"] == TUNING_SEED]
    (run,) = [line for line in lines(tmp_path) if line["seed"] == 1]
    assert len(search) >= 2
    assert {line["plan"]["steps"]["epochs"] for line in search} == {0.15}
    assert run["plan"]["steps"]["epochs"] == 0.3
    assert all(line["epsilon"] == pytest.approx(run["epsilon"], rel=1e-3) for line in search)
    assert all(line["plan"]["noise"]["multiplier"] < run["plan"]["noise"]["multiplier"] for line in search)
    # As much noise adds up in them: the rate of the run is one of theirs, each taken times the root of 0.5.
    assert any(run["rate"] == pytest.approx(line["rate"] * 0.5**0.5) for line in search)
    assert 0.7 in [pytest.approx(line["rate"] * 0.5**0.5) for line in search]


def test_what_is_there_is_not_done_again(tmp_path, performed):
    recipe = small.recipe()
    reproduce(UNDRAWN, tmp_path, Extent(seeds=1, arms=("flat",)))
    assert performed == [("flat", 0.7, 1)]
    reproduce(recipe, tmp_path)
    assert sorted(performed) == [("flat", 0.7, 1), ("flat", 0.7, 2), ("normalised", 0.7, 1), ("normalised", 0.7, 2)]
    before = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    reproduce(recipe, tmp_path)
    assert len(performed) == 4
    assert {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()} == before


def test_runs_of_another_extent_stay_and_do_not_count(tmp_path, performed):
    reproduce(UNDRAWN, tmp_path, Extent(seeds=1, examples=500, epochs=0.2))
    assert "**Reduced**" in (tmp_path / "table.md").read_text(encoding="utf-8")
    found = reproduce(UNDRAWN, tmp_path, Extent(seeds=1))
    assert (len(performed), len(Records(tmp_path / "runs.jsonl"))) == (4, 4)
    assert [row.runs for row in found.rows] == [1, 1]
    assert "**Reduced**" not in (tmp_path / "table.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("change", [{"metrics": ("accuracy", "examples")}, {"points": 2}])
def test_runs_that_lack_what_is_to_be_kept_are_done_again(tmp_path, performed, change):
    extent = Extent(seeds=1, arms=("flat",))
    reproduce(UNDRAWN, tmp_path, extent)
    found = reproduce(replace(UNDRAWN, **change), tmp_path, extent)
    assert (len(performed), found.rows[0].runs) == (2, 1)


def test_a_run_that_diverged_has_a_row_and_figures_all_the_same(carried_out):
    path = carried_out / "runs.jsonl"
    first, *rest = path.read_text(encoding="utf-8").splitlines(keepends=True)
    line = json.loads(first)
    for values in (line["metrics"], line["curve"][-1]):
        values["negative_log_likelihood"] = "inf"
    path.write_text("".join((json.dumps(line) + "\n", *rest)), encoding="utf-8")
    found = reproduce(small.recipe(), carried_out, Extent(seeds=2))
    assert math.isinf(found.rows[0].metrics["negative_log_likelihood"].mean)
    assert "inf ± nan" in (carried_out / "table.md").read_text(encoding="utf-8")
    assert "NaN" not in (carried_out / "figures" / "curve.svg").read_text(encoding="utf-8")


def test_the_table_has_means_deviations_and_the_papers_number(carried_out):
    found = reproduce(UNDRAWN, carried_out)
    accuracies = [line["metrics"]["accuracy"] for line in lines(carried_out) if line["arm"] == "flat"]
    flat = found.rows[0].metrics["accuracy"]
    assert (flat.mean, flat.deviation) == pytest.approx((statistics.mean(accuracies), statistics.stdev(accuracies)))
    assert flat.reported == 0.25
    text = (carried_out / "table.md").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| flat |"))
    assert f"{100 * flat.mean:.2f}" in row
    assert "25.00" in row
    assert "Poisson" in text
    (first, *_) = csv.DictReader((carried_out / "table.csv").open())
    assert (first["arm"], first["metric"], float(first["mean"]), first["runs"]) == ("flat", "accuracy", flat.mean, "2")


def test_a_tuned_arm_reports_the_best_rate_of_a_seed_that_is_not_reported(tmp_path):
    found = reproduce(replace(UNDRAWN, tuned=True), tmp_path, Extent(seeds=1))
    tried = {(line["arm"], line["rate"]): line["metrics"]["accuracy"] for line in lines(tmp_path) if line["seed"] == TUNING_SEED}
    for row in found.rows:
        rates = {rate: accuracy for (arm, rate), accuracy in tried.items() if arm == row.arm}
        assert rates[row.rate] == max(rates.values())
        assert {row.rate / 2, row.rate * 2} & rates.keys()
        assert row.runs == 1


@pytest.mark.parametrize(
    ("best", "start"), [(0.3, 0.3), (0.3, 2.4), (4.8, 0.3)]
)  # fmt: skip
def test_the_search_climbs_to_the_best_rate_and_stops_there(best, start):
    asked = []

    def score(rate):
        asked.append(rate)
        return -abs(rate - best)

    assert reproduction.highest(score, start) == pytest.approx(best)
    assert min(asked) >= best / 2.01 or start < best
    assert max(asked) <= max(start, best) * 2.01


@pytest.mark.slow
def test_several_processes_come_to_as_many_runs(tmp_path):
    found = reproduce(small.recipe(), tmp_path, Extent(seeds=1), jobs=2)
    assert [(row.arm, row.runs) for row in found.rows] == [("flat", 1), ("normalised", 1)]


def test_figures_are_drawn_from_the_records(carried_out):
    reproduce(small.recipe(), carried_out)
    figures = {path.name: path.read_text(encoding="utf-8") for path in (carried_out / "figures").iterdir()}
    assert sorted(figures) == ["arms.svg", "curve.svg", "sweep.svg"]
    assert "normalised" in figures["arms.svg"]
    assert "published" in figures["arms.svg"]
    assert "privacy loss" in figures["curve.svg"]
    assert ">other<" in figures["sweep.svg"]
    flat, normalised = ([100 * run["metrics"]["accuracy"] for run in lines(carried_out) if run["arm"] == arm] for arm in ARMS)
    ours, *_, papers, _ = numbers(figures["arms.svg"])
    assert ours == pytest.approx([statistics.mean(flat), 0, statistics.mean(normalised), 1], rel=1e-5)
    assert papers.tolist() == [25.0, 0.0]
    one, low, high, other, *_ = numbers(figures["sweep.svg"])
    assert one == pytest.approx([0.6, statistics.mean(flat)], rel=1e-5)
    assert other == pytest.approx([0.3, statistics.mean(normalised)], rel=1e-5)
    assert high - low == pytest.approx([0, 2 * statistics.stdev(flat)], abs=1e-3)
    assert [len(mark) for mark in numbers(figures["curve.svg"])[:2]] == [6, 6]  # three points of each arm


def test_arms_that_differ_by_orders_of_magnitude_have_a_logarithmic_axis_in_plain_numbers(carried_out):
    recipe = small.recipe(charts=(Chart("arms", "arms", "negative_log_likelihood", logarithmic=True),))
    path = carried_out / "runs.jsonl"
    records = lines(carried_out)
    for line in records:
        line["metrics"]["negative_log_likelihood"] = {"flat": 0.7, "normalised": 150.0}[line["arm"]]
    path.write_text("".join(json.dumps(line) + "\n" for line in records), encoding="utf-8")
    reproduce(recipe, carried_out)
    shown = re.findall(r">([\d.]+)</text>", (carried_out / "figures" / "arms.svg").read_text(encoding="utf-8"))
    assert {"1", "10", "100"} <= set(shown)


def test_impossible_wishes_are_refused_by_name(tmp_path):
    for extent, message in (
        ({"arms": ("round",)}, "arm is 'round'"),
        ({"seeds": 0}, "seeds is 0"),
        ({"epochs": 0.0}, "epochs is 0"),
        ({"examples": 1}, "examples is 1"),
        ({"examples": 10_000}, "at most 1437"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            reproduce(small.recipe(), tmp_path, Extent(**extent))
    with pytest.raises(InvalidArgumentError, match="jobs is 0"):
        reproduce(small.recipe(), tmp_path, jobs=0)


def test_features_that_cannot_be_had_are_refused_before_the_first_run(tmp_path, monkeypatch, performed):
    for name in ("kymatio", "kymatio.scattering2d.frontend.torch_frontend"):  # which another test may have imported
        monkeypatch.setitem(sys.modules, name, None)
    recipe = small.recipe()
    scattering = replace(recipe.arms[1], settings={**recipe.arms[1].settings, "features": "scattering"})
    with pytest.raises(PrivetError, match=r"pip install 'privet-experiments\[scattering\]'"):
        reproduce(replace(recipe, arms=(recipe.arms[0], scattering)), tmp_path)
    assert performed == []


def test_the_command_line_carries_out_a_file_and_lists_the_catalogue(tmp_path, monkeypatch, capsys):
    from test_recipe import TOML

    monkeypatch.chdir(tmp_path)
    (tmp_path / "bounds.toml").write_text(TOML, encoding="utf-8")

    def answered(command):
        with pytest.raises(SystemExit) as stop:
            main(command.split())
        assert stop.value.code == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    found = answered("reproduce bounds.toml --seeds 1 --epochs 0.2 --arm small --json")
    assert (found["recipe"], found["directory"], [row["arm"] for row in found["rows"]]) == (
        "bounds",
        "reproduced/bounds",
        ["small"],
    )
    assert (tmp_path / "reproduced" / "bounds" / "table.md").is_file()
    listed = answered("reproduce --list --json")["recipes"]
    assert {"name", "runs", "hours", "done"} <= listed[0].keys()


def test_the_list_counts_what_is_done_where_it_is_told_to_look(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def counted(*words):
        with pytest.raises(SystemExit):
            main(["reproduce", "--list", "--json", *words])
        listed = json.loads(capsys.readouterr().out.splitlines()[-1])["recipes"]
        return next(row["done"] for row in listed if row["name"] == "ntk-table")

    assert counted() == 0
    assert counted("--out", str(RESULTS)) == RECIPES["ntk-table"].runs


def test_the_command_line_asks_for_a_name(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["reproduce"])
    assert stop.value.code == 2
    assert "privet reproduce --list" in capsys.readouterr().err


# --- what counts as done: a recipe's own runs, each once and whole ------------------------------------------------------


def done(recipe, records):
    return len(finished_runs(recipe, records))


def kept(all_runs, tmp_path, change=lambda record: [record]):
    """The runs with a change to each, in a file of their own."""
    records = Records(tmp_path / "runs.jsonl")
    for record in Records(all_runs / "runs.jsonl"):
        for changed in change(record):
            records.add(changed)
    return records


def test_all_runs_of_a_recipe_count(all_runs):
    assert done(small.recipe(), Records(all_runs / "runs.jsonl")) == small.recipe().runs == 4


def test_a_file_that_is_not_there_holds_none(tmp_path):
    assert done(small.recipe(), Records(tmp_path / "none.jsonl")) == 0


@pytest.mark.parametrize(
    "change",
    [{"seed": 100}, {"examples": 500}, {"rate": 9.0}, {"arm": "another"}, {"curve": []}, {"metrics": {"accuracy": 0.5}}],
    ids=["search", "reduced", "other rate", "other arm", "evaluated less often", "fewer metrics"],
)
def test_what_another_question_asked_for_does_not_count(all_runs, tmp_path, change):
    first = next(iter(Records(all_runs / "runs.jsonl")))

    def changed(record):
        return [replace(record, **change)] if record.key == first.key else [record]

    assert done(small.recipe(), kept(all_runs, tmp_path, changed)) == 3


def test_shorter_runs_do_not_count(tmp_path):
    reproduce(UNDRAWN, tmp_path, Extent(seeds=1, epochs=0.1))
    assert done(small.recipe(), Records(tmp_path / "runs.jsonl")) == 0


def test_an_arm_with_fewer_runs_has_no_more_to_show(all_runs):
    one, two = small.recipe().arms
    assert done(small.recipe(arms=(replace(one, seeds=1), two)), Records(all_runs / "runs.jsonl")) == 3


def test_a_run_with_two_rates_is_one_of_a_tuned_recipe(all_runs, tmp_path):
    def doubled(record):
        return [record, replace(record, rate=2 * record.rate)]

    assert done(small.recipe(tuned=True), kept(all_runs, tmp_path, doubled)) == 4


def test_runs_without_the_studies_asked_for_are_not_done(all_runs):
    assert (
        done(small.recipe(studies=("norms",)), Records(all_runs / "runs.jsonl")) == 2
    )  # those of the second seed, which nobody studies


def test_a_process_begins_with_its_threads_and_keeps_what_runs_free(monkeypatch):
    called = []
    monkeypatch.setattr(malloc, "keep_freed_memory", lambda: called.append("memory"))
    monkeypatch.setattr(torch, "set_num_threads", called.append)
    workers._begin(3)
    assert called == [3, "memory"]
