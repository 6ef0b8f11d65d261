"""Labelled arrays from the user's own .npz file."""

from __future__ import annotations

import lzma
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privet.data.classes import Classes, Declaration, declared, require_declared
from privet.data.dataset import DataSet, tensors
from privet.errors import InvalidArgumentError

_TRAIN, _TEST = ("x_train", "y_train"), ("x_test", "y_test")
_ALLOWED_KEYS = (set(_TRAIN), {*_TRAIN, *_TEST})
_CONTENT = (*_TRAIN, *_TEST)
_CHANNELS = (1, 3)
# What zipfile, its decompressors and numpy's parser of headers say of damage.
_UNREADABLE = (
    OSError, ValueError, EOFError, TypeError, KeyError, SyntaxError, MemoryError, OverflowError,
    RuntimeError, zipfile.BadZipFile, zlib.error, struct.error, lzma.LZMAError, tokenize.TokenError,
)  # fmt: skip


def load_npz(
    path: Path, *, classes: Declaration | None = None, test: str | Path | None = None, user_column: str | None = None
) -> DataSet:
    """Return the arrays x_train and y_train, and public test data if there is some, as a data set.

    Unsigned bytes are divided by 255; other numbers stay as they are. Inputs (N, D) stay vectors, (N, H, W) become
    (N, 1, H, W), and (N, H, W, C) with one or three channels become (N, C, H, W). The number of examples, and the shape and type
    of an input, are treated as public.

    Args:
        path: the file; it may hold no pickled objects. Arrays x_test and y_test in it are public test data.
        classes: the labels, which are whole numbers or texts, as for `privet.data.classes.declared`. An example with another
            label keeps its place and is ignored by the loss.
        test: another file with the arrays x_test and y_test, and nothing else: public test data.
        user_column: name of a further array, with whose each training example is: whole numbers or texts.
    Errors: InvalidArgumentError if no classes are declared, for arrays that are missing, unknown, of the wrong type or of shapes
        that do not match, and for test data with a label that is not declared.
    """
    known = declared(classes, str(path))
    arrays, users = _train_arrays(path, user_column)
    origin = f"x_test and y_test of {path}, provided as public test data" if "x_test" in arrays else ""
    if test is not None:
        if origin:
            raise InvalidArgumentError("test", str(test), "left out", f"{path} holds test data itself: x_test and y_test.")
        arrays |= _test_arrays(Path(test).expanduser())
        origin = f"the file {test}, provided as public test data"
    inputs = {key: _inputs(key, arrays[key]) for key in arrays if key.startswith("x")}
    labels = {key: _labels(key, arrays[key], arrays[key.replace("y", "x")], known) for key in arrays if key.startswith("y")}
    _check_alike(arrays)
    return DataSet(
        name=path.stem,
        train=tensors(inputs["x_train"], labels["y_train"]),
        test=tensors(inputs["x_test"], require_declared(labels["y_test"], "y_test", origin)) if origin else None,
        classes=len(known),
        provenance=f"{path.stem} came from the file {path}; shapes and types were checked.",
        users=users,
        pixel_range=(0.0, 1.0) if arrays["x_train"].dtype == np.uint8 else None,
        test_origin=origin,
        notes=(known.note(),),
        assumptions=("the shape and the type of the array of inputs are public",),
    )


def _train_arrays(path: Path, user_column: str | None) -> tuple[dict[str, NDArray[np.generic]], NDArray[np.generic] | None]:
    """Return the arrays of inputs and labels, and that of the users if it is wanted."""
    arrays, users = _read(path, "source"), None
    if user_column is not None:
        if user_column in _CONTENT or user_column not in arrays:
            further = sorted(arrays.keys() - set(_CONTENT))
            allowed = f"an array beside inputs and labels: {', '.join(further) or 'there is none'}"
            raise InvalidArgumentError("user_column", user_column, allowed, "Say which array holds the users.")
        users = arrays.pop(user_column)
    if set(arrays) not in _ALLOWED_KEYS:
        allowed = "the arrays x_train and y_train, with or without x_test and y_test"
        raise InvalidArgumentError(
            "source", sorted(arrays), allowed, "Rename the arrays, leave the others out, or say which holds the users."
        )
    return arrays, users


def _test_arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    arrays = _read(path, "test")
    if set(arrays) != set(_TEST):
        raise InvalidArgumentError("test", sorted(arrays), "the arrays x_test and y_test", "Rename them, and leave out others.")
    return arrays


def _read(path: Path, argument: str) -> dict[str, NDArray[np.generic]]:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            return dict(stored)
    except _UNREADABLE as error:
        fix = f"Write it with numpy.savez ({' '.join(str(error).split())})."
        raise InvalidArgumentError(argument, str(path), "an .npz file of plain arrays", fix) from error


def _check_alike(arrays: dict[str, NDArray[np.generic]]) -> None:
    # The type matters as well as the shape: bytes are divided by 255 and other numbers are not.
    kinds = {key: f"{array.dtype}, one input of shape {array.shape[1:]}" for key, array in arrays.items()}
    if kinds.get("x_test", kinds["x_train"]) != kinds["x_train"]:
        raise InvalidArgumentError("x_test", kinds["x_test"], f"like x_train: {kinds['x_train']}")


def _inputs(key: str, array: NDArray[np.generic]) -> NDArray[np.float32]:
    if array.dtype.kind not in "biuf":
        raise InvalidArgumentError(key, str(array.dtype), "an array of real numbers", "Encode it as numbers first.")
    if array.ndim not in (2, 3, 4) or 0 in array.shape:
        raise InvalidArgumentError(key, array.shape, "a shape (N, D), (N, H, W), (N, H, W, C) or (N, C, H, W), none 0")
    with np.errstate(over="ignore"):  # what overflows is refused below
        inputs = array.astype(np.float32)
    if array.dtype == np.uint8:
        inputs /= 255
    if not np.isfinite(inputs).all():
        raise InvalidArgumentError(key, "an array with NaN or infinite entries", "finite in 32-bit floating point")
    return _channels_first(inputs)


def _channels_first(inputs: NDArray[np.float32]) -> NDArray[np.float32]:
    if inputs.ndim == 3:
        return inputs[:, np.newaxis]
    if inputs.ndim == 4 and inputs.shape[3] in _CHANNELS and inputs.shape[1] not in _CHANNELS:
        return np.moveaxis(inputs, 3, 1)
    return inputs


def _labels(key: str, labels: NDArray[np.generic], inputs: NDArray[np.generic], classes: Classes) -> NDArray[np.int64]:
    if labels.dtype.kind not in "iuU":
        raise InvalidArgumentError(key, str(labels.dtype), "an array of whole numbers or texts")
    if labels.shape != inputs.shape[:1]:
        raise InvalidArgumentError(key, labels.shape, f"of shape {inputs.shape[:1]}: one label for each input")
    return classes.numbered(labels.tolist())
