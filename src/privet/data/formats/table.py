"""Labelled rows of a user's table, by its public schema."""

from __future__ import annotations

import shlex
from pathlib import Path

from privet.data.classes import require_targets
from privet.data.dataset import DataSet, refuse_copy, to_tensors
from privet.errors import InvalidArgumentError
from privet.tables import Schema, read_frame
from privet.tables.frames import Frame


def load_table(source: object, *, schema: Schema | str | Path, target: str | None = None, test: object = None) -> DataSet:
    """Return the rows of a table as a data set, encoded by a schema. Private rows are never used for testing.

    Guarantee:
        The number of rows is treated as public, with users the number of users; shapes, classes, bounds and scaling come from the
        schema. A cell that does not fit is replaced as the schema says, and raises no exception.
    """
    known = Schema.of(schema)
    if target is not None and target != known.target:
        allowed = f"the target of the schema, {known.target!r}"
        raise InvalidArgumentError("target", target, allowed, "Change the section [target] of the schema, or leave this out.")
    frame = read_frame(source, "source")
    inputs, targets, users = known.encode(frame), known.encode_target(frame), known.users(frame)
    tested, origin = None, ""
    if test is not None:
        rows = read_frame(test, "test")
        origin = f"{_describe(rows)}, provided as public test data"
        expected = known.encode_target(rows)
        tested = to_tensors(known.encode(rows), expected)
        refuse_copy(to_tensors(inputs, targets), tested, rows.source)
        require_targets(expected, "test", rows.source, known.task, known.cells(rows, known.target))
    if users is not None:
        owned = users != ""
        inputs, targets, users = inputs[owned], targets[owned], users[owned]
    return DataSet(
        name=Path(frame.source).name.split(".")[0] if isinstance(source, str | Path) else "table",
        train=to_tensors(inputs, targets),
        test=tested,
        classes=None if known.classes is None else len(known.classes),
        provenance=f"The rows came from {_describe(frame)}, with the target {known.target!r}, encoded by a public schema.",
        users=users,
        schema=known,
        class_names=known.classes or (),
        test_origin=origin,
    )


def describe_source(source: object) -> str:
    """Return a source of data in words, for messages; nothing of its rows."""
    return repr(str(source)) if isinstance(source, str | Path) else "a data frame"


def without_schema(source: object, target: str | None) -> InvalidArgumentError:
    """Return the error about a table without a schema, with the command that drafts one."""
    column = "COLUMN" if target is None else target
    if isinstance(source, str | Path):
        draft = f"privet schema draft {shlex.quote(str(source))} --target {shlex.quote(column)} > schema.toml"
    else:
        draft = f"print(privet.tables.draft(privet.tables.read_types(frame), {column!r}))"
    allowed = f"given for {describe_source(source)}: the rows are private, so nothing is inferred from them"
    return InvalidArgumentError("schema", None, allowed, f"Draft one with: {draft}")


def _describe(frame: Frame) -> str:
    return f"the file {frame.source}" if Path(frame.source).suffix else frame.source
