"""`privet export`: the network of a trained model in a format of other programs."""

from __future__ import annotations

__all__ = ["export"]

from pathlib import Path
from typing import Annotated

import typer

from privet import artifact
from privet.artifact import FORMATS
from privet.cli.destination import check_destination
from privet.cli.output import Json, answer
from privet.cli.verbs.predict import Model
from privet.errors import choice


def export(
    run: Model,
    out: Annotated[Path, typer.Option(help=f"New file, which ends in {' or '.join(ending for ending, _ in FORMATS.values())}.")],
    to: Annotated[str | None, typer.Option(help=f"Format: {', '.join(FORMATS)}; default: by the ending of --out.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of --out if it exists.")] = False,
    json: Json = False,
) -> None:
    """Write the network of a trained model in a format of other programs.

    The file maps encoded inputs to outputs, for any number of rows. It carries the text of model.json, which says how rows are
    encoded and what the outputs mean. ONNX needs: pip install 'privet[export]'.

    Example: privet export runs/digits --out digits.onnx
    """
    if to is not None:
        choice("--to", to, FORMATS)
    check_destination(out, () if to else (ending for ending, _ in FORMATS.values()), force=force)
    form = artifact.choose_format(out, to)
    artifact.load(run).export(out, form)
    answer(json, {"out": str(out), "format": form}, f"Network as {form}: {out}")
