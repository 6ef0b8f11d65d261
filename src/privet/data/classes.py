"""The classes of the user's own data: declared, never read off private rows."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privet.errors import InvalidArgumentError

# What is accepted as a declaration; `declared` says what each form means.
Declaration = int | str | Sequence[str | int | float]

# The largest classification benchmark in wide use has this many classes; more of them means that the target of a
# regression was named by mistake.
MOST_CLASSES = 1000

# The label of an example whose class was not declared. It is what torch's losses ignore by default: such an example
# has loss and gradient zero, so that a stray label neither stops the training nor shapes the model.
UNDECLARED = -100

_FIX = (
    "The rows are private, so no class is read from them. On the command line: --classes 3 if the labels are 0, 1 and 2, or "
    "--classes setosa,versicolor,virginica; in Python: classes=3 or classes=('setosa', …)."
)


@dataclass(frozen=True)
class Classes:
    """The classes in their order: what the i-th name labels becomes the class i.

    Args:
        names: 2 to 1000 of them, all different; those that are numbers stand for every way to write that number.
    """

    names: tuple[str, ...]
    _numbers: dict[int | float, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_number(len(self.names))
        keys = [name if (number := _number(name)) is None else number for name in self.names]
        if "" in keys or len(set(keys)) < len(keys):
            raise InvalidArgumentError("classes", self.names, "names that are all different, none of them empty")
        object.__setattr__(self, "_numbers", {key: i for i, key in enumerate(keys) if not isinstance(key, str)})

    def __len__(self) -> int:
        """Return how many classes there are."""
        return len(self.names)

    def numbered(self, labels: Sequence[str | int]) -> NDArray[np.int64]:
        """Return the class of every label, in [0, classes), and `UNDECLARED` for a label that is none of the names.

        Guarantee:
            What a label becomes depends on that label and on the declaration only, so one example's label changes nothing
            about another's, and nothing is raised because of one.
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
        """Return what a statement of the guarantee says about them."""
        return (
            f"The {len(self)} classes were declared, not read from the data: an example with any other label keeps its place and "
            "contributes a gradient of zero"
        )


def declared(classes: Declaration | None, source: str) -> Classes:
    """Return the classes that an argument declares.

    Args:
        classes: a number K, if the labels are the whole numbers from 0 to K − 1; or the labels in their order, as a sequence
            of texts and numbers, or as one text with commas between them, such as "setosa,versicolor" (a name with a comma in
            it goes into double quotes). A text of digits is a number K.
        source: what they are declared for, for the error.

    Raises:
        InvalidArgumentError: nothing is declared, or what is declared is no set of 2 to 1000 classes.
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
        raise InvalidArgumentError("classes", classes, "a whole number, or a sequence of texts and numbers")
    return Classes(tuple(str(name).strip() for name in classes))


def require_declared(labels: NDArray[np.int64], argument: str, where: str) -> NDArray[np.int64]:
    """Return the labels of public test data if all of them are declared.

    Args:
        labels: (N,) from `Classes.numbered`, of test data: this is an error that depends on them.
        argument: to blame.
        where: they come from.

    Raises:
        InvalidArgumentError: one is not.
    """
    stray = np.flatnonzero(labels == UNDECLARED)
    if len(stray):
        fix = f"Row {stray[0] + 1} has another label: mend it, drop it, or declare its class."
        raise InvalidArgumentError(argument, where, "test data whose labels are all among the declared classes", fix)
    return labels


def _check_number(classes: int) -> None:
    if not 2 <= classes <= MOST_CLASSES:
        fix = "A continuous target is not a label: group its values into classes first."
        raise InvalidArgumentError("classes", f"{classes} classes", f"2 to {MOST_CLASSES} classes", fix)


def _split(text: str) -> tuple[str, ...]:
    try:
        return tuple(next(csv.reader([text], strict=True, skipinitialspace=True), ()))
    except csv.Error as error:
        raise InvalidArgumentError("classes", text, "names with commas between them", f"{error}.") from None


def _is_name(name: object) -> bool:
    return isinstance(name, str | int | float | np.integer) and not isinstance(name, bool)


def _number(text: str) -> int | float | None:
    """Return the finite number that a text stands for, exactly if it is whole; None for other texts."""
    for parse in (int, float):
        try:
            value = parse(text)
        except ValueError:
            continue
        return value if math.isfinite(value) else None
    return None
