"""Tables in memory, from files or data frames: unchanged cells, from which nothing is inferred."""

from __future__ import annotations

import csv
import gzip
import importlib
import sys
import zlib
from array import array
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from privet.errors import InvalidArgumentError
from privet.tables.cells import Words, to_cells

# Ending → the delimiter, or None for the one of `_DELIMITERS` that splits the header into most columns.
DELIMITED: dict[str, str | None] = {".csv": None, ".csv.gz": None, ".tsv": "\t", ".tsv.gz": "\t"}
_HEADER_FIX = "Add or correct the header; an index without a name comes from pandas: write it with to_csv(..., index=False)."
_DELIMITERS = (",", ";", "\t", "|")
_OPEN: dict[str, Callable[..., IO[str]]] = {".gz": gzip.open}
# Longest cell; csv's own limit would make the length of a private cell an error.
_LONGEST_CELL = 2**31 - 1
_ARROW = {".parquet": ("pyarrow.parquet", "read_table"), ".arrow": ("pyarrow.feather", "read_table")}
_ARROW[".feather"] = _ARROW[".arrow"]
# Endings of the files that are tables.
ENDINGS = (*DELIMITED, *_ARROW)
_SHEETS = (".xlsx", ".xls", ".ods")
_EXTRA = "Install what reads it: pip install 'privet[tables]'."


@dataclass(frozen=True, eq=False)
class Frame:
    """Columns of equal length.

    Cells are text, or an array of numbers (integers, or floats with NaN for missing ones). Those of a data frame are converted
    when they are first used. `source` and `argument` are for messages; `types` are those that the source declares, which files
    of text do not. `broken` rows have too few or too many cells, all of which count as missing.
    """

    columns: Mapping[str, Words | NDArray[np.generic]]
    rows: int
    source: str = "a data frame"
    argument: str = "data"
    types: Mapping[str, str] = field(default_factory=dict)
    broken: int = 0


class _Converted(UserDict[str, Any]):
    """Columns that are converted once, when they are first used."""

    def __getitem__(self, name: str) -> Words | NDArray[np.generic]:
        if callable(found := self.data[name]):
            found = self.data[name] = found()
        column: Words | NDArray[np.generic] = found
        return column


def read_frame(source: object, argument: str = "data") -> Frame:
    """Return a table from a file or a data frame, without inferring anything from its cells.

    Args:
        source: path of a file that ends in .csv, .tsv (both also with .gz), .parquet, .arrow or .feather; a pandas, polars or
            pyarrow table; or a mapping from column names to sequences of equal length.
        argument: name of the argument for errors.

    Raises:
        InvalidArgumentError: the file cannot be read, is no table, or names a column twice; the message says nothing about cells.
    """
    if isinstance(source, Frame):
        return source
    if isinstance(source, str | Path):
        return _read_file(Path(source).expanduser(), argument)
    if isinstance(source, Mapping):
        return _from_mapping(source, argument)
    return _from_native(source, "a data frame", argument)


def read_series(source: object) -> list[object] | None:
    """Return the cells of a series of any library, None for a cell that Python has no object for; None if it is no series."""
    series = _open_series(source)
    return None if series is None else _to_objects(series)


def read_types(source: object, argument: str = "data") -> Mapping[str, str | None]:
    """Return the name of each column with the type that the source declares for it, or None.

    Of a file of text one line is read, of a parquet file the schema that it declares. Sources are those of `read_frame`.
    """
    if isinstance(source, str | Path) and _ending(Path(source), argument) in DELIMITED:
        with _opened(Path(source).expanduser(), argument) as (header, _, _):
            return dict.fromkeys(header)
    if isinstance(source, Frame | Mapping):
        return dict.fromkeys(read_frame(source, argument).columns) | dict(getattr(source, "types", {}))
    if isinstance(source, str | Path) and _ending(Path(source), argument) == ".parquet":  # its footer declares them
        source = _read_arrow(Path(source).expanduser(), argument, "pyarrow.parquet", "read_schema").empty_table()
    elif isinstance(source, str | Path):
        source = _read_arrow(Path(source).expanduser(), argument, *_ARROW[_ending(Path(source), argument)])
    return _declared_types(_open_frame(source, argument, argument))


def _ending(path: Path, argument: str) -> str:
    for ending in ENDINGS:
        if path.name.lower().endswith(ending):
            return ending
    raise InvalidArgumentError(argument, str(path), f"the path of a table that ends in {', '.join(ENDINGS)}", sheet_fix(path))


def sheet_fix(path: Path) -> str:
    """Return what to do with the file of a spreadsheet; "" for another file."""
    return "Save the sheet as CSV, or load it with pandas.read_excel." if path.suffix.lower() in _SHEETS else ""


def _read_file(path: Path, argument: str) -> Frame:
    ending = _ending(path, argument)
    if ending not in DELIMITED:
        return _from_native(_read_arrow(path, argument, *_ARROW[ending]), str(path), argument)
    with _opened(path, argument) as (header, delimiter, file):
        limit = csv.field_size_limit(_LONGEST_CELL)
        try:
            columns, rows, broken = _columns(header, csv.reader(file, delimiter=delimiter))
        finally:
            csv.field_size_limit(limit)
    return Frame(columns, rows, str(path), argument, broken=broken)


def _read_arrow(path: Path, argument: str, module: str, function: str) -> Any:
    try:
        read = getattr(importlib.import_module(module), function)
    except ImportError:
        raise InvalidArgumentError(argument, str(path), "a file for which a reader is installed", _EXTRA) from None
    try:
        return read(path)
    except (OSError, ValueError) as error:  # pyarrow's errors are derived from these
        cause = getattr(error, "strerror", None) or type(error).__name__
        raise InvalidArgumentError(argument, str(path), f"a readable {path.suffix} file", cause=cause) from None


def _from_mapping(source: Mapping[str, Sequence[object]], argument: str) -> Frame:
    columns: dict[str, Words | NDArray[np.generic]] = {}
    for name, values in source.items():
        numbers = isinstance(values, np.ndarray) and values.dtype.kind in "iuf" and values.ndim == 1
        series = None if numbers else _open_series(values)
        columns[str(name).strip()] = (
            values if numbers else to_cells(values) if series is None else _from_series(series)  # type: ignore[assignment]
        )
    lengths = {len(cells) for cells in columns.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise InvalidArgumentError(argument, "a mapping", "columns of equal length with at least one row")
    return Frame(columns, lengths.pop(), "a mapping", argument)


def _from_native(source: Any, name: str, argument: str) -> Frame:
    table = _open_frame(source, name, argument)
    if not len(table):
        raise InvalidArgumentError(argument, name, "a table with at least one row")
    types = _declared_types(table)
    # By position, since names of pandas' columns may be numbers.
    columns = {name: partial(_from_series, series) for name, series in zip(types, table.iter_columns(), strict=True)}
    return Frame(_Converted(columns), len(table), name, argument, types)


def _open_frame(source: Any, name: str, argument: str) -> Any:
    try:
        import narwhals.stable.v2 as nw
    except ImportError:
        raise InvalidArgumentError(argument, type(source).__name__, "a table whose reader is installed", _EXTRA) from None
    try:
        table = nw.from_native(source, eager_only=True)
        names = {str(column).strip() for column in table.columns}
    except (TypeError, ValueError):  # something else, or names that occur twice
        allowed = "the path of a table, or a pandas, polars or pyarrow table whose columns are named once each"
        raise InvalidArgumentError(argument, type(source).__name__, allowed, "Collect a lazy one first.") from None
    if len(names) < len(table.columns) or not names:
        raise InvalidArgumentError(argument, name, "a table whose columns are named once each")
    return table


def _open_series(source: object) -> Any:
    try:
        import narwhals.stable.v2 as nw
    except ImportError:
        return None
    if (pyarrow := sys.modules.get("pyarrow")) and isinstance(source, pyarrow.Array):
        source = pyarrow.chunked_array([source])
    series = nw.from_native(source, series_only=True, pass_through=True)
    return series if isinstance(series, nw.Series) else None


def _declared_types(table: Any) -> dict[str, str]:
    return {str(column).strip(): str(kind) for column, kind in table.schema.items()}


def _from_series(series: Any) -> Words | NDArray[np.generic]:
    # Integers with gaps stay text: as floats, long identifiers would coincide. Numbers and their texts are encoded alike.
    short = series.dtype.is_integer() and not str(series.dtype).endswith("128")  # NumPy has no longer integers
    if series.dtype.is_float() or (short and not series.null_count()):
        numbers = np.asarray(series.to_numpy())
        if numbers.dtype.kind in "iuf":
            return numbers
    return to_cells(_to_objects(series))


def _to_objects(series: Any) -> list[object]:
    """Return the cells of a series as Python's objects, and None for one that has no such object.

    Text that is not UTF-8 has none, and neither has a date or a duration beyond those of Python.
    """
    try:
        found: list[object] = series.to_list()
    except BaseException as error:
        # polars' panics are no Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        if len(series) <= 1:
            return [None] * len(series)
        middle = len(series) // 2
        return _to_objects(series[:middle]) + _to_objects(series[middle:])
    return found


class _UnreadableError(Exception):
    """A file is not a table of delimited text: what it must be, and how to fix it."""


@contextmanager
def _opened(path: Path, argument: str) -> Iterator[tuple[list[str], str, IO[str]]]:
    """Open a file in UTF-8, and give the names of its columns, its delimiter, and the file at its second line."""
    ending = next(ending for ending in DELIMITED if path.name.lower().endswith(ending))
    try:
        with _OPEN.get(path.suffix.lower(), open)(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as file:
            first = file.readline()
            if "\0" in first:
                fix = "It is in another encoding, such as UTF-16."
                raise _UnreadableError("a readable table of delimited text in UTF-8", fix)
            delimiter = DELIMITED[ending] or max(_DELIMITERS, key=lambda mark: len(_split(first, mark)))
            yield _header(_split(first, delimiter)), delimiter, file
    except _UnreadableError as error:
        raise InvalidArgumentError(argument, str(path), *error.args) from None
    except (OSError, EOFError, csv.Error, zlib.error) as error:
        cause = getattr(error, "strerror", None) or type(error).__name__
        allowed = "a readable table of delimited text in UTF-8, plain or .gz"
        raise InvalidArgumentError(argument, str(path), allowed, cause=cause) from None


def _split(line: str, delimiter: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]


def _header(names: list[str]) -> list[str]:
    # Without a header, the first line is a private row, which must not appear in a message or a draft as column names. Numbers
    # are names only if they count the columns, as in a data frame whose features have no names.
    numbers = [name for name in names if _is_number(name)]
    data = numbers and (len(numbers) == len(names) or [*map(str, range(len(numbers)))] != numbers)
    if not names or len(set(names)) < len(names) or "" in names or data:
        raise _UnreadableError("a table whose first line names each column once", _HEADER_FIX)
    return names


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _columns(header: list[str], rows: Iterator[list[str]]) -> tuple[dict[str, Words], int, int]:
    """Return the columns, the number of rows, and of rows with a wrong number of cells.

    Surrounding spaces are removed. Empty lines do not count as rows; in a row with too few or too many cells, all are missing.
    """
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
        raise _UnreadableError("a table with at least one row below its header", "Check the file.")
    columns = (Words(tuple(cells), np.frombuffer(at, dtype=np.intc)) for cells, at in zip(known, places, strict=True))
    return dict(zip(header, columns, strict=True)), number, broken
