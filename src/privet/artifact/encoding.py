"""Encoding of rows to predict: from a table, a file of arrays or an array to the inputs of a network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from privet.artifact.description import ModelDescription
from privet.data.formats.npz import read_arrays
from privet.data.preprocessing import Preprocessing, Unchanged
from privet.errors import InvalidArgumentError, choice
from privet.tables import read_frame
from privet.tables.schema import SHOWN, MisfitError, Places, list_misfits

# Treatments of cells that do not fit the schema.
MISFITS = ("refuse", "as-schema")

_ARRAY_FILES = (".npz", ".npy")
# Names of the array to predict in an .npz file with several, best first.
_NAMES = ("x", "x_test")


def encode_rows(
    rows: object, description: ModelDescription, *, misfits: str = "refuse", encoded: bool = False
) -> tuple[NDArray[np.float32], Places, dict[str, list[object]]]:
    """Return the inputs (N, *input_shape) of the network for rows to predict, finite; places that did not fit; identifiers.

    Rows of a table may have further columns, in any order; what is beyond public bounds is encoded as in training. For arrays,
    an .npz file holds one array, or one named x or x_test; entries that do not fit have no rule, so they are refused. `encoded`
    rows are inputs of the network already.
    """
    choice("misfits", misfits, MISFITS)
    if encoded:
        return *_encode_array(rows, description, _Encoded()), {}
    if description.schema is None:
        if description.preprocessing is None:
            fix = "Encode the rows as for training, and say so with encoded=True."
            raise InvalidArgumentError("encoded", encoded, "True for a model without known preprocessing", fix)
        return *_encode_array(rows, description, description.preprocessing), {}
    frame, schema = read_frame(rows, "rows"), description.schema
    if misfits == "refuse" and (found := list_misfits(frame, schema, beyond=False)).number:
        raise MisfitError(found, 'Correct the rows, or encode them as in training with misfits="as-schema".')
    return schema.encode(frame), list_misfits(frame, schema, beyond=True), schema.identifiers(frame)


class _Encoded(Unchanged):
    """Inputs of the network already: their shape stays as it is."""

    def __call__(self, array: NDArray[np.generic]) -> NDArray[np.float32]:
        return array.astype(np.float32)


def _encode_array(
    rows: object, description: ModelDescription, preprocessing: Preprocessing
) -> tuple[NDArray[np.float32], Places]:
    array = _read_array(rows)
    if isinstance(description.architecture, str):  # what such a network takes is not known; it may be whole numbers
        return array.astype(np.float32) if array.dtype.kind == "f" else array, Places((), 0, 0)  # type: ignore[return-value]
    shape = description.architecture.input_shape
    if array.dtype.kind not in preprocessing.kinds:
        allowed = f"an array whose entries are each {preprocessing.allowed}"
        fix = "If it holds inputs of the network already, say so with encoded=True."
        raise InvalidArgumentError("rows", f"an array of {array.dtype}", allowed, fix)
    if array.ndim < 2 or not len(array):
        fix = "For a single example, add a first dimension of 1."
        raise InvalidArgumentError("rows", f"an array of shape {array.shape}", f"of a shape such as (N, {_words(shape)})", fix)
    if preprocessing(array[:1]).shape[1:] != shape:
        raise InvalidArgumentError("rows", f"an array of shape {array.shape}", f"of the shape (N, {_words(shape)})")
    found = _list_entries(array, preprocessing)
    if found.number:
        raise MisfitError(found, "Correct the rows: for arrays, no rule says what such an entry becomes.")
    return preprocessing(array), found


def _list_entries(array: NDArray[np.generic], preprocessing: Preprocessing) -> Places:
    unfit = preprocessing.unfit(array).reshape(len(array), -1)
    rows, first = np.flatnonzero(unfit.any(axis=1)), []
    for row in map(int, rows[:SHOWN]):
        place = tuple(map(int, np.unravel_index(int(unfit[row].argmax()), array.shape[1:])))
        entry = place[0] if len(place) == 1 else place
        first.append(f"row {row + 1}, entry {entry}: {array[(row, *place)]} is not {preprocessing.allowed}")
    return Places(tuple(first), int(unfit.sum()), len(rows))


def _read_array(rows: object) -> NDArray[np.generic]:
    if isinstance(rows, Tensor):
        rows = rows.detach().cpu()
        return np.asarray((rows.float() if rows.is_floating_point() else rows).numpy())  # NumPy has no bfloat16
    if isinstance(rows, np.ndarray):
        return rows
    if not isinstance(rows, str | Path) or not str(rows).lower().endswith(_ARRAY_FILES):
        given = str(rows) if isinstance(rows, str | Path) else type(rows).__name__
        raise InvalidArgumentError("rows", given, f"an array, or the path of a file that ends in {' or '.join(_ARRAY_FILES)}")
    arrays = read_arrays(Path(rows).expanduser(), "rows")
    name = next((name for name in (*_NAMES, *arrays) if name in arrays), None)
    if name is None or (name not in _NAMES and len(arrays) > 1):
        raise InvalidArgumentError("rows", sorted(arrays), "one array, or an array named x or x_test", "Rename it.")
    return arrays[name]


def _words(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape))
