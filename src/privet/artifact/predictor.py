"""Loaded models: they take raw rows and predict in the words or units of the target."""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privet._utils.files import write_atomically, write_text
from privet._utils.tensors import check_device
from privet.artifact.description import GuaranteeSummary, ModelDescription
from privet.artifact.encoding import encode_rows
from privet.artifact.export import export_module
from privet.artifact.folder import find_folder, load_module, read_description
from privet.errors import InvalidArgumentError, PrivetError
from privet.tables import Schema
from privet.tables.schema import Places

# Rows that go through the network at once.
_AT_ONCE = 1024
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_PARQUET = ".parquet"
# Endings of the files that can be written.
ENDINGS = (*_DELIMITERS, _PARQUET)


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions for some rows.

    Args:
        values: (N,) names of classes, or numbers in the target's units.
        probabilities: (N, K) probability of each class, which sum to 1 in every row; None for regression.
        misfits: places that did not fit the schema and were encoded by its rules.
        identifiers: column → cells (N,) of each column of identifiers or users that the rows have.
    """

    values: NDArray[np.generic]
    probabilities: NDArray[np.float64] | None
    misfits: Places
    identifiers: Mapping[str, Sequence[object]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Predictor:
    """A trained model with everything needed for prediction.

    Args:
        module: the network, in evaluation mode, on `device`.
        description: architecture, schema or preprocessing, target and guarantee.
        device: torch device of the network.

    Guarantee:
        Predictions are post-processing of the trained model: they keep its guarantee for the *training* data, however many are
        made. The rows to predict have no guarantee: whoever sees the predictions learns about them.
    """

    module: nn.Module
    description: ModelDescription
    device: str = "cpu"

    @property
    def schema(self) -> Schema | None:
        """The columns of the table that the model takes; None for a model of arrays."""
        return self.description.schema

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The classes in the order of the probabilities; None for regression."""
        return self.description.classes

    @property
    def guarantee(self) -> GuaranteeSummary:
        """The guarantee for the training data."""
        return self.description.guarantee

    def predict(self, rows: object, *, misfits: str = "refuse", encoded: bool = False) -> NDArray[np.generic]:
        """Return the class of each row by name, or the number in the target's units, (N,).

        Args:
            rows: a table, for a model with a schema: path, data frame or mapping from column names to sequences. Otherwise an
                array (N, …) of raw examples, such as bytes of pixels, or the path of an .npy or .npz file.
            misfits: "refuse" rows that do not fit the schema, or encode them "as-schema", as in training. Numbers and dates
                beyond public bounds are encoded as in training in any case.
            encoded: the rows are inputs of the network already, (N, *input_shape).

        Raises:
            MisfitError: some rows do not fit; it counts them by column, and its `found.first` names the first twenty places.
            InvalidArgumentError: the rows cannot be read, or are of another kind than the model takes.
        """
        return self.answer(rows, misfits=misfits, encoded=encoded).values

    def predict_proba(self, rows: object, *, misfits: str = "refuse", encoded: bool = False) -> NDArray[np.float64]:
        """Return the probability of each class, (N, K), in the order of `classes`; arguments and errors as for `predict`.

        Raises:
            PrivetError: the model predicts a number.
        """
        found = self.answer(rows, misfits=misfits, encoded=encoded).probabilities
        if found is None:
            raise PrivetError(f"the model predicts the number {self.description.target!r}, which has no classes: use predict")
        return found

    def answer(self, rows: object, *, misfits: str = "refuse", encoded: bool = False) -> Predictions:
        """Return predictions, probabilities and misfits at once; arguments and errors as for `predict`."""
        inputs, found, identifiers = encode_rows(rows, self.description, misfits=misfits, encoded=encoded)
        if self.description.task is None:
            raise PrivetError("the meaning of the model's outputs is unknown: use its module, or privet.save(..., classes=...)")
        outputs = compute_outputs(self.module, inputs, self.device)
        if self.classes is None:
            return Predictions(self.description.task.decode(outputs.numpy()), None, found, identifiers)
        probabilities = outputs.softmax(dim=1).numpy()
        return Predictions(self.description.task.decode(probabilities), probabilities, found, identifiers)

    def export(self, path: str | Path, to: str | None = None) -> Path:
        """Write the network in a format of other programs and return the path.

        The file maps encoded inputs (N, *input_shape) to outputs (N, K), for any N, and carries the text of `model.json`, which
        says how to encode rows and what the outputs mean.

        Args:
            path: a new file; one that exists is replaced.
            to: "onnx" or "torch-export"; by default by the ending, .onnx or .pt2.

        Raises:
            InvalidArgumentError: the format is unknown.
            PrivetError: the package that writes the format is not installed.
        """
        return export_module(self.module, self.description, Path(path), to)


def compute_outputs(module: nn.Module, inputs: NDArray[np.float32], device: str) -> Tensor:
    """Return the outputs of a network for encoded rows, (N, K) float64 on the CPU; a PrivetError if they are not finite."""
    with torch.inference_mode():
        outputs = torch.cat([module(part.to(device)).double().cpu() for part in torch.from_numpy(inputs).split(_AT_ONCE)])
    if not outputs.isfinite().all():
        raise PrivetError("the outputs of the model are not finite: its training diverged; train again with a lower rate")
    return outputs


def load(path: str | Path, module: nn.Module | None = None, *, device: str = "cpu") -> Predictor:
    """Return the model of a finished run, or of `privet.save`.

    Only JSON and safetensors are read: nothing in the folder is executed.

    Args:
        path: directory of the run, or its folder `model`, which may be copied to another place.
        module: for a network that is not one of `privet.models`: one that is built as for the training. It gets the weights.
        device: torch device for the network, such as "cpu" or "cuda".

    Raises:
        InvalidArgumentError: there is no model, its format is unknown, a file is damaged, weights and network do not fit, or
            torch cannot use the device; or the network has to be given as `module`.
        PrivetError: the network is a pretrained one, and the package that it comes with is not installed.
    """
    check_device("device", device)
    folder = find_folder(Path(path).expanduser())
    description = read_description(folder)
    return Predictor(load_module(folder, description, module).to(device), description, device)


def check_ending(path: Path) -> str:
    """Return the ending of a file of predictions, if it can be written."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise InvalidArgumentError("path", str(path), f"a file that ends in {', '.join(ENDINGS)}")
    if ending == _PARQUET:
        _parquet()
    return ending


def list_columns(predictions: Predictions, description: ModelDescription) -> dict[str, Sequence[object]]:
    """Return the columns of a file of predictions: `row` from 1, identifiers, `predicted TARGET`, and `probability of CLASS`."""
    columns: dict[str, Sequence[object]] = {
        "row": range(1, len(predictions.values) + 1),
        **predictions.identifiers,
        f"predicted {description.target}": predictions.values.tolist(),
    }
    if predictions.probabilities is not None:
        for name, values in zip(description.classes or (), predictions.probabilities.T, strict=True):
            columns[f"probability of {name}"] = values.tolist()
    return columns


def write_predictions(path: Path, columns: dict[str, Sequence[object]]) -> None:
    """Write columns of equal length as CSV, TSV or parquet, by the ending of the file; whole or not at all."""
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
