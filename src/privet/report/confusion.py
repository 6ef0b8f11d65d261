"""Confusion matrix as an HTML table with shaded cells."""

from __future__ import annotations

__all__ = ["LARGEST", "to_markup"]

from collections.abc import Sequence

from privet.report.markup import Markup, element, text

LARGEST = 20  # most classes whose columns fit on a page


def to_markup(confusion: Sequence[Sequence[int]], names: Sequence[str]) -> Markup:
    """Return a table of counts with one row per true class, which ends with the recall.

    Args:
        confusion: confusion[i][j] is the number of examples of class i that were predicted as class j; at most `LARGEST` classes.
        names: name of each class.
    """
    classes = range(len(confusion))
    head = element(
        "tr",
        element("th", text("true"), scope="col"),
        *(element("th", text(name), scope="col") for name in names),
        element("th", text("recall %"), scope="col", class_="recall"),
    )
    body = (
        element(
            "tr",
            element("th", text(names[label]), scope="row"),
            *(_cell(count, sum(confusion[label]), correct=label == other) for other, count in enumerate(confusion[label])),
            element("td", text(_recall(confusion[label], label)), class_="recall"),
        )
        for label in classes
    )
    content = element("table", element("thead", head), element("tbody", *body), class_="confusion")
    return element("div", content, class_="scroll", role="region", aria_label="Confusion matrix", tabindex="0")


def _cell(count: int, total: int, *, correct: bool) -> Markup:
    kind = "correct" if correct else "wrong" if count else "none"
    # The square root makes rare errors visible, which would be white on a linear scale.
    shade = (count / total) ** 0.5 if total else 0.0
    return element("td", text(str(count)), class_=kind, style=f"--shade: {shade:.0%}" if count else "")


def _recall(row: Sequence[int], label: int) -> str:
    return f"{100 * row[label] / sum(row):.1f}" if sum(row) else "n/a"
