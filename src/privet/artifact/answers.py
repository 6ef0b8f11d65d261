"""Files of predictions, in the words or units of the target."""

from __future__ import annotations

__all__ = ["ENDINGS", "check_ending", "list_columns", "write_predictions"]

import csv
import importlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from privet._utils.files import write_atomically, write_text
from privet.artifact.description import ModelDescription
from privet.artifact.predictor import Predictions
from privet.errors import InvalidArgumentError, PrivetError

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_PARQUET = ".parquet"
# Endings of the files that can be written.
ENDINGS = (*_DELIMITERS, _PARQUET)


def check_ending(path: Path) -> str:
    """Return the ending of a file of predictions.

    Raises:
        InvalidArgumentError: it is not one of `ENDINGS`.
        PrivetError: the package that writes such files is not installed.
    """
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise InvalidArgumentError("path", str(path), f"a file that ends in {', '.join(ENDINGS)}")
    if ending == _PARQUET:
        _parquet()
    return ending


def list_columns(predictions: Predictions, description: ModelDescription) -> dict[str, Sequence[object]]:
    """Return the columns of a file of predictions by name.

    Returns:
        `row`, the number from 1; `predicted TARGET`, the name of the class or the number; and for classes `probability of
        CLASS`, each.
    """
    columns: dict[str, Sequence[object]] = {
        "row": range(1, len(predictions.values) + 1),
        f"predicted {description.target}": predictions.values.tolist(),
    }
    if predictions.probabilities is not None:
        for name, values in zip(description.classes or (), predictions.probabilities.T, strict=True):
            columns[f"probability of {name}"] = values.tolist()
    return columns


def write_predictions(path: Path, columns: dict[str, Sequence[object]]) -> None:
    """Write columns of equal length as CSV, TSV or parquet, by the ending of the file; errors as for `check_ending`.

    The file is written whole or not at all, and replaces one that exists.
    """
    ending = check_ending(path)
    if ending == _PARQUET:
        arrow, parquet = _parquet()
        write_atomically(path, lambda temporary: parquet.write_table(arrow.table(columns), temporary))
        return
    text = io.StringIO()
    table = csv.writer(text, delimiter=_DELIMITERS[ending], lineterminator="\n")
    table.writerow(columns)
    table.writerows(zip(*(map(_format, values) for values in columns.values()), strict=True))
    write_text(path, text.getvalue())


def _format(value: object) -> str:
    # Outputs are in single precision, which nine digits determine.
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _parquet() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise PrivetError("Parquet needs pyarrow, which is not installed; run: pip install 'privet[tables]'") from None
