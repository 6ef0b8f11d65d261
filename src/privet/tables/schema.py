"""The public schema of a private table: the encoding of every column, fixed before any row is read."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet._utils.documents import DocumentError, read_text
from privet._utils.registry import Part, add, decode, encode
from privet.errors import InvalidArgumentError, PrivetError
from privet.tables.bounded import Bounded
from privet.tables.cells import MISSING_CELLS, UNDECLARED, Words, list_cells, mark_missing, plain, spellings, to_words
from privet.tables.columns import MISSING, UNFIT, Column, Identifier, UserId
from privet.tables.frames import Frame
from privet.tables.targets import Classification, Target
from privet.tables.toml import kind_of, parse_schema, write_schema

# Number of places that a message names.
SHOWN = 20
_LONGEST_VALUE = 40
# Number of cells of a column that `Misfits` shows.
_EXAMPLES = 5
_EMPTY = "it has no values, or another number of cells than the table has columns"


@add
@dataclass(frozen=True)
class Schema(Part):
    """The columns of a table and the target, as a public declaration that no private row changes.

    Args:
        columns: name and kind of each column but the target, such as (("age", Number(17, 90)), ("id", Ignore())). Columns of a
            table that the schema does not name are not read.
        target: name of the column to predict.
        task: `Classification` or `Regression`.
        missing_cells: text that stands for a missing cell, unless it is a value of its column; a number in any of its spellings.

    Guarantee:
        Shapes, classes, ranges and scaling depend on the schema only. The features and the target of a row depend on that row
        and the schema only, and no cell raises an exception. The schema is public only if it was written without looking at the
        private rows; the privacy statement lists this as an assumption.

    Raises:
        InvalidArgumentError: columns are named twice, none is a feature, or several hold users.

    >>> from privet.tables import Category, Classification, Number, read_frame
    >>> schema = Schema(
    ...     columns=(("age", Number(0, 100)), ("colour", Category(("red", "white")))),
    ...     target="good", task=Classification(("no", "yes")),
    ... )
    >>> schema.width, schema.feature_names
    (3, ('age', 'colour=red', 'colour=white'))
    >>> frame = read_frame({"age": [25, 900], "colour": ["white", None], "good": ["yes", "perhaps"]})
    >>> schema.encode(frame).tolist()
    [[-0.5, 0.0, 1.0], [1.0, 0.0, 0.0]]
    >>> schema.encode_target(frame).tolist()
    [1, -100]
    >>> Schema.from_toml(schema.to_toml()) == schema
    True
    """

    columns: tuple[tuple[str, Column], ...]
    target: str
    task: Target
    missing_cells: tuple[str, ...] = MISSING_CELLS

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", _read_pairs(self.columns))
        names = [name for name, _ in self.columns]
        for name in (*names, self.target):
            if not isinstance(name, str) or not name.strip():
                raise InvalidArgumentError("columns", name, "named by text that is not empty")
        if self.target in names:
            fix = "It belongs to the section [target] only."
            raise InvalidArgumentError(f"columns.{self.target}", "the target", "a column other than the target", fix)
        if twice := {name for name in names if names.count(name) > 1}:
            raise InvalidArgumentError("columns", sorted(twice), "named once each")
        for name, column in self.columns:
            if not isinstance(column, Column):
                raise InvalidArgumentError(f"columns.{name}", column, "a kind of column", "Such as Number(lower=0, upper=1).")
        if not isinstance(self.task, Target):
            raise InvalidArgumentError("task", self.task, "Classification(…) or Regression(…)")
        cells = self.missing_cells
        if isinstance(cells, str) or not all(isinstance(cell, str) for cell in cells):
            raise InvalidArgumentError("missing_cells", cells, "a list of strings", 'Such as ["", "?", "NA"].')
        object.__setattr__(self, "missing_cells", tuple(cells))
        if not self.width:
            raise InvalidArgumentError("columns", names, "at least one feature: a number, category, boolean or text")
        if len(users := [name for name, column in self.columns if isinstance(column, UserId)]) > 1:
            raise InvalidArgumentError("columns", users, "a single column of users", "Ignore the others.")

    @cached_property
    def width(self) -> int:
        """Number of features."""
        return sum(len(column.labels()) for _, column in self.columns)

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Name of each feature, such as "age", "colour=red" and "age is missing"."""
        return tuple(name + label for name, column in self.columns for label in column.labels())

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The classes; None for regression."""
        return self.task.classes if isinstance(self.task, Classification) else None

    @property
    def priors(self) -> tuple[float, ...]:
        """The public class priors; empty without any, and for regression."""
        return self.task.priors if isinstance(self.task, Classification) else ()

    @property
    def user_column(self) -> str | None:
        """The column of users, if there is one."""
        return next((name for name, column in self.columns if isinstance(column, UserId)), None)

    @property
    def kinds(self) -> dict[str, Column | Target]:
        """Column → description of its cells, with the target last."""
        return {**dict(self.columns), self.target: self.task}

    def identifiers(self, frame: Frame) -> dict[str, list[object]]:
        """Return column → cells of each column of identifiers or users that the table has, as it has them, (N,)."""
        named = [name for name, column in self.columns if isinstance(column, Identifier | UserId) and name in frame.columns]
        return {name: list_cells(frame.columns[name]) for name in named}

    def encode(self, frame: Frame) -> NDArray[np.float32]:
        """Return the features of each row, (N, width); the table must have the columns of the schema."""
        table = np.zeros((frame.rows, self.width), dtype=np.float32)
        start = 0
        for name, column in self.columns:
            if number := len(column.labels()):
                table[:, start : start + number] = column.encode(self.cells(frame, name))
                start += number
        return table

    def encode_target(self, frame: Frame) -> NDArray[np.generic]:
        """Return the class of each row in [0, K), int64, or the target in [-1, 1], float32.

        A cell that does not fit becomes `UNDECLARED` or NaN: the loss gives such a row a gradient of zero.
        """
        return self.task.encode(self.cells(frame, self.target))

    def users(self, frame: Frame) -> NDArray[np.str_] | None:
        """Return the user of each row, "" for a row without one; None if the schema has no column of users."""
        if self.user_column is None:
            return None
        words = to_words(self.cells(frame, self.user_column))
        return np.array([plain(cell or "") for cell in words.distinct], dtype=np.str_)[words.places]

    def status(self, frame: Frame, names: Iterable[str]) -> dict[str, NDArray[np.int8]]:
        """Return for each of these columns whether its cells fit: `columns.FITS`, `MISSING` or `UNFIT`, each (N,)."""
        return {name: self.kinds[name].status(self.cells(frame, name)) for name in names}

    def decode(self, outputs: NDArray[np.floating[Any]]) -> NDArray[np.generic]:
        """Return predictions in the words or units of the target, (N,), from outputs of a model (N, K) or (N,)."""
        return self.task.decode(outputs)

    def cells(self, frame: Frame, name: str) -> Words | NDArray[np.generic]:
        """Return the cells of a column, with those that stand for a missing cell as None or NaN."""
        if name not in frame.columns:
            fix = f"It has no column {name!r}: correct its header or the schema."
            raise InvalidArgumentError(frame.argument, frame.source, "a table with the columns of its schema", fix)
        meant = spellings(self.kinds[name].values_with_meaning)
        return mark_missing(frame.columns[name], spellings(self.missing_cells) - meant)

    def to_toml(self) -> str:
        """Return the schema as TOML; `from_toml` gives an equal schema back."""
        return write_schema(self.columns, self.target, self.task, self.missing_cells)

    @classmethod
    def from_toml(cls, text: str) -> Schema:
        """Return the schema of a TOML text; errors name the column and the key that is wrong or not filled in."""
        return cls(**parse_schema(text))

    @classmethod
    def read(cls, path: str | Path) -> Schema:
        """Return the schema of a TOML file; errors are those of `from_toml`, with the name of the file."""
        try:
            return cls.from_toml(read_text(Path(path).expanduser()))
        except DocumentError as error:
            raise InvalidArgumentError("schema", str(path), "a readable TOML file", cause=str(error)) from None
        except InvalidArgumentError as error:
            raise error.under(f"{path}: {error.name}") from None

    @classmethod
    def of(cls, given: object) -> Schema:
        """Return a schema as it is, or that of the TOML file with this path."""
        if not isinstance(given, Schema | str | Path):
            raise InvalidArgumentError("schema", type(given).__name__, "a privet.tables.Schema, or the path of its TOML file")
        return given if isinstance(given, Schema) else cls.read(given)

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain JSON values, every argument included."""
        return dict(encode(self))

    @classmethod
    def from_dict(cls, data: object) -> Schema:
        """Return the schema that `to_dict` gave."""
        found = decode("schema", data, cls)
        if not isinstance(found, cls):
            raise InvalidArgumentError("schema", type(data).__name__, "what Schema.to_dict returns")
        return found

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the schema: equal for equal schemas only, whatever the layout of their files."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def describe(self) -> str:
        """Return the sentence about the schema in the privacy statement, without a full stop."""
        kinds = [type(column).__name__ for _, column in self.columns]
        task = f"{len(self.classes)} classes" if self.classes else f"{self.task.requirement}"
        return (
            f"A public schema (SHA-256 {self.fingerprint[:16]}…) of {len(kinds)} columns and the target {self.target!r} "
            f"({task}) decided all shapes, classes, categories and bounds. A cell that does not fit becomes what the schema "
            "says; a row whose target does not fit keeps its place and contributes a gradient of zero"
            + (f"; a row without a user in {self.user_column!r} is left out" if self.user_column else "")
        )


def _read_pairs(columns: object) -> tuple[tuple[str, Column], ...]:
    if not isinstance(columns, list | tuple) or any(not isinstance(pair, list | tuple) or len(pair) != 2 for pair in columns):
        raise InvalidArgumentError("columns", columns, "pairs of a name and a kind", 'Such as (("age", Number(0, 120)),).')
    return tuple((name, column) for name, column in columns)


@dataclass(frozen=True)
class Misfits:
    """Counts and examples of private cells; private themselves.

    For each column, the target last, the cells that are missing and those that do not fit, and the commonest of the latter with
    their numbers; the rows whose target does not fit, and those with too few or too many cells; and the columns that the schema
    does not name.
    """

    rows: int
    columns: dict[str, tuple[int, int]]
    examples: dict[str, dict[str, int]]
    rows_without_target: int
    broken: int
    unused: tuple[str, ...]

    def describe(self, name: str, schema: Schema, show: bool) -> list[str]:
        """Return a table of the counts of the table `name`, and on request examples, as lines."""
        width = max(map(len, self.columns))
        lines = [f"{name}: {self.rows:,} rows, {schema.width:,} features"]
        lines.append(f"{'column':{width}}  {'kind':14} {'missing':>9} {'does not fit':>13}")
        for column, (missing, unfit) in self.columns.items():
            lines.append(f"{column:{width}}  {kind_of(schema.kinds[column]):14} {missing:>9,} {unfit:>13,}")
        lost = "rows have no target that fits: they keep their place and contribute a gradient of zero."
        lines.append(f"{self.rows_without_target:,} {lost}")
        if self.broken:
            lines.append(f"{self.broken:,} rows have too few or too many cells, which all count as missing.")
        if self.unused:
            lines.append(f"Not in the schema, and not used: {', '.join(self.unused)}.")
        for column, cells in self.examples.items() if show else ():
            shown = ", ".join(f"{cell!r} ({number:,})" for cell, number in cells.items())
            lines.append(f"Private cells of {column} that are not {schema.kinds[column].requirement}: {shown}")
        return lines


@dataclass(frozen=True)
class Places:
    """Cells of rows to predict that do not fit: one sentence for each column, the first places, and numbers of cells and rows."""

    first: tuple[str, ...]
    number: int
    rows: int
    columns: tuple[str, ...] = ()


class MisfitError(PrivetError, ValueError):
    """Some rows to predict do not fit; the message names the fix and counts by column, or with `verbose` the first places."""

    def __init__(self, found: Places, fix: str, verbose: bool = False) -> None:
        self.found, self.fix, self.verbose = found, fix, verbose
        more = f"; and {found.number - len(found.first):,} more" if found.number > len(found.first) else ""
        rows = "1 row does not fit" if found.rows == 1 else f"{found.rows:,} rows do not fit"
        where = f"{'; '.join(found.first)}{more}" if verbose or not found.columns else "; ".join(found.columns)
        super().__init__(f"{fix} {rows} the model: {where}.".strip())

    def __reduce__(self) -> tuple[type[MisfitError], tuple[Places, str, bool]]:
        return (type(self), (self.found, self.fix, self.verbose))


def count_misfits(frame: Frame, schema: Schema) -> Misfits:
    """Return the numbers of cells of a table that do not fit its schema, and the commonest of these cells.

    Guarantee:
        None: the counts depend on private rows. They are for the owner of the table; a schema that is changed after looking at
        them is no longer public.

    """
    counts, examples = {}, {}
    for name, found in schema.status(frame, schema.kinds).items():
        unfit = found == UNFIT
        counts[name] = (int((found == MISSING).sum()), int(unfit.sum()))
        words = to_words(schema.cells(frame, name))
        commonest = Counter(words.places[unfit].tolist()).most_common(_EXAMPLES)
        if commonest:
            examples[name] = {_shorten(words.distinct[place] or ""): number for place, number in commonest}
    targets = schema.encode_target(frame)
    lost = np.isnan(targets) if targets.dtype.kind == "f" else targets == UNDECLARED
    unused = tuple(name for name in frame.columns if name not in schema.kinds)
    return Misfits(frame.rows, counts, examples, int(lost.sum()), frame.broken, unused)


def list_misfits(frame: Frame, schema: Schema, beyond: bool) -> Places:
    """Return the cells of features that do not fit, and the rows without any cell, of rows to predict.

    The rows belong to the user of the model, so reasons may name their values. A missing cell fits, because the schema defines
    its encoding. A row with too few or too many cells counts as empty. Columns without features need not be there. Points beyond
    public bounds, which are encoded by a rule, too, are listed on request.
    """
    names = [name for name, column in schema.columns if column.labels()]
    status = schema.status(frame, names)
    empty = np.all([found == MISSING for found in status.values()], axis=0)
    unfit = {name: found == UNFIT for name, found in status.items()}
    for name, column in schema.columns:
        if isinstance(column, Bounded) and not beyond:
            words = to_words(schema.cells(frame, name))
            unfit[name] &= np.isnan(column.read(words.distinct))[words.places]
    rows = np.flatnonzero(np.any([*unfit.values(), empty], axis=0))
    first: list[str] = []
    for row in map(int, rows[:SHOWN]):
        first += [f"row {row + 1}: {_EMPTY}"] if empty[row] else []
        for name in (name for name in names if unfit[name][row]):
            first.append(f"row {row + 1}, column {name!r}: {_quote(schema, frame, name, row)}")
    counts = {name: int(found.sum()) for name, found in unfit.items()}
    columns = [
        f"column {name!r}: {number:,} of {frame.rows:,} cells, such as in row {row + 1}: {_quote(schema, frame, name, row)}"
        for name, number in counts.items()
        if number and (row := int(unfit[name].argmax())) >= 0
    ]
    if lost := int(empty.sum()):
        columns.append(f"{lost:,} of {frame.rows:,} rows, such as row {int(empty.argmax()) + 1}: {_EMPTY}")
    return Places(tuple(first[:SHOWN]), lost + sum(counts.values()), len(rows), tuple(columns))


def _quote(schema: Schema, frame: Frame, name: str, row: int) -> str:
    cells = schema.cells(frame, name)
    text = repr(cells.distinct[cells.places[row]] if isinstance(cells, Words) else cells[row].item())
    return f"{_shorten(text)} is not {schema.kinds[name].requirement}"


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
