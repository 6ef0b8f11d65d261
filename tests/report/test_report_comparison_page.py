import json
import re

import pytest

from privet.cli import main
from privet.errors import InvalidArgumentError
from privet.evaluation import RegressionEvaluation, tabulate
from privet.report import comparison
from privet.report.comparison import find_variation
from privet.report.run_files import read


def find(write_run, *changes):
    return find_variation([read(write_run(**change)) for change in changes])


def test_the_noise_of_runs_with_one_budget_is_no_cause(write_run):
    changes = [
        {"plan": {"steps": steps, "noise": {"kind": "Gaussian", "multiplier": noise}}} for steps, noise in ((1, 1.0), (2, 1.4))
    ]
    found = find(write_run, *changes)
    assert (list(found.varied), list(found.follows)) == (["steps"], ["noise multiplier"])
    assert "One setting was varied: steps. The noise multiplier follows from that." in found.summary
    other = [change | {"guarantee": {"epsilon": epsilon}} for change, epsilon in zip(changes, (1.0, 2.0), strict=True)]
    assert find(write_run, *other).varied == {"steps": ("1", "2"), "ε": ("1.0", "2.0")}


def test_what_a_rule_chose_in_all_runs_follows_from_what_was_varied(write_run):
    def change(epsilon, rate, *defaults):
        noise = {"kind": "Gaussian", "multiplier": 1 / epsilon}
        setup = {"learning_rate": rate, "defaults": dict.fromkeys(defaults, rate)}
        return {"plan": {"noise": noise}, "guarantee": {"epsilon": epsilon}, "run": setup}

    found = find(write_run, change(1.0, 0.3, "learning_rate"), change(2.0, 0.6, "learning_rate"))
    assert "One setting was varied: ε. The learning rate follows from that." in found.summary
    chosen = find(write_run, change(1.0, 0.3, "learning_rate"), change(2.0, 0.6))
    assert list(chosen.varied) == ["ε", "learning rate"]


def test_seeds_tell_repetitions_apart(write_run):
    found = find(write_run, {"run": {"seed": 1}}, {"run": {"seed": 2}})
    assert list(found.varied) == ["seed"]
    assert "differ by chance" in found.summary


def test_settings_that_only_one_run_knows_differ_unless_they_are_off(write_run):
    found = find(write_run, {"run": {"average": None, "views": 4}}, {})
    assert found.varied == {"views": ("4", "none")}
    (schema,) = find(write_run, *({"plan": {"schema": {"columns": [name]}}} for name in "ab")).varied.values()
    assert len(set(schema)) == 2


@pytest.fixture
def swept(write_run):
    """Return the directories of three runs with different bounds."""
    tables = {"calibration": tabulate([0.9] * 10_000, [True] * 9000 + [False] * 1000).to_dict(), "brier": 0.2}
    return [
        write_run(plan={"clipping": {"kind": "Flat", "bound": bound}}, evaluation=tables, status={"steps_done": 100 * number})
        for number, bound in enumerate((0.1, 0.2, 0.4), start=1)
    ]


def test_page_opens_with_what_was_varied_and_the_five_numbers(swept, tmp_path):
    source = comparison.write(swept, tmp_path / "compared").read_text(encoding="utf-8")
    header = source[: source.index("</header>")]
    assert "One setting was varied: clipping bound." in header
    values = [value.replace("\N{NO-BREAK SPACE}", " ") for value in re.findall(r'class="value[^"]*">([^<]*)<', header)]
    assert values == ["2.999", "≤ 96 %", "98.25 %", "100 to 300", "0.8937"]
    assert "costs more than any single run" in source
    assert not re.search(r"https?://|<script", source)
    assert comparison.write(swept, tmp_path / "compared").read_text(encoding="utf-8") == source


def test_table_marks_the_varied_column_and_folds_the_others(swept, tmp_path):
    source = comparison.write(swept, tmp_path / "compared").read_text(encoding="utf-8")
    table = source[source.index('class="runs') :].split("</table>")[0]
    assert re.findall(r"<th scope=\"col\"( class=\"varied\")?>([^<]*)", table) == [
        ("", "Run"), ("", "Test accuracy"), ("", "Steps"), (' class="varied"', "Clipping bound"),
    ]  # fmt: skip
    assert re.findall(r'<td class="varied"[^>]*>([^<]*)</td>', table) == ["0.1", "0.2", "0.4"]
    assert re.findall(r'data-head="Steps">([^<]*)', table) == ["100", "200", "300"]
    assert [f"<code>{directory.name}</code>" in table for directory in swept] == [True] * 3
    folded = source[source.index("<h2>Same in all runs</h2>") :]
    assert '<th scope="row">learning rate</th><td>2</td>' in folded


def test_runs_of_one_name_are_told_apart_by_their_folders(write_run, tmp_path):
    directories = [write_run().rename(tmp_path / letter) for letter in "ab"]
    moved = []
    for directory in directories:
        (tmp_path / f"in-{directory.name}").mkdir()
        moved.append(directory.rename(tmp_path / f"in-{directory.name}" / "run"))
    source = comparison.write(moved, tmp_path / "compared").read_text(encoding="utf-8")
    assert "<code>in-a/run</code>" in source
    assert "<code>in-b/run</code>" in source


def test_runs_without_evaluation_or_guarantee_can_be_compared(write_run, tmp_path):
    bare = {"guarantee": None, "metrics": None, "evaluation": None, "run": None, "status": None}
    source = comparison.write([write_run(**bare), write_run(**bare)], tmp_path / "bare").read_text(encoding="utf-8")
    source = comparison.write([write_run(**bare), write_run()], tmp_path / "mixed").read_text(encoding="utf-8")
    assert "1 of 2 runs" in source
    unbounded = [write_run(), write_run(guarantee={"epsilon": "inf"})]
    assert "2.999 to ∞" in comparison.write(unbounded, tmp_path / "inf").read_text(encoding="utf-8")


def test_runs_of_different_tasks_name_their_results(write_run, tmp_path):
    runs = [
        write_run(),
        write_run(evaluation=None, metrics=None),
        write_run(evaluation=None, metrics=None, run={"test_data": None}),
    ]
    regression = RegressionEvaluation(0.25, 0.4, 100).to_dict()
    (runs[1] / "evaluation.json").write_text(json.dumps(regression), encoding="utf-8")
    source = comparison.write(runs, tmp_path / "c").read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " ")
    assert re.findall(r'data-head="Result">([^<]*)', source) == ["Test accuracy 98.25 %", "Test RMSE 0.5", "not measured"]
    pair = comparison.write([runs[0], runs[2]], tmp_path / "d").read_text(encoding="utf-8")
    assert 'data-head="Test accuracy">not measured' in pair


def test_one_run_and_the_directory_of_a_run_are_refused(swept, tmp_path):
    with pytest.raises(InvalidArgumentError, match="at least two"):
        comparison.write(swept[:1], tmp_path / "compared")
    with pytest.raises(InvalidArgumentError, match="holds no run"):
        comparison.write(swept[:2], swept[2])


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
