"""`privet data` and `privet schema`: list and fetch data sets; draft and check the public schema of a table."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from privet import tables
from privet.cli.output import Json, answer, group
from privet.tables.frames import ENDINGS
from privet.tables.toml import OPEN

data_app = group(help="List and fetch data sets.")
schema_app = group(help="Draft and check the public schema of a table.")
_PRIVATE = (
    "All this comes from private rows: it is for the owner of the table, and must not be released. "
    "A schema that is changed because of it is no longer public."
)
File = Annotated[Path, typer.Argument(metavar="FILE", help=f"Table that ends in {', '.join(ENDINGS)}.")]


@data_app.command("list")
def list_(json: Json = False) -> None:
    """List the data sets that privet train --data knows by name.

    It also accepts the path of any table with a schema (privet schema draft), and of any .npz file with x_train and y_train (and
    optionally x_test and y_test), whose classes are declared with --classes.
    """
    from privet import data  # needs torch, and schemas do not

    entries = data.catalogue()
    lines = [
        f"{entry.name:18} {entry.train:>7,} + {entry.test:>6,}  {'×'.join(map(str, entry.input_shape)):9} "
        f"{'cached' if entry.cached else 'to fetch':9} {entry.description}"
        for entry in entries
    ]
    answer(json, {"data": [entry.to_dict() for entry in entries]}, "\n".join(lines))


@data_app.command("fetch")
def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the data set, from privet data list.")],
    folder: Annotated[Path | None, typer.Option(help="Copy the files from this folder instead of fetching them.")] = None,
    json: Json = False,
) -> None:
    """Fetch a data set into the cache and verify its checksums.

    Example: privet data fetch mnist
    """
    from privet import data

    path = data.fetch(name, folder)
    answer(json, {"name": name, "path": str(path)}, f"{name}: {path}")


@schema_app.command("draft")
def draft(
    file: File,
    target: Annotated[str, typer.Option(help="Column to predict.")],
    from_public: Annotated[
        Path | None, typer.Option(help="Public sample with the same columns, whose values complete the draft.")
    ] = None,
) -> None:
    """Print a draft of a schema in TOML.

    Of FILE, only the names of the columns and the types that it declares are used. Everything else is a "?".
    Replace each by public knowledge; a schema with a "?" is refused. With a public sample, the draft is complete.

    Example: privet schema draft adult.csv --target income > adult.toml

    Sample: privet schema draft adult.csv --target income --from-public census-sample.csv > adult.toml
    """
    sample = None if from_public is None else tables.read_frame(from_public, "from_public")
    text = tables.draft(tables.read_types(file, "FILE"), target, sample)
    print(text, end="")
    if left := sum(f'"{OPEN}"' in line.partition("  #")[0] for line in text.partition("[target]")[2].splitlines()):
        print(f'privet: {left} lines have a "{OPEN}" to be replaced by public knowledge', file=sys.stderr)


@schema_app.command("check")
def check(
    file: File,
    schema: Annotated[Path, typer.Option(help="Schema of the table, a TOML file.")],
    show: Annotated[bool, typer.Option("--show", help="Show the commonest cells that do not fit. They are private.")] = False,
    json: Json = False,
) -> None:
    """Count the cells of a table that do not fit its schema.

    The counts are private: they are for the owner of the table, and must not be released. The schema is not changed.

    Example: privet schema check adult.csv --schema adult.toml
    """
    known = tables.Schema.read(schema)
    found = tables.count_misfits(tables.read_frame(file, "FILE"), known)
    columns = {name: {"missing": missing, "unfit": unfit} for name, (missing, unfit) in found.columns.items()}
    values = {**asdict(found), "columns": columns, "examples": found.examples if show else {}, "features": known.width}
    answer(json, {**values, "note": _PRIVATE}, "\n".join([*found.describe(str(file), known, show), _PRIVATE]))
