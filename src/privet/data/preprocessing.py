"""Scaling of raw arrays to the inputs of a network, by public constants only.

Training and prediction use the same functions; `model.json` records which one, with its constants.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privet.errors import InvalidArgumentError, positive, real

Array = NDArray[np.generic]

_CHANNELS = (1, 3)


@dataclass(frozen=True)
class Preprocessing(ABC):
    """A function of one example at a time, determined by public constants; by default, of finite real numbers.

    Its kind and fields are its description in `model.json`.
    """

    kind: ClassVar[str]
    kinds: ClassVar[str] = "biuf"  # the kinds of numbers that it takes, as `numpy.dtype.kind` letters

    @property
    def allowed(self) -> str:
        """The allowed entries, in words."""
        return "a finite number in 32-bit floating point"

    def unfit(self, array: Array) -> NDArray[np.bool_]:
        """Return which entries of an array are not allowed, in the shape of the array."""
        return np.asarray(~np.isfinite(_to_float32(array)))

    @abstractmethod
    def __call__(self, array: Array) -> NDArray[np.float32]:
        """Return the inputs (N, *input_shape) for raw examples (N, …)."""

    def to_dict(self) -> dict[str, Any]:
        """Return the kind and the constants as plain JSON values."""
        constants = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"kind": self.kind} | {key: list(value) if isinstance(value, tuple) else value for key, value in constants.items()}


@dataclass(frozen=True)
class Pixels(Preprocessing):
    """Scale whole numbers from 0 to `white` to (pixel / white − mean) / std, with the channels of images first.

    Args:
        white: the value of a white pixel, > 0; black is 0.
        mean: public mean of pixel / white.
        std: public standard deviation of pixel / white, > 0.
    """

    kind: ClassVar[str] = "pixels"
    kinds: ClassVar[str] = "biu"  # integers and booleans
    white: float = 255.0
    mean: float = 0.0
    std: float = 1.0

    def __post_init__(self) -> None:
        positive("white", self.white)
        real("mean", self.mean)
        positive("std", self.std)

    @property
    def allowed(self) -> str:
        """The range of a pixel."""
        return f"a whole number from 0 to {self.white:g}"

    def unfit(self, array: Array) -> NDArray[np.bool_]:
        """Return which pixels are out of range."""
        numbers = array.astype(np.int64, copy=False)
        return np.asarray((numbers < 0) | (numbers > self.white))

    def __call__(self, array: Array) -> NDArray[np.float32]:
        """Return scaled images (N, C, H, W), or scaled rows (N, D)."""
        inputs = array.astype(np.float32)
        inputs /= self.white
        inputs -= self.mean
        inputs /= self.std
        return _channels_first(inputs)


@dataclass(frozen=True)
class Unchanged(Preprocessing):
    """Take real numbers as they are, in 32-bit floating point and with the channels of images first."""

    kind: ClassVar[str] = "unchanged"

    def __call__(self, array: Array) -> NDArray[np.float32]:
        """Return the numbers, with images as (N, C, H, W)."""
        return _channels_first(_to_float32(array))


@dataclass(frozen=True)
class Standardised(Preprocessing):
    """Scale columns of numbers to (x − centre) / spread.

    Args:
        centre: public constant per column.
        spread: public constant per column, > 0.
    """

    kind: ClassVar[str] = "standardised"
    centre: tuple[float, ...]
    spread: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "centre", tuple(real("centre", value) for value in self.centre))
        object.__setattr__(self, "spread", tuple(positive("spread", value) for value in self.spread))
        if len(self.centre) != len(self.spread):
            raise InvalidArgumentError("spread", f"{len(self.spread)} numbers", f"one number per column: {len(self.centre)}")

    def __call__(self, array: Array) -> NDArray[np.float32]:
        """Return the scaled columns (N, D)."""
        if array.shape[1:] != (len(self.centre),):  # which would be repeated, or fail within NumPy
            raise InvalidArgumentError("array", array.shape, f"of the shape (N, {len(self.centre)})")
        scaled: NDArray[np.float64] = (array.astype(np.float64) - np.array(self.centre)) / np.array(self.spread)
        return scaled.astype(np.float32)


_KINDS: dict[str, type[Preprocessing]] = {kind.kind: kind for kind in (Pixels, Unchanged, Standardised)}


def preprocessing_from_dict(values: Mapping[str, Any]) -> Preprocessing:
    """Return the preprocessing that `to_dict` described."""
    constants = {name: value for name, value in values.items() if name != "kind"}
    kind = _KINDS.get(str(values.get("kind")))
    if kind is None:
        raise InvalidArgumentError("preprocessing", values.get("kind"), f"one of {', '.join(_KINDS)}")
    try:
        return kind(**constants)
    except TypeError as error:  # a constant is missing, unknown or no sequence
        raise InvalidArgumentError("preprocessing", constants, f"the constants of {kind.__name__}", cause=f"{error}") from None


def _to_float32(array: Array) -> NDArray[np.float32]:
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(np.float32)


def _channels_first(inputs: NDArray[np.float32]) -> NDArray[np.float32]:
    if inputs.ndim == 3:
        return inputs[:, np.newaxis]
    if inputs.ndim == 4 and inputs.shape[3] in _CHANNELS and inputs.shape[1] not in _CHANNELS:
        return np.moveaxis(inputs, 3, 1)
    return inputs
