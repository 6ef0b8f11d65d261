"""Faults in tables: a cell that changes how others of its column are encoded."""

from functools import partial

from mutant import Mutant, among

FRAMES = partial(among, "test_frames")
SCHEMA = partial(among, "test_schema")
ALONE = FRAMES("test_one_cell_does_not_change_how_others_of_its_column_are_encoded")

MUTANTS = [
    Mutant("integers that a gap made floats are other values", "cells._text",
           "isinstance(value, float) and value.is_integer()", "False", ALONE),
    Mutant("texts of numbers are compared letter by letter", "columns._folded",
           "plain(cell).casefold()", "cell.casefold()", ALONE),
    Mutant("users are compared letter by letter", "Schema.users",
           "plain(cell or \"\")", "(cell or \"\")", SCHEMA("test_spellings_of_a_number_are_one_user")),
    Mutant("missing codes are found in texts only", "Schema.cells", "return mark_missing(frame.columns[name],",
           "return mark_missing(frame.columns[name], set() if" " not isinstance(frame.columns[name], Words) else", ALONE),
    Mutant("one cell that cannot be converted makes its neighbours missing", "frames._to_objects",
           "len(series) <= 1", "len(series) <= 2", FRAMES("test_a_cell_that_has_no_object_is_missing_and_the_others_stay")),
    Mutant("columns that are not used are converted", "frames._from_native", "Frame(_Converted(columns)",
           "Frame(dict(_Converted(columns))", FRAMES("test_columns_that_the_schema_does_not_use_are_not_converted")),
    Mutant("a missing code is missing even if it is a value", "Schema.cells",
           "- meant", "", SCHEMA("test_a_missing_code_is_one_in_every_spelling_unless_one_of_them_is_a_value")),
]  # fmt: skip
