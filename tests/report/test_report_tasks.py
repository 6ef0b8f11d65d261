import html
import json
import re
from dataclasses import replace

import pytest

from privet.evaluation import Evaluation, HeldOutEstimate, RegressionEvaluation
from privet.report.figures.single_run import draw
from privet.report.headline import describe_classes, headline, list_estimates, list_recalls, list_released, warn_of_majority
from privet.report.page import render_page
from privet.report.run_files import read

ERRORS = {"mean_squared_error": (0.36, 0.49), "mean_absolute_error": (0.5, 0.6), "r_squared": (0.2, 0.3)}
REGRESSION = RegressionEvaluation(0.4225, 0.55, 980, ERRORS, r_squared=0.25)
PAID = {"examples": 287, "unit": "example", "epsilon": 0.1, "delta": 1e-6, "noise_multiplier": 30.0}
HELD_OUT = HeldOutEstimate(
    task="regression", metrics={"mean_absolute_error": 0.52, "root_mean_squared_error": 0.71},
    intervals={"mean_absolute_error": (0.4, 0.64), "root_mean_squared_error": (0.6, 0.82)}, **PAID,
)  # fmt: skip


def write_json(directory, name, content):
    (directory / name).write_text(json.dumps(content), encoding="utf-8")
    return directory


def read_page(directory, *, drawn=False):
    run = read(directory)
    return render_page(run, draw(run) if drawn else ()).replace("\N{NO-BREAK SPACE}", " ")


def test_a_regression_is_judged_by_its_error_in_the_unit_of_the_target():
    best = headline(REGRESSION)
    assert (best.name, best.with_interval, best.higher_is_better) == ("RMSE", "0.65 (0.6 to 0.7)", False)
    assert [one.name for one in list_estimates(REGRESSION)] == ["RMSE", "MAE", "R²"]
    assert [one.name for one in list_estimates(RegressionEvaluation(1.0, 1.0, 5))] == ["RMSE", "MAE"]


RARE = Evaluation(0.97, 0.12, ((4845, 0), (150, 5)), 5000, auroc=0.83, class_names=("alive", "dead"))


@pytest.mark.parametrize(("confusion", "words"), [
    (((4845, 0), (150, 5)), "always predicting 'alive' has the same accuracy, 96.90 %"),
    (((4600, 245), (50, 105)), "always predicting 'alive' has a higher accuracy, 96.90 %"),
    (((4840, 5), (50, 105)), ""),
])  # fmt: skip
def test_an_accuracy_that_is_no_better_than_the_majority_is_warned_of(confusion, words):
    accuracy = (confusion[0][0] + confusion[1][1]) / 5000
    found = warn_of_majority(replace(RARE, accuracy=accuracy, confusion=confusion))
    assert len(found) == bool(words)
    assert words in "".join(found).replace("\N{NO-BREAK SPACE}", " ")
    assert warn_of_majority(REGRESSION) == warn_of_majority(None) == ()


def test_tile_table_and_banner_show_what_accuracy_hides(write_run):
    directory = write_json(write_run(evaluation=None), "evaluation.json", RARE.to_dict())
    source = html.unescape(read_page(directory))
    told = "always predicting 'alive': 96.90 %; AUROC 0.83; balanced accuracy 51.61 %; recall: 'alive' 100.00 %, 'dead' 3.23 %"
    assert told in source
    assert "Accuracy says little here:" in source
    assert [one.name for one in list_recalls(RARE)] == re.findall(r'scope="row">(Recall of [^<]*)<', source)
    confusion = tuple(tuple(10 * (i == j) + (j == 0) for j in range(9)) for i in range(9))
    many = Evaluation(90 / 99, 0.3, confusion, examples=99)
    assert describe_classes(many).endswith("recall: '1' 90.91\N{NO-BREAK SPACE}% to '0' 100.00\N{NO-BREAK SPACE}%")


def test_a_regression_has_its_tile_its_curve_and_its_table(write_run, metrics_until):
    lines = [
        {"step": line["step"], "epsilon": line["epsilon"], "test_mean_squared_error": 4 / line["step"]}
        for line in metrics_until(2344)
    ]
    directory = write_json(write_run(metrics=lines, evaluation=None), "evaluation.json", REGRESSION.to_dict())
    source = read_page(directory, drawn=True)
    assert re.findall(r"<dt>(Test [^<]*)</dt><dd class=\"value\">([^<]*)<", source) == [("Test RMSE", "0.65")]
    assert "95 % interval 0.6 to 0.7, 980 test examples" in source
    assert 'aria-label="Line chart of the test error against the training step; test RMSE is 0.04131 after step 2,344."' in source
    assert "Confusion" not in source
    assert "Calibration" not in source


@pytest.mark.parametrize("measured", [True, False])
def test_a_paid_estimate_has_a_section_and_stands_in_for_a_test_set(write_run, measured):
    given = {} if measured else {"evaluation": None, "metrics": None}
    source = read_page(write_json(write_run(run={"test_data": None}, **given), "holdout.json", HELD_OUT.to_dict()))
    section = source[source.index("<h2>Held-out private data</h2>") :].split("</section>")[0]
    assert "287 private examples that no step used" in section
    assert "at ε = 0.1 and δ = 10⁻⁶" in section
    assert re.findall(r"<td[^>]*>([^<]*)</td>", section)[:2] == ["0.71", "0.6 to 0.82"]
    assert ("Held-out RMSE" in source[: source.index("</header>")]) != measured


def test_a_released_accuracy_is_a_share():
    (accuracy,) = list_released(
        HeldOutEstimate(task="classification", metrics={"accuracy": 0.9}, intervals={"accuracy": (0.8, 0.95)}, **PAID)
    )
    assert accuracy.with_interval.replace("\N{NO-BREAK SPACE}", " ") == "90.00 % (80.00 to 95.00 %)"


@pytest.mark.parametrize("changes", [
    {"plan": {"schema": {"task": {"kind": "Classification", "classes": ["<=50K", ">50K"]}}}},
    {"run": {"classes": "<=50K,>50K"}},
])  # fmt: skip
def test_classes_have_their_public_names(write_run, changes):
    found = {"accuracy": 0.75, "confusion": [[2, 1], [0, 1]], "examples": 4}
    source = read_page(write_run(evaluation=found, **changes))
    table = source[source.index('class="confusion"') :].split("</table>")[0]
    assert re.findall(r'scope="row">([^<]*)', table) == ["&lt;=50K", "&gt;50K"]


def test_a_schema_is_shown_once_as_it_was_written(write_run):
    schema = {"columns": [["age", {"kind": "Number", "lower": 10, "upper": 97}]]}
    directory = write_run(plan={"schema": schema})
    (directory / "schema.toml").write_text('[columns]\nage = { kind = "number" }\n', encoding="utf-8")
    source = read_page(directory)
    assert 'age = { kind = "number" }' in html.unescape(source)
    assert "schema · columns" not in source
