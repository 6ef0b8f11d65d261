"""Comparison of several runs: the right lines and intervals, and no line through runs that differ in another setting."""

from __future__ import annotations

import json
import math
import re

import pytest

from privet.cli import main
from privet.errors import InvalidArgumentError
from privet.evaluation import tabulate
from privet.report import side_by_side
from privet.report.figures.points import Estimate, Point, group_into_lines
from privet.report.figures.several_runs import draw


def make_point(accuracy=0.8, rule="Flat", epsilon=2.0, error=0.05, **settings):
    named = {name.replace("_", " "): value for name, value in settings.items()}
    return Point(
        name="run", rule=rule, epsilon=epsilon, settings=named,
        accuracy=Estimate(accuracy, (accuracy - 0.02, accuracy + 0.02)),
        calibration_error=None if error is None else Estimate(error, (error - 0.03, error - 0.01)), loss=0.4,
        progress=((epsilon / 2, accuracy / 2), (epsilon, accuracy)),
    )  # fmt: skip


def names(points):
    return {figure.name for figure in draw(points)}


def test_settings_that_follow_from_the_place_do_not_split_lines():
    points = [make_point(clip_bound=bound, learning_rate=0.2 / bound) for bound in (0.1, 0.4, 1.6)]
    assert list(group_into_lines(points, "clip bound")) == [""]
    budgets = [make_point(epsilon=epsilon, noise_multiplier=1 / epsilon) for epsilon in (1, 2)]
    assert list(group_into_lines(budgets, "ε")) == list(group_into_lines(budgets, "noise multiplier")) == [""]


def test_rules_and_settings_that_differ_at_one_place_split_lines():
    points = [
        make_point(rule=rule, clip_bound=bound, learning_rate=rate)
        for rule in ("Flat", "PSAC")
        for bound in (1, 2)
        for rate in (3, 4)
    ]
    found = group_into_lines(points, "clip bound")
    assert sorted(found) == [f"{rule}, learning rate {rate}" for rule in ("Flat", "PSAC") for rate in (3, 4)]
    assert all(len(members) == 2 for members in found.values())


def test_nearly_equal_budgets_are_one_line():
    points = [make_point(epsilon=epsilon, clip_bound=bound) for epsilon, bound in ((2.99991, 1), (2.99998, 1), (2.99995, 2))]
    assert list(group_into_lines(points, "clip bound")) == [""]


def test_figures_are_those_that_the_settings_allow():
    assert names([make_point(epsilon=1.0), make_point(epsilon=2.0)]) == {"accuracy-by-epsilon"}
    swept = [make_point(epsilon=math.inf, batch_size=size) for size in (64, 256)]
    assert names(swept) == {"sweep-batch-size"}
    grid = [make_point(clip_bound=bound, learning_rate=rate) for bound in (0.1, 1.0) for rate in (0.5, 5.0)]
    assert names(grid) == {"accuracy-by-epsilon", "sweep-clip-bound", "sweep-learning-rate", "grid"}
    along = [make_point(clip_bound=bound, learning_rate=1 / bound) for bound in (0.1, 1.0, 10.0)]
    assert "grid" not in names(along)


def test_too_many_lines_are_not_drawn():
    points = [make_point(clip_bound=bound, momentum=momentum) for bound in (1, 2) for momentum in (0.0, 0.3, 0.5, 0.7, 0.9)]
    assert names(points) == {"sweep-momentum"}


def test_diagonal_goes_through_the_best_cell_as_the_scaling_rule_says():
    grid = [
        make_point(0.9 if (bound, rate) == (1.0, 2.0) else 0.7, clip_bound=bound, learning_rate=rate)
        for bound in (0.5, 1.0, 2.0) for rate in (1.0, 2.0, 4.0)
    ]  # fmt: skip
    (figure,) = (one for one in draw(grid) if one.name == "grid")
    assert "best is 90.00 % at η = 2, C = 1" in figure.label
    assert figure.svg.count("90.0</text>") == 1


def test_intervals_beside_their_point_and_missing_numbers_can_be_drawn():
    points = [make_point(1.0, error=None, clip_bound=1), make_point(0.0, clip_bound=2), make_point(0.1, clip_bound=2)]
    assert "sweep-clip-bound" in names(points)
    missing = Point("run", "Flat", math.inf, {}, None, None, None, ())
    assert names([missing, missing]) == set()


@pytest.fixture
def swept(write_run):
    """Return the directories of three runs with different bounds."""
    tables = {"calibration": tabulate([0.9] * 10_000, [True] * 9000 + [False] * 1000).to_dict(), "brier": 0.2}
    rule = {"kind": "Layerwise", "rules": {"kind": "Flat"}}
    return [
        write_run(plan={"clipping": rule | {"rules": {"kind": "Flat", "bound": bound}}}, evaluation=tables)
        for bound in (0.1, 0.2, 0.4)
    ]


def test_page_has_a_row_for_every_run_and_warns_about_selection(swept, tmp_path):
    path = side_by_side.write(swept, tmp_path / "compared")
    source = path.read_text(encoding="utf-8")
    assert [f"<code>{directory.name}</code>" in source for directory in swept] == [True] * 3
    assert re.findall(r"<td>(0\.[124])</td>", source) == ["0.1", "0.2", "0.4"]
    assert "Shared settings: learning rate 2, batch size 512, noise multiplier 0.8937." in source
    assert "costs more than any single run" in source
    assert not re.search(r"https?://|<script", source)
    drawn = {one.name: one.read_bytes() for one in (path.parent / "figures").iterdir()}
    assert set(drawn) == {"accuracy-by-epsilon.svg", "sweep-clip-bound.svg"}
    assert side_by_side.write(swept, tmp_path / "compared").read_text(encoding="utf-8") == source
    assert {one.name: one.read_bytes() for one in (path.parent / "figures").iterdir()} == drawn


def test_one_run_and_the_directory_of_a_run_are_refused(swept, tmp_path):
    with pytest.raises(InvalidArgumentError, match="at least two"):
        side_by_side.write(swept[:1], tmp_path / "compared")
    with pytest.raises(InvalidArgumentError, match="holds no run"):
        side_by_side.write(swept[:2], swept[2])


def test_command_line_compares_several_and_reports_one(swept, tmp_path, capsys):
    def answer(*arguments, status=0):
        with pytest.raises(SystemExit) as stop:
            main(["report", *map(str, arguments), "--json"])
        assert stop.value.code == status
        return capsys.readouterr()

    found = json.loads(answer(*swept, "--out", tmp_path / "c").out)
    assert found == {"report": str(tmp_path / "c" / "report.html"), "directory": str(tmp_path / "c")}
    assert json.loads(answer(swept[0]).out)["directory"] == str(swept[0])
    assert "left out for one run" in answer(swept[0], "--out", tmp_path / "c", status=2).err
