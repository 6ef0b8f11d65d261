"""Public facts about a table, from the arguments of an estimator; and rows as cells, from which nothing is inferred."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_consistent_length, column_or_1d, validate_data

from privet.errors import InvalidArgumentError, choice
from privet.tables import Number, Schema, read_frame
from privet.tables.cells import Words, match, parse_numbers, to_cells, to_number, to_words
from privet.tables.frames import Frame, read_series
from privet.tables.targets import Target

Bounds = tuple[ArrayLike, ArrayLike] | Sequence[tuple[float, float]] | Mapping[str, tuple[float, float]]
Labels = NDArray[np.generic]

_ELSEWHERE = "They are public and must come from elsewhere: minima and maxima of private rows are private."
_SHOWN = 10  # entries of bounds in a message
_BOOLEANS = {"True": "1", "False": "0"}
_PAIR = "(low, high), with numbers or one per feature; a list of one (low, high) per feature; or name → (low, high)"


def read_rows(estimator: Any, rows: object, *, reset: bool, fewest: int = 1) -> Frame:
    """Return rows as columns of cells, named as in a data frame, or x0, x1, … for an array.

    `estimator` gets `n_features_in_` and `feature_names_in_` if these are rows to fit (`reset`), or has them for comparison.

    Guarantee:
        Only shape, type and names decide whether an exception is raised; no cell does.
    """
    if hasattr(rows, "columns") and hasattr(rows, "shape"):  # a data frame of any library
        validate_data(estimator, rows, reset=reset, skip_check_array=True)
        return read_frame(rows, "X")
    table = _to_objects(rows) if isinstance(rows, list | tuple) else rows
    # Here, since scikit-learn's messages show the rows.
    if getattr(getattr(table, "dtype", None), "kind", None) == "c":
        raise ValueError(f"Complex data not supported: X is an array of {table.dtype}; give real numbers.")  # type: ignore[attr-defined]
    if isinstance(table, np.ndarray) and table.ndim < 2:
        kind = "1D" if table.ndim else "scalar"
        raise ValueError(
            f"Expected 2D array, got {kind} array instead: X must have rows of features. Reshape your data with "
            "X.reshape(-1, 1) for a single feature, or X.reshape(1, -1) for a single row."
        )
    array = validate_data(estimator, table, reset=reset, dtype=None, ensure_all_finite=False, ensure_min_samples=fewest)
    columns = {f"x{place}": _to_column(array[:, place]) for place in range(array.shape[1])}
    return Frame(columns, len(array), "an array", "X")


def read_target(y: object, rows: int) -> Labels:
    """Return the target of each row, (N,), whatever its cells are."""
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None.")
    kind = getattr(getattr(y, "dtype", None), "kind", None)
    if kind == "c" and isinstance(y, np.ndarray):  # here, since scikit-learn's message shows the target
        raise InvalidArgumentError("y", f"an array of {y.dtype}", "real numbers or labels")
    if not isinstance(getattr(y, "dtype", None), np.dtype) and (cells := read_series(y)) is not None:
        y = np.fromiter(cells, dtype=object, count=len(cells))
    # As objects, since a single cell would decide how the others are written: in a list, [True, 2] becomes [1, 2]; and a series
    # is complex if one of its cells is.
    values: Labels = column_or_1d(np.array(y, dtype=object) if isinstance(y, list | tuple) or kind == "c" else y, warn=True)
    check_consistent_length(range(rows), values)
    return values


def read_labels(name: str, labels: object) -> Labels:
    """Return public labels, such as classes, as an array in their order."""
    if labels is None or isinstance(labels, str | bytes) or not isinstance(labels, Sequence | np.ndarray):
        fix = "They are public and must come from elsewhere: which labels occur among private rows is private."
        raise InvalidArgumentError(name, labels, "a list of labels in their order", fix)
    return np.asarray(labels)


def to_texts(labels: Labels) -> tuple[str, ...]:
    """Return labels as a schema names them."""
    return tuple(label.decode("utf-8", "replace") if isinstance(label, bytes) else str(label) for label in labels.tolist())


def find_range(cells: Words | Labels) -> tuple[float, float]:
    """Return the smallest and the largest number among *public* cells, with a margin around a single one."""
    cells = _read_booleans(cells if isinstance(cells, Words) else _to_column(cells))
    numbers = parse_numbers(cells.distinct) if isinstance(cells, Words) else cells.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    if not len(finite):
        raise InvalidArgumentError("rows", "without a finite number", "public rows with numbers", "They determine the bounds.")
    low, high = float(finite.min()), float(finite.max())
    margin = 0.0 if high > low else max(0.5, abs(low) / 1000)
    return low - margin, high + margin


def declare_schema(frame: Frame, bounds: object, task: Target) -> Schema:
    """Return the schema of a table of numbers, by its columns' names; a missing number becomes the middle of its bounds."""
    names = tuple(frame.columns)
    target = "y"
    while target in names:
        target += "_"
    return Schema(tuple(zip(names, declare_numbers("feature_bounds", names, bounds), strict=True)), target, task)


def declare_numbers(argument: str, names: Sequence[str], bounds: object, missing: str = "neutral") -> list[Number]:
    """Return the encoding of each column of numbers, by the bounds that an argument declares public.

    `bounds` are two numbers, two arrays (D,), a list of D pairs, or column → two numbers; `missing` is as for
    `privet.tables.Number`. Of two features, a list has pairs, and a tuple two arrays if these are bounds.
    """
    if isinstance(bounds, Mapping):
        if missing_names := [name for name in names if name not in bounds]:
            allowed = f"given for the column {missing_names[0]!r}, too"
            raise InvalidArgumentError(argument, sorted(map(str, bounds)), allowed, _ELSEWHERE)
        pairs = [bounds[name] for name in names]
    elif (table := _to_table(bounds)).shape == (len(names), 2) and (
        len(names) != 2 or isinstance(bounds, list) or not (table[0] < table[1]).all()
    ):
        pairs = table.tolist()
    elif len(table) == 2 and table.shape[1:] in ((), (1,), (len(names),)):
        pairs = np.broadcast_to(table.T, (len(names), 2)).tolist()
    else:
        found = f"{len(bounds)} entries" if isinstance(bounds, Sequence) and len(bounds) > _SHOWN else bounds
        raise InvalidArgumentError(argument, found, f"{_PAIR}, for {len(names)} features", _ELSEWHERE)
    return [_declare_number(f"{argument} of {name!r}", pair, missing) for name, pair in zip(names, pairs, strict=True)]


def _to_table(bounds: object) -> Labels:
    """Return bounds as an array (2,), (2, D) or (D, 2), in which one number stands for D; an empty one for anything else."""
    try:
        ends = [np.asarray(end, np.float64) for end in bounds]  # type: ignore[attr-defined]
        return np.array(np.broadcast_arrays(*ends))
    except (TypeError, ValueError):
        return np.empty(0)


def read_booleans(frame: Frame) -> Frame:
    """Return the table with 1 and 0 for True and False, which are no numbers in a table otherwise."""
    return replace(frame, columns={name: _read_booleans(cells) for name, cells in frame.columns.items()})


def with_target(frame: Frame, schema: Schema, values: Labels) -> Frame:
    """Return the table with the target as one more column.

    As in Python, True and False equal 1 and 0: for a target of numbers, and where only one of the two is a declared class. If
    neither is, such a label is not refused, since one missing label decides whether the array is one of booleans.
    """
    cells = _to_column(values)
    cells = _read_booleans(cells) if schema.classes is None else _match_booleans(to_words(cells), schema.classes)
    return replace(frame, columns={**frame.columns, schema.target: cells})


def _read_booleans(cells: Words | Labels) -> Words | Labels:
    if not isinstance(cells, Words):
        return cells
    return replace(cells, distinct=tuple(_BOOLEANS.get(cell or "", cell) for cell in cells.distinct))


def _match_booleans(cells: Words, classes: Sequence[str]) -> Words:
    numbers = {int(number): text for text, number in _BOOLEANS.items()}
    equals = (_BOOLEANS.get(cell or "") or numbers.get(to_number(cell or ""), cell) for cell in cells.distinct)  # type: ignore[arg-type]
    found = zip(cells.distinct, equals, match(cells.distinct, classes), strict=True)
    return replace(cells, distinct=tuple(cell if place >= 0 else equal for cell, equal, place in found))


def _declare_number(argument: str, bounds: Any, missing: str) -> Number:
    choice("missing", missing, ("neutral", "indicator"))
    try:
        low, high = bounds
        return Number(float(low), float(high), missing=missing)
    except (TypeError, ValueError):
        shown = tuple(bounds) if isinstance(bounds, list) else bounds
        raise InvalidArgumentError(argument, shown, "two finite numbers, the lower one first") from None


def _to_column(values: Labels) -> Words | Labels:
    return values if values.dtype.kind in "iuf" else to_cells(values.tolist())


def _to_objects(rows: Sequence[Any]) -> Labels:
    """Return rows of one length as an array of objects, (N, D), in which each cell is as it was given.

    For an array, NumPy would find one type for all cells, so that a single text or complex number changes all others.
    """
    lengths = {len(row) if hasattr(row, "__len__") and not isinstance(row, str | bytes | Mapping) else -1 for row in rows}
    if len(lengths) > 1 or -1 in lengths:
        raise ValueError("Expected 2D array: X is a list, and must have rows of equal length. Reshape your data.")
    table = np.empty((len(rows), *lengths), dtype=object)
    for place, row in enumerate(rows):
        for feature, cell in enumerate(row):
            table[place, feature] = cell
    return table
