"""`privet predict` and `privet export`: use of a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privet import data
from privet.artifact import MisfitError, Predictions, Predictor
from privet.artifact.encoding import MISFITS
from privet.artifact.export import FORMATS, choose_format
from privet.artifact.predictor import ENDINGS, check_ending, list_columns, load, write_predictions
from privet.cli.output import Json, answer
from privet.cli.running import check_destination
from privet.data.loading import published_sets
from privet.errors import InvalidArgumentError, choice

_FIX = "Correct the rows, or encode them as in training with --misfits as-schema; --verbose lists them."

Model = Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a finished run, or the folder of its model.")]


def predict(
    run: Model,
    rows: Annotated[
        str,
        typer.Option(
            "--data",
            help="Rows to predict: a table; an .npz or .npy file for a model of arrays; or the name of the data set that it was "
            "trained on, for its test split.",
        ),
    ],
    out: Annotated[Path, typer.Option(help=f"File for the predictions, which ends in {', '.join(ENDINGS)}.")],
    misfits: Annotated[
        str, typer.Option(help="Values that do not fit the schema: refuse them, or encode them as-schema, as in training.")
    ] = MISFITS[0],
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Name the first rows that do not fit, not only the columns.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of --out if it exists.")] = False,
    device: Annotated[str, typer.Option(help="Torch device: cpu, cuda, …")] = "cpu",
    json: Json = False,
) -> None:
    """Write the predictions of a trained model for the rows of a file.

    The file has a line for every row: its number, its identifiers, the class and the probability of each class; or the number,
    in the units of the target. A table needs the columns of the schema, in any order; the target is not read.

    Rows that do not fit are refused with their reasons, and nothing is written. Numbers and dates beyond their bounds are encoded
    as in training.

    Predictions keep the guarantee for the training data. The rows to predict have none.

    Example: privet predict runs/adult --data people.csv --out predictions.csv
    """
    choice("--misfits", misfits, MISFITS)
    check_destination(out, ENDINGS, force=force, source=Path(rows))
    check_ending(out)
    model = load(run, device=device)
    try:
        found = _answer_public_set(model, rows) if rows in published_sets() else model.answer(rows, misfits=misfits)
    except MisfitError as error:
        raise MisfitError(error.found, _FIX if model.schema else error.fix, verbose) from None
    columns = list_columns(found, model.description)
    write_predictions(out, columns)
    lines = [f"Predictions for {len(found.values):,} rows: {out}", f"Columns: {', '.join(columns)}"]
    if found.misfits.number:
        lines.append(f"Values that did not fit, and became what the schema says: {found.misfits.number:,}")
        lines += found.misfits.first if verbose else found.misfits.columns
    values = {"out": str(out), "rows": len(found.values), "columns": list(columns), "misfits": found.misfits.number}
    answer(json, values, "\n".join(lines))


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
    form = choose_format(out, to)
    load(run).export(out, form)
    answer(json, {"out": str(out), "format": form}, f"Network as {form}: {out}")


def _answer_public_set(model: Predictor, name: str) -> Predictions:
    dataset = data.load(name) if model.description.data_set == name else None
    if dataset is None or dataset.test is None:
        raise InvalidArgumentError("--data", name, "a file, or the data set that the model was trained on")
    return model.answer(dataset.test.tensors[0], encoded=True)
