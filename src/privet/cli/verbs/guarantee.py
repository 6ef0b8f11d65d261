"""`privet guarantee`: print the full privacy statement of a finished run."""

from __future__ import annotations

__all__ = ["guarantee"]

from pathlib import Path
from typing import Annotated

import typer

from privet._utils.documents import read_text
from privet.cli.output import Json
from privet.errors import InvalidArgumentError


def guarantee(
    run: Annotated[Path, typer.Argument(help="Directory of a finished run.", metavar="RUN")], json: Json = False
) -> None:
    """Print the privacy statement of a finished run: the guarantee, its assumptions, and what it does not cover.

    Example: privet guarantee runs/mnist
    """
    path = run / ("guarantee.json" if json else "guarantee.md")
    if not path.is_file():
        raise InvalidArgumentError(
            "RUN", str(run), "the directory of a finished run",
            f"It has no {path.name}. Finish the run with privet train --resume {run}, or list what it has spent with "
            f"privet ledger show {run}.",
        )  # fmt: skip
    text = read_text(path).strip()
    print(" ".join(text.split("\n")) if json else text.removeprefix("# Guarantee").strip())
