import json
import re

from matplotlib.figure import Figure

from privet.report.figures.svg import extract_numbers, inline, render


def draw(figure):
    axes = figure.subplots()
    axes.plot([1, 2, 3], [0.1, float("nan"), 1 / 3], label="a & b < c")
    axes.barh(0, 2.5, left=1.0, height=0.5)
    axes.errorbar([4.0], [5.0], yerr=[0.25])
    axes.set_title("no number")
    axes.legend()


MARKS = [[1.0, 0.1, 2.0, None, 3.0, 0.333333], [4.0, 5.0], [1.0, -0.25, 2.5, 0.5], [4.0, 4.75, 4.0, 5.25]]


def test_every_mark_occurs_once_in_the_units_of_the_axes():
    figure = Figure()
    draw(figure)
    assert extract_numbers(figure) == MARKS


def test_the_numbers_are_in_the_file_and_not_in_the_page():
    written = render("some", draw, (4.0, 3.0))
    (described,) = re.findall(r"<dc:description>(.*?)</dc:description>", written)
    assert json.loads(described) == MARKS
    page = str(inline(written, "a drawing"))
    assert "metadata" not in page
    assert "description" not in page
    assert page.count("no number") == written.count("no number") == 1
