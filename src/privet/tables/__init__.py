"""Tables of private rows: a public schema that defines the encoding of every column, and readers that infer nothing."""

from privet.tables.bounded import Date, Number
from privet.tables.columns import Boolean, Category, Identifier, Ignore, Text, UserId
from privet.tables.drafts import draft
from privet.tables.frames import read_frame, read_types
from privet.tables.schema import Schema, count_misfits
from privet.tables.targets import Classification, Regression

__all__ = [
    "Boolean",
    "Category",
    "Classification",
    "Date",
    "Identifier",
    "Ignore",
    "Number",
    "Regression",
    "Schema",
    "Text",
    "UserId",
    "count_misfits",
    "draft",
    "read_frame",
    "read_types",
]
