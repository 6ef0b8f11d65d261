"""Labelled rows from a user's CSV file."""

from __future__ import annotations

__all__ = ["SCALINGS", "Bad", "Features", "load_csv"]

import csv
import gzip
import math
import zlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from privet.data.classes import Declaration, parse_classes, require_declared
from privet.data.dataset import DataSet, to_tensors
from privet.errors import InvalidArgumentError, choice

Features = NDArray[np.float64]
Bad = Callable[[str, str], InvalidArgumentError]  # allowed value and fix → error about a file

# Data-independent on purpose: standardising by the mean and standard deviation of private data would be a release outside the
# guarantee. The logarithm compresses values of any magnitude without using other rows.
SCALINGS: dict[str, Callable[[Features], Features]] = {
    "log": lambda values: np.sign(values) * np.log1p(np.abs(values)),
    "raw": lambda values: values,
}

_DELIMITERS = (",", ";", "\t")
_OPEN: dict[str, Callable[..., IO[str]]] = {".gz": gzip.open}


@dataclass(frozen=True)
class _Table:
    columns: tuple[str, ...]  # names of the features
    features: Features  # (rows, columns)
    texts: dict[str, tuple[str, ...]]  # role → cells of that column, as written in the file


def load_csv(
    path: Path,
    *,
    target: str | None = None,
    classes: Declaration | None = None,
    scaling: str = "log",
    test: str | Path | None = None,
    user_column: str | None = None,
) -> DataSet:
    """Return the rows of a CSV file as a data set: a label column, an optional user column, and numeric features.

    The delimiter is the one of comma, semicolon and tab that splits the header into most columns. The number of rows and the
    header are treated as public; the shapes of the result depend on nothing else.

    Args:
        path: a .csv or .csv.gz file in UTF-8 whose first line names the columns.
        target: the label column.
        classes: the values of the target, as for `privet.data.classes.parse_classes`. The loss ignores a row with any other
            value, or none, which keeps its place.
        scaling: "log" for sign(x)·log(1+|x|), which depends on the value only, or "raw" for no change. There is no
            standardisation: means and deviations of private data would be a release outside the guarantee. If you know public
            constants, scale the columns of the file by them.
        test: file of public test data with the same columns, in any order. Without it there is no test data: rows of the private
            file are never used for testing.
        user_column: column with the user of each row, as any string; it is not a feature.
    Errors: InvalidArgumentError if no classes are declared, if the target or user column does not exist, if a feature is not
        numeric (the message names column and row, never the value), if a file is not a table, or if test data has an undeclared
        label.
    """
    scale = SCALINGS[choice("scaling", scaling, SCALINGS)]
    known = parse_classes(classes, str(path))
    named = {"target": target} if user_column is None else {"target": target, "user_column": user_column}
    table = _read(path, "source", named)
    inputs = _finite(path, "source", table.columns, scale(table.features))
    tested, origin = None, ""
    if test is not None:
        file = _other_file(Path(test).expanduser(), path)
        rows = _read(file, "test", {"target": target}, table.columns)
        labels = require_declared(known.encode(rows.texts["target"]), "test", str(test))
        tested = to_tensors(_finite(file, "test", rows.columns, scale(rows.features)), labels)
        origin = f"the file {test}, provided as public test data"
    users = table.texts.get("user_column")
    return DataSet(
        name=path.name.split(".")[0],
        train=to_tensors(inputs, known.encode(table.texts["target"])),
        test=tested,
        classes=len(known),
        provenance=f"{path.name} came from the file {path}, with the target {target!r} and {scaling} scaling; "
        "all features were checked to be numbers.",
        users=None if users is None else np.array(users),
        test_origin=origin,
        notes=(known.note(),),
        assumptions=("the columns of the table, their names and their order, are public",),
    )


def _other_file(test: Path, path: Path) -> Path:
    if test.exists() and path.exists() and test.samefile(path):
        raise InvalidArgumentError("test", str(test), "a file other than the private one", "Test data is assumed to be public.")
    return test


def _read(path: Path, argument: str, named: dict[str, str | None], features: tuple[str, ...] | None = None) -> _Table:
    """Return the columns with a role (`named`) and the features (given, or all others); `argument` is named in errors."""
    try:
        with _OPEN.get(path.suffix.lower(), open)(path, "rt", encoding="utf-8-sig", newline="") as file:
            header = file.readline()
            delimiter = max(_DELIMITERS, key=lambda mark: len(_cells(header, mark)))
            rows = csv.reader(file, delimiter=delimiter)
            return _table(partial(InvalidArgumentError, argument, str(path)), _cells(header, delimiter), rows, named, features)
    except (OSError, EOFError, UnicodeError, csv.Error, zlib.error) as error:
        fix = f"Check that it can be opened ({type(error).__name__})."
        raise InvalidArgumentError(argument, str(path), "a readable CSV file in UTF-8, plain or .gz", fix) from error


def _cells(line: str, delimiter: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]


def _table(
    bad: Bad, header: list[str], rows: Iterator[list[str]], named: dict[str, str | None], requested: tuple[str, ...] | None
) -> _Table:
    if len(set(header)) != len(header) or "" in header or _looks_like_data(header):
        raise bad("a CSV file whose first line names each column once", "Add or correct the header.")
    places = {role: _place(header, role, column) for role, column in named.items()}
    if len(set(places.values())) < len(places):
        raise InvalidArgumentError("user_column", named["user_column"], "a column other than the target")
    columns = tuple(name for place, name in enumerate(header) if place not in places.values()) if requested is None else requested
    if missing := [name for name in columns if name not in header]:
        raise bad("a table with the columns of the training data", f"It has no column {missing[0]!r}.")
    features = [header.index(name) for name in columns]
    values, texts = array("d"), {role: list[str]() for role in places}
    for number, row in enumerate(filter(None, rows), start=1):
        if len(row) != len(header):
            raise bad(f"a table of {len(header)} columns", f"Row {number} after the header has {len(row)}.")
        for role, place in places.items():
            text = row[place].strip()
            # A missing label is ignored, like an undeclared one. A missing user is an error.
            if not text and role != "target":
                raise bad("a table without gaps", f"Column {header[place]!r} is empty in row {number} after the header.")
            texts[role].append(text)
        cells = [row[place] for place in features]
        try:
            values.extend(map(float, cells))
        except ValueError:
            culprit = next(column for column, cell in zip(columns, cells, strict=True) if not _is_number(cell))
            raise _not_numeric(bad, culprit, number) from None
    if not texts["target"] or not columns:
        raise bad("a table with at least one row, and a column besides the target", "Check the file.")
    numbers = np.frombuffer(values, dtype=np.float64).reshape(-1, len(columns))
    return _Table(columns, numbers, {role: tuple(found) for role, found in texts.items()})


def _place(header: list[str], role: str, column: str | None) -> int:
    if column is None or column not in header:
        holds = {"target": "the label", "user_column": "the users"}[role]
        raise InvalidArgumentError(role, column, f"one of the columns {', '.join(header)}", f"Name the column with {holds}.")
    return header.index(column)


def _finite(path: Path, argument: str, columns: tuple[str, ...], features: Features) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        inputs = features.astype(np.float32)
    bad = np.argwhere(~np.isfinite(inputs))
    if len(bad):
        row, column = bad[0]
        raise _not_numeric(partial(InvalidArgumentError, argument, str(path)), columns[column], int(row) + 1)
    return inputs


def _looks_like_data(header: list[str]) -> bool:
    # Without a header, the first line is private and must not appear in a message as column names. Some names may be integers,
    # as in data frames without names; a line with fractions, or of numbers only, is data.
    numbers = list(filter(_is_number, header))
    return len(numbers) == len(header) or not all(map(str.isdigit, numbers))


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def _not_numeric(bad: Bad, column: str, row: int) -> InvalidArgumentError:
    fix = f"Column {column!r} has no finite number in row {row} after the header: encode it, fill the gap or drop the column."
    return bad("a table of finite numbers besides the target", fix)
