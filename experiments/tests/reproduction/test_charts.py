"""Charts draw the numbers of the runs: bands, panels, cut axes, histograms, traces and diagrams of calibration."""

import math
from dataclasses import replace

import numpy as np
import pytest
import small
from drawings import numbers

from privet.evaluation import BinTable
from privet_experiments import Arm, Chart, Extent, Records, RunRecord, reproduce
from privet_experiments.reproduction.charts.rendering import _band, draw

LOOKS = [
    {"step": step, "mean_weight": weight, "noised_similarity": cosine, "gradient_norm": 1.0, "norm": [0.0, 1e-3, 1.0]}
    for step, weight, cosine in ((1, 1.0, 0.1), (2, 2.0, 0.2), (3, 6.0, math.nan), (4, 3.0, 0.9))
]
TABLE = {"edges": [0.0, 0.5, 1.0], "counts": [4, 6], "hits": [1, 6], "confidence": [1.2, 5.4]}


def record(arm, accuracy, seed=1, **changes):
    made = RunRecord(
        recipe="small", arm=arm, settings={}, rate=1.0, seed=seed, examples=1, plan=None, epsilon=1.0,
        metrics={"accuracy": accuracy}, curve=[{"step": 5.0, "accuracy": accuracy / 4}, {"step": 9.0, "accuracy": accuracy}],
        seconds=1.0, machine="", versions={}, finished="",
    )  # fmt: skip
    return replace(made, **changes)


def drawn(tmp_path, chart, records, arms=None, **changes):
    """Return the numbers and the text of a chart of made-up records."""
    common = {"charts": (chart,), "metrics": ("accuracy",), "studies": ("scaling_weight", "similarity", "norms")}
    recipe = small.recipe(**common | changes)
    missing = draw(recipe, recipe.arms if arms is None else arms, records, tmp_path)
    path = tmp_path / f"{chart.name}.svg"
    assert path.exists() == (chart not in missing)
    return (None, None) if missing else (numbers(path.read_text(encoding="utf-8")), path.read_text(encoding="utf-8"))


def test_a_band_is_a_standard_deviation_on_either_side():
    mean, low, high = _band([0.0, 4.0, 5.0, 6.0, 10.0])
    assert mean == 5.0
    assert high - mean == pytest.approx(mean - low) == pytest.approx(math.sqrt(13))


def test_a_run_that_leaps_takes_the_band_no_further_than_any_run_went():
    mean, low, high = _band([0.1, 0.1, 0.1, 0.1, 8.0])
    assert (low, mean) == (0.1, pytest.approx(1.68))
    assert mean < high < 8.0


def test_one_run_has_no_band():
    assert _band([0.25]) == (0.25, 0.25, 0.25)


def test_what_is_not_finite_leaves_a_gap():
    assert all(map(math.isnan, _band([1.0, math.nan, 2.0])))


def test_panels_have_a_series_each_with_the_published_number(tmp_path):
    arms = tuple(
        Arm(f"{series} {rate}", reported={"accuracy": 0.5} if rate == 0 else {}, at={"rate": rate, "series": series})
        for series in ("one", "two") for rate in (0.9, 0.0)
    )  # fmt: skip
    records = [record(arm.name, 0.1 + place / 10) for place, arm in enumerate(arms)]
    chart = Chart("grid", "panels", "accuracy", x="rate", series="series")
    marks, text = drawn(tmp_path, chart, records, arms)
    lines = [mark.tolist() for mark in marks if len(mark) in (2, 4)]
    assert [0.0, pytest.approx(20.0), 0.9, pytest.approx(10.0)] in lines
    assert [0.0, pytest.approx(40.0), 0.9, pytest.approx(30.0)] in lines
    assert lines.count([0.0, 50.0]) == 2
    assert ">one<" in text
    assert ">two<" in text


def test_a_cut_axis_says_what_lies_beyond_it(tmp_path):
    records = [record("flat", 0.9), record("normalised", 0.2)]
    _, text = drawn(tmp_path, Chart("arms", "arms", "accuracy", bottom=80.0), records)
    assert "← 20.0" in text
    _, text = drawn(tmp_path, Chart("curve", "curve", "accuracy", top=60.0), records)
    assert "the axis is cut: flat start beyond it" in text
    _, text = drawn(tmp_path, Chart("whole", "curve", "accuracy"), records)
    assert "cut" not in text


def test_histograms_overlay_one_arm_with_each_other(tmp_path):
    study = {"private": False, "warning": "", "studies": [], "looks": LOOKS}
    records = [record("flat", 0.5, study=study), record("normalised", 0.5, study=study)]
    marks, text = drawn(tmp_path, Chart("similarity", "histogram", "noised_similarity", against="flat"), records)
    bars = np.array([mark for mark in marks if len(mark) == 4])
    assert bars[:, 3].sum() == pytest.approx(2 * 0.75)  # of four looks one has no cosine
    assert bars[:, 0].min() == pytest.approx(0.1)
    assert (bars[:, 0] + bars[:, 2]).max() == pytest.approx(0.9)
    assert "NOT PRIVATE" in text


def test_without_the_arm_to_compare_with_the_others_are_overlaid(tmp_path):
    study = {"private": False, "warning": "", "studies": [], "looks": LOOKS}
    chart = Chart("similarity", "histogram", "noised_similarity", against="flat")
    for name in ("normalised", "flat"):
        marks, text = drawn(tmp_path, chart, [record(name, 0.5, study=study)])
        assert len(marks) == 1
        assert name in text


def test_norms_are_counted_by_the_quantiles_that_were_kept(tmp_path):
    study = {"private": False, "warning": "", "studies": [], "looks": LOOKS}
    marks, text = drawn(tmp_path, Chart("norms", "histogram", "norm", logarithmic=True), [record("flat", 0.5, study=study)])
    (steps,) = (mark.reshape(-1, 2) for mark in marks if len(mark) > 4)
    assert steps[:-1, 1].sum() == pytest.approx(1.0)
    # The quantiles at 0, ½ and 1: the ends stand for a quarter of the examples each; 0 is in the first bin.
    assert steps[0, 1] == pytest.approx(0.75)
    assert steps[-2, 1] == pytest.approx(0.25)
    assert "smaller ones are in the first bin" in text


def test_a_trace_has_the_looks_and_their_moving_mean_over_the_steps(tmp_path):
    study = {"private": False, "warning": "", "studies": [], "looks": LOOKS}
    marks, text = drawn(tmp_path, Chart("weight", "trace", "mean_weight"), [record("flat", 0.5, study=study)])
    looks, mean = marks
    assert looks.tolist() == [1, 1, 2, 2, 3, 6, 4, 3]
    assert mean.tolist() == [2.5, 3]
    assert "training step" in text


def test_calibration_is_drawn_of_all_runs_together_where_they_recorded_it(tmp_path):
    confidence = {"predicted": TABLE, "true_class": TABLE}
    chart = Chart("reliability", "reliability")
    assert drawn(tmp_path, chart, [record("flat", 0.5)]) == (None, None)
    records = [record("flat", 0.5), *(record("flat", 0.5, seed, confidence=confidence) for seed in (2, 3))]
    marks, text = drawn(tmp_path, chart, records)
    bars = [mark.tolist() for mark in marks if len(mark) == 4 and mark[2] == 0.5]
    assert [0.0, 0.0, 0.5, pytest.approx(0.1)] in bars  # 1 of 10 in the lower bin and right
    assert [0.5, 0.0, 0.5, pytest.approx(0.6)] in bars
    points = [mark.tolist() for mark in marks if len(mark) == 4]
    assert [pytest.approx(0.3), pytest.approx(0.25), pytest.approx(0.9), pytest.approx(1.0)] in points
    for words in ("frequency", "probability of the true class", "confidence"):
        assert words in text


def test_a_classifiers_runs_record_what_calibration_is_drawn_from(tmp_path):
    pytest.importorskip("sklearn", reason="the small recipe trains on scikit-learn's digits")
    recipe = small.recipe(
        metrics=("accuracy", "expected_calibration_error", "maximum_calibration_error"), charts=(Chart("all", "reliability"),)
    )
    reproduce(recipe, tmp_path, Extent(seeds=1, arms=("flat",)))
    (one,) = Records(tmp_path / "runs.jsonl")
    tables = {name: BinTable.from_dict(table) for name, table in one.confidence.items()}
    assert tables["predicted"].expected_error == pytest.approx(one.metrics["expected_calibration_error"])
    assert tables["predicted"].maximum_error == pytest.approx(one.metrics["maximum_calibration_error"])
    assert sum(tables["true_class"].hits) / tables["true_class"].examples == pytest.approx(one.metrics["accuracy"])
    assert (tmp_path / "figures" / "all.svg").is_file()
