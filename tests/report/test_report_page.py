import json
import re
from collections import Counter
from html.parser import HTMLParser

import pytest

from privet import report
from privet.accounting import Event
from privet.accounting.guarantee import tradeoff
from privet.accounting.rounding import format_percent_down, format_percent_up, format_up
from privet.errors import InvalidArgumentError
from privet.report.page import render_page
from privet.report.run_files import read

VOID = {"meta", "link", "br", "hr", "img", "input"}
HEADINGS = ["Test set", "ε by accountant", "The guarantee", "Settings", "What may be shared"]


class Page(HTMLParser):
    """Strict parser of a page: every tag must be closed, in order."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open, self.tags, self.ids, self.links, self.words = [], Counter(), Counter(), [], []
        self.feed(source)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        self.note(tag, attrs)

    def handle_startendtag(self, tag, attrs):
        self.note(tag, attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def note(self, tag, attrs):
        self.tags[tag] += 1
        self.ids.update(value for name, value in attrs if name == "id")
        self.links += [value for name, value in attrs if name in {"href", "src", "xlink:href"}]
        self.links += [link for _, value in attrs for link in re.findall(r"url\(([^)]*)\)", value or "")]

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())  # also turns no-break spaces into plain ones


def tile_texts(source: str) -> list[str]:
    return re.findall(r'class="value">([^<]*)<', source)


def test_page_loads_nothing_runs_nothing_and_every_reference_has_one_target(report_of):
    source = report_of()
    page = Page(source)
    assert not re.search(r"https?://|@import|javascript:", source)
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert page.tags["svg"] == 3
    assert max(page.ids.values()) == 1
    assert page.links
    assert all(link.startswith("#") and link.removeprefix("#") in page.ids for link in page.links)
    labels = re.findall(r'<svg role="img" aria-label="([^"]+)"', source)
    assert len(labels) == 3
    assert labels[2].startswith("Bar chart of ε by accountant: PLD 2.999")


MEANING = tradeoff.meaning([Event(1.0, 1.2)], delta=1e-5)
CLAIMED = {"epsilon": float(MEANING.profile.epsilons[-1]), "delta": 1e-5, "meaning": MEANING.to_dict()}


def test_attack_bounds_are_drawn_and_tabulated(report_of):
    source = report_of(guarantee=CLAIMED)
    page = Page(source)
    assert re.findall(r"<h2>([^<]*)</h2>", source) == ["What an attacker can learn", *HEADINGS]
    assert page.tags["svg"] == 5
    assert max(page.ids.values()) == 1
    for share in (MEANING.advantage, MEANING.found_at_one_in_a_thousand, MEANING.found_at_one_in_a_hundred):
        assert format_percent_up(share).replace("\N{NO-BREAK SPACE}", " ") in page.text
    assert format_percent_down(MEANING.bayes_risk).replace("\N{NO-BREAK SPACE}", " ") in page.text
    assert "guessing" in page.text
    assert ">10⁻³</text>" in source


def test_without_privacy_there_is_no_attack_curve(report_of):
    source = report_of(guarantee={"epsilon": "inf", "meaning": tradeoff.NO_PRIVACY.to_dict()})
    assert "What an attacker can learn" in source
    assert Page(source).tags["svg"] == 3


def test_a_page_opens_with_five_numbers_and_the_figures_of_the_training(report_of):
    source = report_of(
        guarantee=CLAIMED, evaluation={"accuracy": 0.9825, "examples": 10_000, "confusion": [[9825, 100], [75, 0]]}
    )
    right = format_percent_up(1 - MEANING.bayes_risk)
    assert tile_texts(source) == [
        format_up(CLAIMED["epsilon"]), f"≤\N{NO-BREAK SPACE}{right}", "98.25\N{NO-BREAK SPACE}%", "2,344", "0.8937",
    ]  # fmt: skip
    header = source[: source.index("</header>")]
    words = Page(header + "</header></main></body></html>").text
    assert "at δ = 10⁻⁵, for one example added or removed" in words
    assert "95 % interval 97.97 to 98.49 %, 10,000 test examples" in words
    assert "2 min 10 s of training; batches of 512 out of 60,000" in words
    assert header.count("<svg") == 3
    assert "Whatever is computed" not in words


def test_the_summary_is_in_sight_and_not_repeated(report_of):
    source = report_of(drawn=False, guarantee={"summary": "What was done: little.", "prose": "What was done: little.\n\nMore."})
    assert source.count("What was done: little.") == 1
    assert "What was done: little." in source.split("<details")[0]
    assert "More." in source.split("<details")[1]


def test_in_print_details_are_open_figures_are_whole_and_pages_have_numbers(report_of):
    style = report_of(drawn=False).split("@media print")[1].split("</style>")[0]
    assert "details::details-content { content-visibility: visible; display: block" in style
    assert re.search(r"figure[^{]*\{ break-inside: avoid", style)
    assert "counter(page)" in report_of(drawn=False)


def test_values_of_a_program_are_drawn_up_to_a_number(report_of):
    logged = [{"step": step, **{f"value <{name}>": step * name for name in range(30)}, "gone": None} for step in (1, 2344)]
    source = report_of(metrics=logged)
    assert source.count('aria-label="Line chart of the value &lt;') == 12
    assert "Logged by the program" in source


def test_a_number_has_one_interval_on_the_whole_page(report_of):
    ends = {"accuracy": [0.1234, 0.5678], "negative_log_likelihood": [0.06, 0.08]}
    source = Page(report_of(drawn=False, evaluation={"intervals": ends, "accuracy": 0.98})).text
    assert "12.34" not in source
    assert source.count("97.71 to 98.26 %") == 2  # in the tile and in the table
    assert "0.06 to 0.08" in source


@pytest.mark.parametrize(("epsilon", "right"), [(1.0, "74"), (3.0, "96"), (1000.0, "100")])
def test_without_a_recorded_curve_the_pair_itself_limits_an_attacker(report_of, epsilon, right):
    assert (
        tile_texts(report_of(drawn=False, guarantee={"epsilon": epsilon}))[1] == f"≤\N{NO-BREAK SPACE}{right}\N{NO-BREAK SPACE}%"
    )


def test_prose_settings_and_files_are_folded_and_what_is_off_is_left_out(report_of):
    source = report_of()
    folds = [part.split("</details>")[0] for part in source.split("<details")[1:]]
    found = ("Whatever is computed from the released weights", "physical batch size", "report.html")
    assert all(words in fold for fold, words in zip(folds, found, strict=True))
    assert not any(words in source.split("<details")[0] for words in found)
    rows = re.findall(r'<th scope="row">([^<]*)</th><td>([^<]*)</td>', source)
    assert ("clipping bound", "0.3") in rows
    assert not [row for row in rows if row[0] in ("format", "sparsification") or row[1] in ("—", "no", "none", "")]


def test_the_chart_of_accountants_leaves_textbook_composition_to_the_table(report_of):
    accounts = {"pld": 2.999, "rdp": 3.412, "strong": 64.1, "basic": 122.3}
    source = report_of(guarantee={"epsilon_by_accountant": accounts})
    drawing, table = source[source.index("<h2>ε by accountant") :].split("</figure>")[:2]
    assert "strong and basic composition are in the table" in drawing
    assert "122.3" not in drawing
    assert "122.3" in table
    alone = report_of(guarantee={"epsilon_by_accountant": {"basic": 122.3}})
    assert "Bar chart of ε by accountant: Basic 122.3" in alone


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</style>&amp;", "$x $"])
def test_hostile_text_is_escaped(report_of, hostile):
    clean = Page(report_of())
    source = report_of(
        run={"data": hostile, "model": hostile, "versions": {"privet": hostile}},
        plan={"adjacency": hostile},
        guarantee={"prose": hostile, "adjacency": hostile, "epsilon_by_accountant": {"pld": 2.999, hostile: 3.0}},
    )
    page = Page(source)
    assert page.tags["img"] == page.tags["script"] == 0
    assert page.tags["style"] == clean.tags["style"]
    assert page.text.count(hostile) >= 5


@pytest.mark.parametrize("key", ["gdp", "something-new"])
def test_approximate_accountants_are_marked_in_figure_and_table(report_of, key):
    directions = {"gdp": "approximation", "something-new": "unknown direction"}
    source = report_of(guarantee={"epsilon_by_accountant": {"pld": 2.999, key: 2.713}})
    drawing, table = source[source.index("<h2>ε by accountant") :].split("</figure>")[:2]
    for part in (drawing, table.split("</table>")[0]):
        assert directions[key] in part
        assert "≈\N{NO-BREAK SPACE}2.713" in part
        assert "≈\N{NO-BREAK SPACE}2.999" not in part


def test_infinite_epsilon_is_called_no_privacy(report_of):
    accounts = {"pld": "inf", "rdp": "inf", "gdp": None}
    source = report_of(guarantee={"epsilon": "inf", "epsilon_by_accountant": accounts})
    assert tile_texts(source)[0] == "∞"
    assert "No privacy." in source
    assert "status unprotected" in source
    assert "status covered" not in source
    assert Page(source).tags["figure"] == 2  # there is no bar of infinite length


def test_unfinished_run_says_so_before_anything_else(report_of, metrics_until):
    status = {"state": "unfinished", "steps_done": 940, "steps_planned": 2344}
    source = report_of(status=status, metrics=metrics_until(940), evaluation=None)
    words = "This run is unfinished. 940 of 2,344 planned steps are done. ε at the last recorded step: 1.946."
    assert words in Page(source).text
    assert source.index("unfinished") < source.index('class="tiles"')
    assert "after step 940" in source
    assert "unfinished" not in report_of()
    assert "unfinished" not in report_of(drawn=False, status={"state": "trained", "steps_done": 2344, "steps_planned": 2344})
    endless = report_of(drawn=False, status={"state": "unfinished", "steps_done": 940, "steps_planned": None})
    assert "940 steps are done" in Page(endless).text


GONE = {"guarantee": ["The guarantee", "ε by accountant"], "metrics": [], "evaluation": ["Test set"], "run": [], "status": []}


@pytest.mark.parametrize("missing", [*GONE, "all"])
def test_section_of_a_missing_file_is_left_out_and_the_others_stay(report_of, missing):
    source = report_of(**dict.fromkeys(GONE if missing == "all" else [missing]))
    Page(source)
    gone = [heading for name in GONE for heading in GONE[name] if missing in (name, "all")]
    assert re.findall(r"<h2>([^<]*)</h2>", source) == [heading for heading in HEADINGS if heading not in gone]


def test_the_origin_of_test_data_or_its_absence_is_shown(report_of):
    setup = {"data": "own.csv", "model": "mlp"}
    origin = "the file <test>.csv, provided as public test data"
    assert "&lt;test&gt;.csv, provided as public test data." in report_of(drawn=False, run=setup | {"test_data": origin})
    untested = {"run": setup | {"test_data": None}, "evaluation": None, "metrics": None}
    assert "no public test data (--test) and no paid estimate (--holdout)" in report_of(drawn=False, **untested)
    assert "no public test data" not in report_of(drawn=False, run=setup, evaluation=None)


def test_missing_plan_is_refused_with_the_directory_and_the_fix(write_run):
    directory = write_run(plan=None)
    with pytest.raises(InvalidArgumentError, match=r"plan\.json.*Give a directory") as caught:
        report.write(directory)
    assert str(directory) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [("plan.json", "{"), ("guarantee.json", "[1]"), ("evaluation.json", "3"), ("status.json", "[1]"), ("run.json", "3")],
)
def test_damaged_file_is_refused_by_name(write_run, name, content):
    directory = write_run()
    (directory / name).write_text(content, encoding="utf-8")
    with pytest.raises(InvalidArgumentError, match=re.escape(name)):
        report.write(directory)


@pytest.mark.parametrize("value", [True, 3, "words", ["a"], {"kind": 1}, {"task": {"classes": 2}}, None], ids=str)
def test_a_part_of_the_plan_that_is_no_part_is_left_out(write_run, value):
    directory = write_run()
    path = directory / "plan.json"
    odd = dict.fromkeys(("schema", "sampling", "noise", "clipping", "examples"), value)
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | odd), encoding="utf-8")
    Page(render_page(read(directory), ()))


def test_an_incomplete_last_line_is_ignored(write_run):
    directory = write_run()
    whole = read(directory)
    with (directory / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 2345, "epsi')
    assert read(directory) == whole


def test_twenty_classes_are_shown_and_more_are_not(report_of, evaluation_of):
    assert 'class="confusion"' in report_of(drawn=False, evaluation=evaluation_of(20))
    source = report_of(drawn=False, evaluation=evaluation_of(21))
    assert 'class="confusion"' not in source
    assert "21 classes, too many to show" in source


def test_confusion_shows_every_count_and_recall(report_of):
    confusion = [[7, 2, 1], [0, 5, 0], [0, 0, 0]]
    source = report_of(drawn=False, evaluation={"accuracy": 12 / 15, "confusion": confusion, "examples": 15})
    table = source[source.index('class="confusion"') :].split("</table>")[0]
    cells = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in table.split("</tr>")[1:4]]
    assert cells == [["7", "2", "1", "70.0"], ["0", "5", "0", "100.0"], ["0", "0", "0", "n/a"]]


def test_report_is_the_same_every_time_and_leaves_no_temporary_file(write_run):
    directory = write_run()
    first = report.write(directory).read_bytes()
    drawn = {path.name: path.read_bytes() for path in (directory / "figures").iterdir()}
    assert report.write(directory).read_bytes() == first
    assert {path.name: path.read_bytes() for path in (directory / "figures").iterdir()} == drawn
    assert set(drawn) == {"quality.svg", "epsilon.svg", "accountants.svg"}
    drawing = drawn["quality.svg"].decode()
    assert ">training step</text>" in drawing
    assert "DejaVu" not in drawing
    assert "Band: 95 % interval from 10,000 test examples" in first.decode()
    assert not list(directory.rglob(".*"))
