"""`privet data`: list and fetch data sets."""

from __future__ import annotations

__all__ = ["app", "fetch", "list_"]

from pathlib import Path
from typing import Annotated

import typer

from privet import data
from privet.cli.output import Json, answer

app = typer.Typer(add_completion=False, rich_markup_mode=None, help="List and fetch data sets.")


@app.command("list")
def list_(json: Json = False) -> None:
    """List the data sets that privet train --data knows by name.

    It also accepts the path of any table with a schema (privet schema draft), and of any .npz file with x_train and y_train (and
    optionally x_test and y_test), whose classes are declared with --classes.
    """
    entries = data.catalogue()
    lines = [
        f"{entry.name:18} {entry.train:>7,} + {entry.test:>6,}  {'×'.join(map(str, entry.input_shape)):9} "
        f"{'cached' if entry.cached else 'to fetch':9} {entry.description}"
        for entry in entries
    ]
    answer(json, {"data": [entry.to_dict() for entry in entries]}, "\n".join(lines))


@app.command("fetch")
def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the data set, from privet data list.")],
    folder: Annotated[Path | None, typer.Option(help="Copy the files from this folder instead of fetching them.")] = None,
    json: Json = False,
) -> None:
    """Fetch a data set into the cache and verify its checksums.

    Example: privet data fetch mnist
    """
    path = data.fetch(name, folder)
    answer(json, {"name": name, "path": str(path)}, f"{name}: {path}")
