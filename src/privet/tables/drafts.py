"""Drafts of a schema: from the names and declared types of a private table, or from the values of a public sample.

A draft from a private table leaves "?" for what only its owner can say; `Schema.from_toml` refuses it until all are filled in.
A draft from a public sample is complete.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import date

import numpy as np
from numpy.typing import NDArray

from privet.errors import InvalidArgumentError
from privet.tables.bounded import SCALES, Date, Number, read_day
from privet.tables.cells import MISSING_CELLS, parse_numbers, to_number, to_words
from privet.tables.columns import Boolean, Category, Column, Identifier, Ignore, Text, UserId
from privet.tables.frames import Frame
from privet.tables.targets import MOST_CLASSES, Classification, Regression, Target
from privet.tables.toml import OPEN, write_column, write_key, write_target, write_value

# Line of the file, and the comment after it.
_Line = tuple[str, str]

_HEAD = """\
# Schema of a table: what every column is, and what a model is to predict. It is public: the privacy statement quotes it.
"""
_BY_NAME = """\
# Drafted from the names of the columns and their declared types; no cell was looked at. Replace every "?" by public knowledge,
# such as a data dictionary, a questionnaire or a law, and not by what the private rows say. A column is one of:
#   { kind = "number", lower = 0, upper = 120 }     also: scale = "log", outside = "missing", missing = "indicator"
#   { kind = "date", lower = 1900-01-01, upper = 2030-12-31 }     also: format = "%d.%m.%Y", if it is not as here
#   { kind = "category", values = ["a", "b"] }      also: unknown = "indicator", missing = "indicator"
#   { kind = "boolean", true = "yes", false = "no" }
#   { kind = "text", size = 1024 }
#   "user"      whose privacy it is, if a person can have several rows (train with --user-cap)
#   "id"        not used, but written beside predictions
#   "ignore"    not used
"""
_BY_SAMPLE = """\
# Drafted from the values of a public sample; check that they are what you mean. Bounds are rounded outwards.
"""
_TASK = 'task = "classification" with classes = ["no", "yes"], or task = "regression" with lower = 0 and upper = 100'
_COLUMN = "number, date, category, boolean, text, user, id or ignore"

# Most distinct values of a category, of a whole number that is a category, and of classes that are whole numbers.
_MOST_VALUES = 50
_MOST_CODES = 6
_MOST_NUMERIC_CLASSES = 20
# Fewest rows that show that a column is an identifier, and rows per value that show that a whole number is a category.
_FEW_ROWS = 20
_ROWS_PER_CODE = 10
_WORDS_OF_A_TEXT = 4
# A number is very skewed from this skewness on, if the logarithm at least halves it.
_SKEWED = 3.0
_MARGIN = 0.1
_TEXT_FEATURES = 1024
_IDENTIFIER = re.compile(r"(?i:(^|[^a-z])(id|ids|uuid|guid|ssn|index|unnamed)($|[^a-z]))|[a-z](Id|ID|Uuid|UUID)$")
_PEOPLE = "user|person|patient|customer|client|member|subject|participant"
_PERSON = re.compile(rf"({_PEOPLE})([ _-]?(id|uuid|name|number|no|nr))?", re.IGNORECASE)
_BY_TYPE: dict[tuple[str, ...], _Line] = {
    ("Boolean",): (write_column(Boolean()), ""),
    ("Int", "UInt", "Float", "Decimal"): (f'{{ kind = "number", lower = "{OPEN}", upper = "{OPEN}" }}', ""),
    ("Date",): (f'{{ kind = "date", lower = "{OPEN}", upper = "{OPEN}" }}', ""),
    ("Categorical", "Enum"): (f'{{ kind = "category", values = ["{OPEN}"] }}', ""),
}
_WITHOUT_FEATURES = ("Time", "Duration", "List", "Array", "Struct", "Binary")
# Formats of dates that a public sample may have: ISO 8601, and those of most countries.
_DATES = ("", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y/%m/%d", "%d %b %Y", "%b %d, %Y")
_YES = ("true", "yes", "y", "t", "1", "male", "positive")


def draft(types: Mapping[str, str | None], target: str, sample: Frame | None = None) -> str:
    """Return the TOML of a schema for a table with some columns, complete once no "?" is left in it.

    Args:
        types: name → type that the table declares for the column, or None; names and types are public.
        target: name of the column to predict.
        sample: a public table with these columns, from whose values the schema is completed; None for no values at all.

    Guarantee:
        Without a sample, the draft depends on names and declared types only.

    Raises:
        InvalidArgumentError: there is no such target, or no other column.

    >>> print(draft({"age": "Int64", "sick": None}, "sick").split("[target]")[1])
    <BLANKLINE>
    column = "sick"
    task = "?"  # task = "classification" with classes = ["no", "yes"], or task = "regression" with lower = 0 and upper = 100
    <BLANKLINE>
    [columns]
    age = { kind = "number", lower = "?", upper = "?" }
    <BLANKLINE>
    """
    names = [name for name in types if name != target]
    if target not in types:
        raise InvalidArgumentError("target", target, f"one of the columns {', '.join(types)}")
    if not names:
        raise InvalidArgumentError("data", "a single column", "a table with a column besides the target")
    known = {} if sample is None else {name: _present(sample, name) for name in types if name in sample.columns}
    goal = _target_of(known[target]) if known.get(target) else _open_target(types[target])
    lines = [_known_column(*_guess(name, known[name])) if name in known else _open_column(types[name]) for name in names]
    users = [place for place, (line, _) in enumerate(lines) if line == write_column(UserId())]
    for place in users[1:]:
        lines[place] = write_column(Ignore()), "another identifier of people"
    return "\n".join(
        [
            _HEAD + (_BY_NAME if sample is None else _BY_SAMPLE),
            f"missing_cells = {write_value(MISSING_CELLS)}  # what stands for a missing cell",
            "",
            "[target]",
            f"column = {write_value(target)}",
            *map(_commented, goal),
            "",
            "[columns]",
            *(_commented((f"{write_key(name)} = {line}", comment)) for name, (line, comment) in zip(names, lines, strict=True)),
            "",
        ]
    )


def _known_column(column: Column, comment: str) -> _Line:
    return write_column(column), comment


def _commented(line: _Line) -> str:
    return f"{line[0]}  # {line[1]}" if line[1] else line[0]


def _open_target(declared: str | None) -> list[_Line]:
    if declared == "Boolean":
        return _closed(Classification(("False", "True")))
    if declared is not None and declared.startswith("Float"):
        bounds = "the lowest and the highest value that is plausible"
        return [('task = "regression"', ""), (f'lower = "{OPEN}"', bounds), (f'upper = "{OPEN}"', "")]
    return [(f'task = "{OPEN}"', _TASK)]


def _closed(task: Target) -> list[_Line]:
    return [(line, "") for line in write_target(task)]


def _open_column(declared: str | None) -> _Line:
    if declared is None:
        return f'"{OPEN}"', _COLUMN
    for prefixes, line in _BY_TYPE.items():
        if declared.startswith(prefixes):
            return line
    if declared.startswith(_WITHOUT_FEATURES):
        return write_column(Ignore()), f"{declared.partition('(')[0]} has no features; add a column of numbers instead"
    return f'"{OPEN}"', f"{declared}: {_COLUMN}"


def _present(sample: Frame, name: str) -> list[str]:
    words = to_words(sample.columns[name])
    cells = (words.distinct[place] for place in words.places)
    return [cell for cell in cells if cell is not None and cell not in MISSING_CELLS]


def _target_of(cells: list[str]) -> list[_Line]:
    numbers, distinct = _numbers(cells), set(cells)
    if numbers is not None and (len(set(numbers)) > _MOST_NUMERIC_CLASSES or not _whole(numbers)):
        return _closed(Regression(*_generous(numbers)))
    if not 2 <= len(distinct) <= MOST_CLASSES:
        return [(f'task = "{OPEN}"', f"the sample has {len(distinct):,} different values; {_TASK}")]
    return _closed(Classification(_ordered(distinct)))


def _guess(name: str, cells: list[str]) -> tuple[Column, str]:
    """Return the kind that a column with known public values looks like, and a comment."""
    if not cells:
        return Ignore(), "the sample has no values of it"
    numbers, distinct = _numbers(cells), _ordered(set(cells))
    unique, words = len(set(cells)) == len(cells), sum(len(cell.split()) for cell in cells) / len(cells)
    if _PERSON.fullmatch(name) and not unique:
        return UserId(), "whose privacy it is: train with --user-cap"
    if _IDENTIFIER.search(name) or _PERSON.fullmatch(name):
        return Identifier(), 'or "user", if a person has several rows'
    if numbers is None and (formats := [form for form in _DATES if all(read_day(cell, form) for cell in cells)]):
        return _date(cells, formats[0]), f"or format = {write_value(formats[1])}" if formats[1:] else ""
    counting = numbers is not None and _whole(numbers) and np.ptp(numbers) < 2 * len(numbers)
    if unique and len(cells) >= _FEW_ROWS and (counting or (numbers is None and words < _WORDS_OF_A_TEXT)):
        return Identifier(), "another value in every row"
    if len(distinct) == 2 and (boolean := _boolean(distinct)):
        return boolean, ""
    if numbers is None:
        few = 2 * len(distinct) <= len(cells) and len(distinct) <= min(max(_MOST_VALUES, len(cells) // 100), MOST_CLASSES)
    else:
        few = _whole(numbers) and len(distinct) <= _MOST_CODES and _ROWS_PER_CODE * len(set(cells)) <= len(cells)
    if few:
        return Category(distinct), ""
    if numbers is not None:
        skewed = abs(_skewness(numbers)) > max(_SKEWED, 2 * abs(_skewness(SCALES["log"](numbers))))
        return Number(*_generous(numbers), scale="log" if skewed else "linear"), "very skewed" if skewed else ""
    if words >= _WORDS_OF_A_TEXT:
        return Text(_TEXT_FEATURES), ""
    return Ignore(), f"{len(distinct):,} distinct values; a category or a text, if it is to be used"


def _date(cells: list[str], form: str) -> Date:
    """Return a column of dates from the first to the last day of years, outside of the sample's by a tenth of their range."""
    days = [day.toordinal() for cell in set(cells) if (day := read_day(cell, form))]
    margin = int(_MARGIN * (max(days) - min(days)))
    first, last = max(min(days) - margin, 1), min(max(days) + margin, date.max.toordinal())
    return Date(f"{max(date.fromordinal(first).year, 1000)}-01-01", f"{date.fromordinal(last).year:04}-12-31", form)


def _boolean(distinct: tuple[str, ...]) -> Boolean | None:
    usual = Boolean()
    if {cell.casefold() for cell in distinct} <= {*usual.true, *usual.false}:
        return usual
    no, yes = sorted(distinct, key=lambda cell: (cell.casefold() in _YES, distinct.index(cell)))
    return Boolean((yes,), (no,)) if yes.casefold() != no.casefold() else None


def _numbers(cells: list[str]) -> NDArray[np.float64] | None:
    numbers = parse_numbers(cells)
    return numbers if np.isfinite(numbers).all() else None


def _whole(numbers: NDArray[np.float64]) -> bool:
    return bool((numbers == np.round(numbers)).all())


def _ordered(distinct: set[str]) -> tuple[str, ...]:
    """Return values by their number, if all have one, else by the alphabet; of two spellings of a number, the first."""
    by_number = {to_number(cell): cell for cell in sorted(distinct, reverse=True)}
    numbers = [number for number in by_number if number is not None]
    return tuple(sorted(distinct)) if len(numbers) < len(by_number) else tuple(map(by_number.__getitem__, sorted(numbers)))


def _skewness(numbers: NDArray[np.float64]) -> float:
    centred = numbers - numbers.mean()
    deviation = float(np.sqrt((centred**2).mean()))
    return float(((centred / deviation) ** 3).mean()) if deviation > 0 else 0.0


def _generous(numbers: NDArray[np.float64]) -> tuple[float, float]:
    """Return bounds outside of the lowest and the highest number, by a tenth of the range, with two digits; 0 stays a bound."""
    low, high = float(numbers.min()), float(numbers.max())
    margin = _MARGIN * (high - low) or max(1.0, abs(low))
    unit = 10.0 ** (math.floor(math.log10(high - low + 2 * margin)) - 1)
    lower = 0.0 if low >= 0 > low - margin else math.floor((low - margin) / unit) * unit
    upper = 0.0 if high <= 0 < high + margin else math.ceil((high + margin) / unit) * unit
    return float(f"{lower:.12g}"), float(f"{upper:.12g}")
