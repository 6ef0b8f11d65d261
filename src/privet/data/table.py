"""Labelled rows from the user's own CSV file."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from privet.data.dataset import DataSet, class_count, tensors
from privet.data.split import public_split, split_by_user
from privet.errors import InvalidArgumentError, choice, real

Features = NDArray[np.float64]

# Data-independent on purpose: standardising with means and deviations computed from private data would be a release of
# its own, outside the guarantee. The logarithm tames columns of any magnitude without looking at the others.
SCALINGS: dict[str, Callable[[Features], Features]] = {
    "log": lambda values: np.sign(values) * np.log1p(np.abs(values)),
    "raw": lambda values: values,
}

_DELIMITERS = (",", ";", "\t")
_OPEN: dict[str, Callable[..., IO[str]]] = {".gz": gzip.open}


@dataclass(frozen=True)
class _Table:
    columns: tuple[str, ...]  # of the features
    features: Features  # (rows, columns)
    texts: dict[str, tuple[str, ...]]  # of the other columns, by their names, as written in the file


def load_csv(
    path: Path,
    *,
    target: str | None = None,
    scaling: str = "log",
    test_fraction: float = 0.2,
    user_column: str | None = None,
) -> DataSet:
    """Return the rows of a CSV file as a data set: one column is the label, one may name users, all others are numbers.

    The delimiter is whichever of comma, semicolon and tab cuts the header into most columns. The values of the target
    are numbered in sorted order (as numbers if all of them are); the set of those values is treated as public, as are
    the number of rows and the columns. The test part is drawn by position, the same on every machine; with users it has whole
    users, by a hash of their ids, as a private user's rows must not be in a part that is taken to be public.

    Args:
        path: a .csv or .csv.gz file in UTF-8 whose first line names the columns.
        target: the column with the label.
        scaling: "log" for sign(x)·log(1+|x|), which looks at nothing but the value itself, or "raw" for no change.
            There is no standardising: means and deviations computed from private data would be a release outside the
            guarantee. Scale by public constants in the file if you know some.
        test_fraction: share of the rows (or users) that goes to the test part, in [0, 1); with 0 there is no test part.
        user_column: the column that says whose each row is, by any text; it is no feature.
    Errors: InvalidArgumentError for a target or user column that is no column, columns that are not numbers (named with the first
        row, never with the value), and files that are not tables.
    """
    scale = SCALINGS[choice("scaling", scaling, SCALINGS)]
    share = real("test_fraction", test_fraction)
    if not 0 <= share < 1:
        raise InvalidArgumentError("test_fraction", test_fraction, "at least 0 and less than 1")
    named = {"target": target} if user_column is None else {"target": target, "user_column": user_column}
    table = _read(path, named)
    classes, labels = _numbered(table.texts["target"])
    inputs = _finite(path, table.columns, scale(table.features))
    users = table.texts.get("user_column")
    train, test = public_split(len(labels), math.ceil(share * len(labels))) if users is None else split_by_user(users, share)
    if not len(train):
        raise InvalidArgumentError("test_fraction", test_fraction, f"small enough to leave one of {len(labels)} rows")
    return DataSet(
        name=path.name.split(".")[0],
        train=tensors(inputs[train], labels[train]),
        test=tensors(inputs[test], labels[test]) if len(test) else None,
        classes=class_count("target", classes),
        provenance=f"{path.name} came from the file {path}, with the target {target!r} and {scaling} scaling; "
        "every row was checked to be complete and numeric.",
        users=None if users is None else np.array(users)[train],
    )


def _read(path: Path, named: dict[str, str | None]) -> _Table:
    try:
        with _OPEN.get(path.suffix.lower(), open)(path, "rt", encoding="utf-8-sig", newline="") as file:
            header = file.readline()
            delimiter = max(_DELIMITERS, key=lambda mark: len(_cells(header, mark)))
            return _table(path, _cells(header, delimiter), csv.reader(file, delimiter=delimiter), named)
    except (OSError, EOFError, UnicodeError, csv.Error, zlib.error) as error:
        fix = f"Check that it can be opened ({type(error).__name__})."
        raise InvalidArgumentError("source", str(path), "a readable CSV file in UTF-8, plain or .gz", fix) from error


def _cells(line: str, delimiter: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]


def _table(path: Path, header: list[str], rows: Iterator[list[str]], named: dict[str, str | None]) -> _Table:
    if len(set(header)) != len(header) or "" in header or _looks_like_data(header):
        raise _bad(path, "a CSV file whose first line names each column once", "Add or mend the header.")
    places = {role: _place(header, role, column) for role, column in named.items()}
    if len(set(places.values())) < len(places):
        raise InvalidArgumentError("user_column", named["user_column"], "another column than the target")
    features = [place for place in range(len(header)) if place not in places.values()]
    columns = tuple(header[place] for place in features)
    values, texts = array("d"), {role: list[str]() for role in places}
    for number, row in enumerate(filter(None, rows), start=1):
        if len(row) != len(header):
            raise _bad(path, f"a table of {len(header)} columns", f"Row {number} after the header has {len(row)}.")
        for role, place in places.items():
            text = row[place].strip()
            if not text:
                raise _bad(path, "a table without gaps", f"Column {header[place]!r} is empty in row {number} after the header.")
            texts[role].append(text)
        cells = [row[place] for place in features]
        try:
            values.extend(map(float, cells))
        except ValueError:
            culprit = next(column for column, cell in zip(columns, cells, strict=True) if not _is_number(cell))
            raise _not_numeric(path, culprit, number) from None
    if not texts["target"] or not columns:
        raise _bad(path, "a table with at least one row and one column beside the target", "Check the file.")
    numbers = np.frombuffer(values, dtype=np.float64).reshape(-1, len(columns))
    return _Table(columns, numbers, {role: tuple(found) for role, found in texts.items()})


def _place(header: list[str], role: str, column: str | None) -> int:
    if column is None or column not in header:
        holds = {"target": "the label", "user_column": "the users"}[role]
        raise InvalidArgumentError(role, column, f"one of the columns {', '.join(header)}", f"Say which column holds {holds}.")
    return header.index(column)


def _numbered(targets: tuple[str, ...]) -> tuple[int, NDArray[np.int64]]:
    """Return the number of classes and each row's class, in [0, classes)."""
    key: Callable[[str], float | str] = float if all(map(_is_number, set(targets))) else str
    values = [key(target) for target in targets]
    index = {value: position for position, value in enumerate(sorted(set(values)))}
    return len(index), np.array([index[value] for value in values], dtype=np.int64)


def _finite(path: Path, columns: tuple[str, ...], features: Features) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        inputs = features.astype(np.float32)
    bad = np.argwhere(~np.isfinite(inputs))
    if len(bad):
        row, column = bad[0]
        raise _not_numeric(path, columns[column], int(row) + 1)
    return inputs


def _looks_like_data(header: list[str]) -> bool:
    # Without a header the first line is private, and must not end up in a message as the names of columns. Some names
    # may be whole numbers, as data frames without names have them; fractions, and numbers only, are data.
    numbers = list(filter(_is_number, header))
    return len(numbers) == len(header) or not all(map(str.isdigit, numbers))


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def _not_numeric(path: Path, column: str, row: int) -> InvalidArgumentError:
    fix = f"Column {column!r} holds something else in row {row} after the header: encode it, fill the gap or drop it."
    return _bad(path, "a table of finite numbers beside the target", fix)


def _bad(path: Path, allowed: str, fix: str) -> InvalidArgumentError:
    return InvalidArgumentError("source", str(path), allowed, fix)
