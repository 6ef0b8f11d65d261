"""Tables of private rows: a public schema that defines the encoding of every column, and readers that infer nothing."""

from privet.tables.cells import UNDECLARED
from privet.tables.columns import FITS, MISSING, UNFIT, Boolean, Category, Column, Ignore, Number, Text, UserId
from privet.tables.drafts import draft
from privet.tables.frames import ENDINGS, Frame, read_frame, read_types
from privet.tables.misfits import Misfits, count_misfits
from privet.tables.schema import Schema
from privet.tables.targets import Classification, Regression, Target

__all__ = [
    "ENDINGS",
    "FITS",
    "MISSING",
    "UNDECLARED",
    "UNFIT",
    "Boolean",
    "Category",
    "Classification",
    "Column",
    "Frame",
    "Ignore",
    "Misfits",
    "Number",
    "Regression",
    "Schema",
    "Target",
    "Text",
    "UserId",
    "count_misfits",
    "draft",
    "read_frame",
    "read_types",
]
