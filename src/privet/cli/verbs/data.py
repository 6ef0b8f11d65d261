"""`privet data`: what data sets there are, and getting them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from privet import data
from privet.cli.output import Json, answer

app = typer.Typer(add_completion=False, rich_markup_mode=None, help="List and fetch data sets.")


@app.command("list")
def list_(json: Json = False) -> None:
    """List the data sets that can be trained on by name.

    Any .npz with x_train, y_train [, x_test, y_test] and any CSV with a target column can be trained on by path; their classes
    are declared (privet train --classes).
    """
    entries = data.catalogue()
    lines = [
        f"{entry.name:18} {entry.train:>7,} + {entry.test:>6,}  {'×'.join(map(str, entry.input_shape)):9} "
        f"{'here' if entry.cached else 'to fetch':9} {entry.description}"
        for entry in entries
    ]
    answer(json, {"data": [asdict(entry) for entry in entries]}, "\n".join(lines))


@app.command("fetch")
def fetch(
    name: Annotated[str, typer.Argument(help="Name in the list.")],
    folder: Annotated[Path | None, typer.Option(help="Take it from this folder.")] = None,
    json: Json = False,
) -> None:
    """Get a data set into the cache, checked against its published hashes.

    Example: privet data fetch mnist
    """
    path = data.fetch(name, folder)
    answer(json, {"name": name, "path": str(path)}, f"{name}: {path}")
