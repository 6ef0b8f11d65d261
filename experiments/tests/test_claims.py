"""The rule that turns runs into verdicts: on made-up records, and on those of every recipe against what its pages say."""

import math
import re
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
import small
from scipy.stats import ttest_ind

from privet.errors import InvalidArgumentError
from privet_experiments import RECIPES, Claim, PublishedNumber, Records, RunRecord, finished_runs, judge
from privet_experiments.claims import contrast, overall
from privet_experiments.reproduction.claims_table import findings, verdict_of
from privet_experiments.reproduction.index import index

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAGE = (RESULTS / "README.md").read_text(encoding="utf-8")
CLAIMING = [name for name, recipe in RECIPES.items() if recipe.claims]


def record(arm, accuracy, seed, **metrics):
    return RunRecord(
        recipe="made up", arm=arm, settings={}, rate=1.0, seed=seed, examples=1, plan=None, epsilon=1.0,
        metrics={"accuracy": accuracy, **metrics}, curve=[], seconds=1.0, machine="", versions={}, finished="",
    )  # fmt: skip


def runs(**arms):
    return [record(arm, value, seed) for arm, values in arms.items() for seed, value in enumerate(values, start=1)]


def claim(**changes):
    return replace(Claim("a is better", "accuracy", "a", "higher", "b"), **changes)


LOW, HIGH = (0.80, 0.81, 0.79, 0.80), (0.90, 0.91, 0.89, 0.90)


@pytest.mark.parametrize(("changes", "a", "b", "expected"), [
    ({}, HIGH, LOW, "reproduced"),
    ({}, LOW, HIGH, "contradicted"),
    ({}, LOW, LOW, "not"),
    ({}, (0.70, 0.95), (0.69, 0.90), "not"),  # in the claimed direction, but within the noise
    ({"size": 0.10}, HIGH, LOW, "reproduced"),
    ({"size": 0.18}, HIGH, LOW, "reproduced"),  # a little more than half
    ({"size": 0.50}, HIGH, LOW, "half"),
    ({"size": 0.50}, LOW, HIGH, "contradicted"),
    ({"direction": "lower"}, LOW, HIGH, "reproduced"),
    ({"direction": "lower"}, HIGH, LOW, "contradicted"),
    ({"direction": "lower", "size": 0.50}, LOW, HIGH, "half"),
    ({"direction": "not higher"}, HIGH, LOW, "contradicted"),
    ({"direction": "not higher"}, LOW, HIGH, "reproduced"),
    ({"direction": "not higher"}, LOW, LOW, "reproduced"),
    ({"direction": "not lower"}, LOW, HIGH, "contradicted"),
    ({"baseline": 0.85}, HIGH, LOW, "reproduced"),
    ({"baseline": 0.95}, HIGH, LOW, "contradicted"),
    ({"baseline": 0.901}, HIGH, LOW, "not"),
    ({}, (0.9, 0.9), (0.8, 0.8), "reproduced"),  # no spread at all, as of an ε
    ({}, (math.nan, 0.9), LOW, "not"),
])  # fmt: skip
def test_the_verdict_follows_from_direction_and_size(changes, a, b, expected):
    assert judge(claim(**changes), runs(a=a, b=b)).verdict == expected


def test_of_several_arms_the_best_counts_on_either_side():
    several = claim(arm=("a", "a2"), baseline=("b", "b2"))
    found = judge(several, runs(a=LOW, a2=HIGH, b=LOW, b2=HIGH))
    assert (found.verdict, found.difference) == ("not", 0)
    assert judge(several, runs(a=LOW, a2=HIGH, b=LOW, b2=LOW)).verdict == "reproduced"


def test_a_difference_is_compared_with_another():
    grows = claim(beyond=("c", "d"))
    assert judge(grows, runs(a=HIGH, b=LOW, c=LOW, d=LOW)).verdict == "reproduced"
    assert judge(grows, runs(a=HIGH, b=LOW, c=HIGH, d=LOW)).verdict == "not"
    assert judge(grows, runs(a=LOW, b=LOW, c=HIGH, d=LOW)).verdict == "contradicted"


@pytest.mark.parametrize(("direction", "held", "expected"), [
    ("always", (1, 1, 1), "reproduced"), ("always", (1, 0, 1), "contradicted"), ("not always", (1, 0, 1), "reproduced"),
    ("not always", (1, 1, 1), "not"),
])  # fmt: skip
def test_a_guarantee_must_hold_in_every_run_and_what_is_none_must_fail_in_one(direction, held, expected):
    assert judge(Claim("it holds", "accuracy", "a", direction), runs(a=held)).verdict == expected


def test_the_course_of_a_run_can_be_claimed_about():
    def course(arm, losses, seed):
        return replace(record(arm, 0.5, seed), curve=[{"mean_squared_error": loss} for loss in losses])

    rising = [course("a", (3.0, 1.0, 2.0 + seed / 100, 1.5), seed) for seed in (1, 2, 3)]
    falling = [course("b", (3.0, 2.0, 1.0, 1.0 + seed / 100), seed) for seed in (1, 2, 3)]
    found = judge(claim(metric="largest rise of the mean squared error"), rising + falling)
    assert (found.verdict, found.difference) == ("reproduced", pytest.approx(1.0))


def test_too_few_runs_have_no_verdict():
    assert judge(claim(), runs(a=(0.9,), b=LOW)).verdict is None
    assert judge(claim(), runs(b=LOW)).verdict is None
    assert judge(Claim("it holds", "accuracy", "a", "always"), []).verdict is None


def test_the_interval_is_welchs():
    a, b = (0.5, 0.7, 0.65, 0.6), (0.2, 0.9, 0.4)
    interval = ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert contrast([(1, a), (-1, b)]) == pytest.approx((statistics.mean(a) - statistics.mean(b), interval.low, interval.high))


def test_an_ordinary_interval_covers_the_truth_as_often_as_it_says():
    from numpy.random import default_rng

    draws = default_rng(1).normal(size=(2000, 8))
    covered = sum(low <= 0 <= high for _, low, high in (contrast([(1, row[:5]), (-1, 3 * row[5:])]) for row in draws))
    assert 0.93 < covered / len(draws) < 0.975


@pytest.mark.parametrize(("verdicts", "expected"), [
    (["reproduced"] * 3, "reproduced"), (["reproduced", "contradicted"], "half"), (["half", "not"], "half"),
    (["contradicted", "not"], "contradicted"), (["contradicted", "not", "not"], "not"), (["not"], "not"),
    ([], None), (["reproduced", None], None),
])  # fmt: skip
def test_a_row_sums_its_claims_up(verdicts, expected):
    assert overall(verdicts) == expected


@pytest.mark.parametrize(("made", "message"), [
    (lambda: claim(direction="better"), "claim.direction is 'better'"),
    (lambda: claim(size=0.0), "claim.size is 0"),
    (lambda: claim(baseline=None), "claim.baseline is missing"),
    (lambda: Claim("it holds", "accuracy", "a", "always", "b"), "claim.baseline is 'b'"),
    (lambda: small.recipe(claims=(claim(),)), "claim.arm is 'a'"),
    (lambda: small.recipe(claims=(claim(arm="flat", baseline="normalised", metric="brier"),)), "claim.metric is 'brier'"),
    (lambda: small.recipe(published=(PublishedNumber(0.9, "", 1.0, "", "round"),)), "published.arm is 'round'"),
    (lambda: small.recipe(published=(PublishedNumber(0.9, "", 1.0, "", "flat", "brier"),)), "published.metric is 'brier'"),
    (lambda: PublishedNumber(0.9, "", -1.0, "", "flat"), "published.epsilon is -1"),
])  # fmt: skip
def test_impossible_claims_are_refused(made, message):
    with pytest.raises(InvalidArgumentError, match=message):
        made()


def kept(name):
    return finished_runs(RECIPES[name], Records(RESULTS / name / "runs.jsonl"))


@pytest.mark.parametrize("name", CLAIMING)
def test_the_index_and_the_page_say_the_verdicts_of_the_kept_runs(name):
    (row,) = (line for line in PAGE.splitlines() if f"(`{name}`)" in line)
    page = (RESULTS / name / "table.md").read_text(encoding="utf-8")
    claims = dict(part.split("\n", 1) for part in page[page.index("## Claims") :].split("\n## ")[0].split("\n### ")[1:])
    for heading, some in findings(RECIPES[name], kept(name)).items():
        assert None not in [finding.verdict for finding in some], f"{name}: runs are missing"
        assert f"{heading}: {verdict_of(some)}" in row if heading else f"| {verdict_of(some)} |" in row
        section = claims[heading or "All claims"]
        assert f"Verdict: {verdict_of(some)}." in section
        for finding in some:
            (line,) = (line for line in section.splitlines() if line.startswith(f"| {finding.claim.statement} ("))
            assert line.rstrip(" |").endswith(f"| {finding.verdict}")


def test_a_changed_run_changes_the_verdict():
    recipe = RECIPES["calibration-mnist"]
    worse = [
        replace(one, metrics=one.metrics | {"expected_calibration_error": 0.05}) if one.arm == "R = 200" else one
        for one in kept("calibration-mnist")
    ]
    assert "contradicted" in verdict_of(findings(recipe, worse)[""])


def test_every_row_says_what_it_must():
    header = PAGE[PAGE.index("| experiment") :].splitlines()[0]
    rows = [line for line in PAGE.splitlines() if "table.md) (`" in line]
    columns = [cell.strip() for cell in header.strip("|").split("|")]
    assert {"setting", "model", "features", "examples", "optimizer and momentum", "learning rate", "verdict"} <= {*columns}
    assert len(rows) == len(CLAIMING)
    for row in rows:
        cells = dict(zip(columns, (cell.strip() for cell in re.split(r" \| ", row.strip("| "))), strict=True))
        assert all(cells[name] for name in columns), row
        optimizer = cells["optimizer and momentum"]
        assert "momentum" in optimizer or "Adam" in optimizer or optimizer == "gradient flow"


def test_the_index_is_that_of_the_runs():
    number = re.compile(r"\d+\.\d+")  # a tie can be rounded to either side
    made = index(RECIPES.values(), RESULTS)
    assert number.sub("", PAGE) == number.sub("", made)
    pairs = zip(number.findall(PAGE), number.findall(made), strict=True)
    assert [(one, other) for one, other in pairs if abs(float(one) - float(other)) > 0.011] == []
