"""Classes of a user's arrays, which are declared and never inferred from private rows."""

from __future__ import annotations

import csv
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from privet.errors import InvalidArgumentError
from privet.tables import Classification
from privet.tables.cells import UNDECLARED, Words, list_cells
from privet.tables.targets import MOST_CLASSES, Target

# Accepted declarations; `parse_classes` explains the forms.
Declaration = int | str | Sequence[str | int | float]

_FIX = (
    "The rows are private, so classes are never inferred from them. On the command line: --classes 3 for the labels 0, 1 and 2, "
    "or --classes setosa,versicolor,virginica; in Python: classes=3 or classes=('setosa', …)."
)


def parse_classes(classes: Declaration | None, source: str) -> Classification:
    """Return the classes that an argument declares for the data `source`.

    They are a number K, for the labels 0 to K − 1; or the labels in order, as a sequence of strings and numbers, or as one string
    with commas, such as "setosa,versicolor" (put a name that contains a comma into double quotes). Digits are a number K.
    """
    if classes is None:
        allowed = f"declared for {source!r}: the number of classes, or their names in order"
        raise InvalidArgumentError("classes", None, allowed, _FIX)
    if isinstance(classes, str):
        text = classes.strip()
        classes = int(text) if text.isdecimal() and len(text) < 9 else _split(text)
    if isinstance(classes, int) and not isinstance(classes, bool):
        # One too many is refused like any larger number, without a list of that many names.
        return Classification(tuple(map(str, range(min(classes, MOST_CLASSES + 1)))))
    if (
        isinstance(classes, bytes | bytearray)
        or not isinstance(classes, Sequence)
        or not all(isinstance(name, str | int | float | np.integer) and not isinstance(name, bool) for name in classes)
    ):
        raise InvalidArgumentError("classes", classes, "an integer, or a sequence of strings and numbers")
    return Classification(tuple(map(str, classes)))


def describe_classes(task: Classification) -> str:
    """Return the sentence about the classes in the privacy statement, without a full stop."""
    return (
        f"The {task.outputs} classes were declared, not inferred from the data: an example with any other label keeps its place "
        "and contributes a gradient of zero"
    )


def require_targets(
    targets: NDArray[np.generic], argument: str, where: str, task: Target, cells: Words | NDArray[np.generic]
) -> NDArray[np.generic]:
    """Return the targets (N,) of *public* test data if the cells that they come from all fit the task; errors name a row."""
    misfits = np.isnan(targets) if targets.dtype.kind == "f" else targets == UNDECLARED
    for row in map(int, np.flatnonzero(misfits)[:1]):
        cause = f"row {row + 1} has the target {list_cells(cells)[row]!r}, which is not {task.requirement}"
        fix = "Correct it, drop it, or change the declaration."
        raise InvalidArgumentError(argument, where, "test data whose targets are all as declared", fix, cause)
    return targets


def _split(text: str) -> tuple[str, ...]:
    try:
        return tuple(next(csv.reader([text], strict=True, skipinitialspace=True), ()))
    except csv.Error as error:
        raise InvalidArgumentError("classes", text, "names separated by commas", cause=f"{error}") from None
