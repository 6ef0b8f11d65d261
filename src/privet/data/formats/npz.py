"""Labelled arrays from a user's .npz file."""

from __future__ import annotations

import lzma
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privet.data.classes import Declaration, describe_classes, parse_classes, require_targets
from privet.data.dataset import DataSet, refuse_copy, to_tensors
from privet.data.preprocessing import Pixels, Preprocessing, Unchanged
from privet.errors import InvalidArgumentError
from privet.tables import Classification
from privet.tables.cells import UNDECLARED, to_cells, to_number

_TRAIN, _TEST = ("x_train", "y_train"), ("x_test", "y_test")
_ALLOWED_KEYS = (set(_TRAIN), {*_TRAIN, *_TEST})
_CONTENT = (*_TRAIN, *_TEST)
_UNFIT = "An example with a number that is not finite keeps its place and contributes a gradient of zero"
# Exceptions that zipfile, its decompressors and numpy's header parser raise for damaged files.
_UNREADABLE = (
    OSError, ValueError, EOFError, TypeError, KeyError, SyntaxError, MemoryError, OverflowError,
    RuntimeError, zipfile.BadZipFile, zlib.error, struct.error, lzma.LZMAError, tokenize.TokenError,
)  # fmt: skip


def load_npz(
    path: Path, *, classes: Declaration | None = None, test: str | Path | None = None, user_column: str | None = None
) -> DataSet:
    """Return the arrays x_train and y_train, and public test data if present, as a data set.

    Unsigned bytes are divided by 255; other numbers are unchanged. Inputs (N, D) stay vectors, (N, H, W) become (N, 1, H, W),
    and (N, H, W, C) with one or three channels become (N, C, H, W). The number of examples and the shape and type of an input
    are treated as public. `user_column` names a further array with the user of each training example.

    No private row raises an exception: one with a number that is not finite in 32-bit floating point keeps its place, and becomes
    zeros without a label, so that its loss and gradient are zero, as for a label that is not declared.
    """
    known = parse_classes(classes, str(path))
    arrays, users = _train_arrays(path, user_column)
    origin = f"x_test and y_test of {path}, provided as public test data" if "x_test" in arrays else ""
    if test is not None:
        if origin:
            raise InvalidArgumentError("test", str(test), "left out", f"{path} already holds test data: x_test and y_test.")
        tested = read_arrays(Path(test).expanduser(), "test")
        if set(tested) != set(_TEST):
            fix = "Rename them, and remove other arrays."
            raise InvalidArgumentError("test", sorted(tested), "the arrays x_test and y_test", fix)
        arrays |= tested
        origin = f"the file {test}, provided as public test data"
    preprocessing = Pixels() if arrays["x_train"].dtype == np.uint8 else Unchanged()
    inputs = {key: _inputs(key, arrays[key], preprocessing) for key in arrays if key.startswith("x")}
    labels = {key: _labels(key, arrays[key], arrays[key.replace("y", "x")], known) for key in arrays if key.startswith("y")}
    # The type matters too: bytes are divided by 255, other numbers are not.
    kinds = {key: f"{array.dtype}, one input of shape {array.shape[1:]}" for key, array in arrays.items()}
    if kinds.get("x_test", kinds["x_train"]) != kinds["x_train"]:
        raise InvalidArgumentError("x_test", kinds["x_test"], f"like x_train: {kinds['x_train']}")
    # Private rows with a number that is not finite leave the training where they stand: no row may raise an exception.
    unfit = ~np.isfinite(inputs["x_train"]).reshape(len(inputs["x_train"]), -1).all(1)
    inputs["x_train"][unfit], labels["y_train"][unfit] = 0.0, UNDECLARED
    rows = {key: to_tensors(inputs[key], labels[key.replace("x", "y")]) for key in inputs}
    if origin:
        refuse_copy(rows["x_train"], rows["x_test"], origin)
        require_targets(labels["y_test"], "y_test", origin, known, arrays["y_test"])
    return DataSet(
        name=path.stem,
        train=rows["x_train"],
        test=rows.get("x_test"),
        classes=known.outputs,
        provenance=f"{path.stem} came from the file {path}; shapes and types were checked.",
        users=users,
        pixel_range=(0.0, 1.0) if arrays["x_train"].dtype == np.uint8 else None,
        preprocessing=preprocessing,
        class_names=known.classes,
        test_origin=origin,
        notes=(describe_classes(known), _UNFIT),
        public=("the shape and the type of the array of inputs",),
    )


def _train_arrays(path: Path, user_column: str | None) -> tuple[dict[str, NDArray[np.generic]], NDArray[np.generic] | None]:
    arrays, users = read_arrays(path, "source"), None
    if user_column is not None:
        if user_column in _CONTENT or user_column not in arrays:
            further = sorted(arrays.keys() - set(_CONTENT))
            allowed = f"an array other than inputs and labels: {', '.join(further) or 'there is none'}"
            raise InvalidArgumentError("user_column", user_column, allowed, "Name the array of users.")
        users = arrays.pop(user_column)
    if set(arrays) not in _ALLOWED_KEYS:
        allowed = "the arrays x_train and y_train, with or without x_test and y_test"
        fix = "Rename the arrays, remove the others, or name the array of users (user_column)."
        raise InvalidArgumentError("source", sorted(arrays), allowed, fix)
    return arrays, users


def read_arrays(path: Path, argument: str) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of an .npz file by name, or the one of an .npy file by the name of the file; no pickle is read."""
    try:
        with open(path, "rb") as file:
            stored = np.load(file, allow_pickle=False)
            return {path.stem: stored} if isinstance(stored, np.ndarray) else dict(stored)
    except FileNotFoundError:
        raise InvalidArgumentError(argument, str(path), "the path of a file", cause="there is no such file") from None
    except _UNREADABLE as error:
        # NumPy takes any other file for a pickle, and recommends to read it unsafely.
        reason = "" if "pickle" in str(error) else f" ({' '.join(str(error).split())})"
        fix = f"Write it with numpy.savez{reason}."
        raise InvalidArgumentError(argument, str(path), "an .npz file of plain arrays", fix) from error


def _inputs(key: str, array: NDArray[np.generic], preprocessing: Preprocessing) -> NDArray[np.float32]:
    if array.dtype.kind not in "biuf":
        raise InvalidArgumentError(key, str(array.dtype), "an array of real numbers", "Encode it as numbers first.")
    if array.ndim not in (2, 3, 4) or 0 in array.shape:
        raise InvalidArgumentError(key, array.shape, "a non-empty shape (N, D), (N, H, W), (N, H, W, C) or (N, C, H, W)")
    inputs = preprocessing(array)
    if key in _TEST and not np.isfinite(inputs).all():
        raise InvalidArgumentError(key, "an array with NaN or infinite entries", "finite in 32-bit floating point")
    return inputs


def _labels(key: str, labels: NDArray[np.generic], inputs: NDArray[np.generic], task: Classification) -> NDArray[np.int64]:
    if labels.dtype.kind not in "iuU":
        raise InvalidArgumentError(key, str(labels.dtype), "an array of integers or strings")
    if labels.shape != inputs.shape[:1]:
        raise InvalidArgumentError(key, labels.shape, f"of shape {inputs.shape[:1]}: one label per input")
    if labels.dtype.kind != "U" and all(to_number(name) is None for name in task.classes):  # the type is public
        fix = f"The labels are of type {labels.dtype}, so none could be one of these classes."
        raise InvalidArgumentError("classes", task.classes, "integers, which are the labels in the file", fix)
    return task.encode(to_cells(labels.tolist()))
