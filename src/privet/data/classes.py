"""Classes of a user's data, which are declared and never inferred from private rows."""

from __future__ import annotations

__all__ = ["MOST_CLASSES", "UNDECLARED", "Classes", "Declaration", "parse_classes", "require_declared"]

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privet.errors import InvalidArgumentError

# Accepted declarations; `parse_classes` explains the forms.
Declaration = int | str | Sequence[str | int | float]

# The number of classes of the largest common benchmark; more of them indicate a regression target by mistake.
MOST_CLASSES = 1000

# Label of an example whose class is not declared. torch's losses ignore it by default: such an example has loss and gradient
# zero, so an undeclared label neither stops training nor affects the model.
UNDECLARED = -100

_FIX = (
    "The rows are private, so classes are never inferred from them. On the command line: --classes 3 for the labels 0, 1 and 2, "
    "or --classes setosa,versicolor,virginica; in Python: classes=3 or classes=('setosa', …)."
)


@dataclass(frozen=True)
class Classes:
    """Declared classes; the i-th name is class i.

    Args:
        names: 2 to 1000 distinct names; a numeric name matches every spelling of that number.
    """

    names: tuple[str, ...]
    _numbers: dict[int | float, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_number(len(self.names))
        keys = [name if (number := _number(name)) is None else number for name in self.names]
        if "" in keys or len(set(keys)) < len(keys):
            raise InvalidArgumentError("classes", self.names, "distinct, non-empty names")
        object.__setattr__(self, "_numbers", {key: i for i, key in enumerate(keys) if not isinstance(key, str)})

    def __len__(self) -> int:
        """Return the number of classes."""
        return len(self.names)

    def encode(self, labels: Sequence[str | int]) -> NDArray[np.int64]:
        """Return the class of each label, in [0, classes), or `UNDECLARED` for a label that is not among the names.

        Guarantee:
            The class of an example depends only on its own label and the declaration: a label never affects other examples or
            raises an error.
        """
        known = {name: i for i, name in enumerate(self.names)}

        def number(label: str | int) -> int:
            found = known.get(label) if isinstance(label, str) else None
            if found is None:
                value = _number(label) if isinstance(label, str) else label
                found = None if value is None else self._numbers.get(value)
            return UNDECLARED if found is None else found

        table = {label: number(label) for label in set(labels)}
        return np.array([table[label] for label in labels], dtype=np.int64)

    def note(self) -> str:
        """Return the sentence about the classes in the privacy statement."""
        return (
            f"The {len(self)} classes were declared, not inferred from the data: an example with any other label keeps its place "
            "and contributes a gradient of zero"
        )


def parse_classes(classes: Declaration | None, source: str) -> Classes:
    """Return the classes that an argument declares.

    Args:
        classes: the number of classes K, for the labels 0 to K − 1; or the labels in order, as a sequence of strings and numbers,
            or as one string with commas, such as "setosa,versicolor" (put a name that contains a comma into double quotes). A
            string of digits is a number K.
        source: name of the data, for the error.

    Raises:
        InvalidArgumentError: `classes` is None, or does not declare 2 to 1000 distinct classes.
    """
    if classes is None:
        allowed = f"declared for {source!r}: the number of classes, or their names in order"
        raise InvalidArgumentError("classes", None, allowed, _FIX)
    if isinstance(classes, str):
        text = classes.strip()
        classes = int(text) if text.isdecimal() and len(text) < 9 else _split(text)
    if isinstance(classes, int) and not isinstance(classes, bool):
        _check_number(classes)
        return Classes(tuple(map(str, range(classes))))
    if isinstance(classes, bytes | bytearray) or not isinstance(classes, Sequence) or not all(map(_is_name, classes)):
        raise InvalidArgumentError("classes", classes, "an integer, or a sequence of strings and numbers")
    return Classes(tuple(str(name).strip() for name in classes))


def require_declared(labels: NDArray[np.int64], argument: str, where: str) -> NDArray[np.int64]:
    """Return the labels of public test data if all of them are declared.

    Args:
        labels: (N,) test labels from `Classes.encode`. They must be public, as the error depends on them.
        argument: name of the argument, for the error.
        where: origin of the labels, for the error.

    Raises:
        InvalidArgumentError: a label is not declared.
    """
    stray = np.flatnonzero(labels == UNDECLARED)
    if len(stray):
        fix = f"Row {stray[0] + 1} has another label: correct it, drop it, or declare its class."
        raise InvalidArgumentError(argument, where, "test data whose labels are all among the declared classes", fix)
    return labels


def _check_number(classes: int) -> None:
    if not 2 <= classes <= MOST_CLASSES:
        fix = "If the target is continuous, group its values into classes first."
        raise InvalidArgumentError("classes", f"{classes} classes", f"2 to {MOST_CLASSES} classes", fix)


def _split(text: str) -> tuple[str, ...]:
    try:
        return tuple(next(csv.reader([text], strict=True, skipinitialspace=True), ()))
    except csv.Error as error:
        raise InvalidArgumentError("classes", text, "names separated by commas", f"{error}.") from None


def _is_name(name: object) -> bool:
    return isinstance(name, str | int | float | np.integer) and not isinstance(name, bool)


def _number(text: str) -> int | float | None:
    """Return the finite number that a string denotes, exact for integers, or None."""
    for parse in (int, float):
        try:
            value = parse(text)
        except ValueError:
            continue
        return value if math.isfinite(value) else None
    return None
