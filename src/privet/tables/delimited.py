"""Files of delimited text. Column names are public; reading never fails because of the content of a row."""

from __future__ import annotations

__all__ = ["DELIMITED", "Unreadable", "read_delimited", "read_names"]

import csv
import gzip
import math
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from privet.tables.cells import Words

# Ending → the delimiter, or None for the one of `_DELIMITERS` that splits the header into most columns.
DELIMITED: dict[str, str | None] = {".csv": None, ".csv.gz": None, ".tsv": "\t", ".tsv.gz": "\t"}
_HEADER_FIX = "Add or correct the header; an index without a name comes from pandas: write it with to_csv(..., index=False)."
_DELIMITERS = (",", ";", "\t", "|")
_OPEN: dict[str, Callable[..., IO[str]]] = {".gz": gzip.open}
# Longest cell; csv's own limit would make the length of a private cell an error.
_LONGEST_CELL = 2**31 - 1


class Unreadable(Exception):  # noqa: N818
    """A file is not a table of delimited text.

    Args:
        allowed: description of an allowed file.
        fix: how to fix it.
    """

    def __init__(self, allowed: str, fix: str) -> None:
        self.allowed, self.fix = allowed, fix
        super().__init__(allowed)


def read_delimited(path: Path) -> tuple[dict[str, Words], int, int]:
    """Return the columns of a file in UTF-8 with a header, the number of rows, and of rows with a wrong number of cells.

    Surrounding spaces are removed. Empty lines do not count as rows; in a row with too few or too many cells, all are missing.

    Raises:
        Unreadable: the file cannot be opened or decompressed, or its first line does not name each column once.
    """
    with _opened(path) as (header, delimiter, file):
        limit = csv.field_size_limit(_LONGEST_CELL)
        try:
            return _columns(header, csv.reader(file, delimiter=delimiter))
        finally:
            csv.field_size_limit(limit)


def read_names(path: Path) -> list[str]:
    """Return the names of the columns, from the first line only; errors as for `read_delimited`."""
    with _opened(path) as (header, _, _):
        return header


@contextmanager
def _opened(path: Path) -> Iterator[tuple[list[str], str, IO[str]]]:
    """Open a file, and give the names of its columns, its delimiter, and the file at its second line."""
    ending = next(ending for ending in DELIMITED if path.name.lower().endswith(ending))
    try:
        with _OPEN.get(path.suffix.lower(), open)(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as file:
            first = file.readline()
            if "\0" in first:
                raise Unreadable("a readable table of delimited text in UTF-8", "It is in another encoding, such as UTF-16.")
            delimiter = DELIMITED[ending] or max(_DELIMITERS, key=lambda mark: len(_split(first, mark)))
            yield _header(_split(first, delimiter)), delimiter, file
    except (OSError, EOFError, csv.Error, zlib.error) as error:
        fix = f"{getattr(error, 'strerror', None) or type(error).__name__}."
        raise Unreadable("a readable table of delimited text in UTF-8, plain or .gz", fix) from None


def _split(line: str, delimiter: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]


def _header(names: list[str]) -> list[str]:
    # Without a header, the first line is a private row, which must not appear in a message or a draft as column names.
    if not names or len(set(names)) < len(names) or "" in names or _looks_like_data(names):
        raise Unreadable("a table whose first line names each column once", _HEADER_FIX)
    return names


def _looks_like_data(names: list[str]) -> bool:
    # Numbers are names only if they count the columns, as in a data frame whose features have no names.
    numbers = [name for name in names if _is_number(name)]
    return bool(numbers) and (len(numbers) == len(names) or [*range(len(numbers))] != [_whole(name) for name in numbers])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _whole(cell: str) -> float:
    return int(cell) if cell.isdecimal() else math.nan


def _columns(header: list[str], rows: Iterator[list[str]]) -> tuple[dict[str, Words], int, int]:
    known: list[dict[str | None, int]] = [{} for _ in header]
    places = [array("i") for _ in header]
    number = broken = 0
    for row in rows:
        if not row:
            continue
        number += 1
        fits = len(row) == len(header)
        broken += not fits
        for column, cell in enumerate(row if fits else header):
            cells = known[column]
            places[column].append(cells.setdefault(cell.strip() if fits else None, len(cells)))
    if not number:
        raise Unreadable("a table with at least one row below its header", "Check the file.")
    columns = (Words(tuple(cells), np.frombuffer(at, dtype=np.intc)) for cells, at in zip(known, places, strict=True))
    return dict(zip(header, columns, strict=True)), number, broken
