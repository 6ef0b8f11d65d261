"""Random masks from public numbers, reproducible on every machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privet.errors import InvalidArgumentError, count

Masks = Mapping[str, Tensor]
Shapes = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Selection:
    """The public parameters of a random mask, each in [0, 2³¹); with the shapes of the parameters they determine the mask.

    Guarantee:
        Each coordinate gets one 64-bit word of Philox4x64-10 with key `seed` and counter `block`·2¹⁹², in the order of names and
        then row by row; the coordinates with the smallest words are dropped, the first ones in case of ties. So every set of
        `zeros` coordinates is equally likely (up to 2⁻⁶⁴ per pair), and masks do not depend on library versions.

    Source:
        Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3".

    >>> Selection(seed=7, block=3, zeros=4).masks({"w": (2, 3)})["w"].sum().item()
    2
    """

    seed: int
    block: int
    zeros: int

    def __post_init__(self) -> None:
        for name in ("seed", "block", "zeros"):
            count(f"selection.{name}", getattr(self, name), minimum=0)

    def masks(self, shapes: Shapes) -> dict[str, Tensor]:
        """Return name → bool tensor on the CPU, True where a coordinate is kept; the order of the shapes matters."""
        size = total(shapes)
        if self.zeros > size:
            raise InvalidArgumentError("selection.zeros", self.zeros, f"at most the number of coordinates, {size}")
        words = np.random.Philox(key=self.seed, counter=self.block << 192).random_raw(size)
        return split(keep_largest(np.asarray(words, dtype=np.uint64).reshape(size), self.zeros), shapes)


def keep_largest(values: NDArray[Any], zeros: int) -> NDArray[np.bool_]:
    """Return False at the `zeros` smallest values (the first ones in case of ties), and True elsewhere.

    >>> keep_largest(np.array([3.0, 1.0, 2.0, 1.0]), 1)
    array([ True, False,  True,  True])
    """
    kept = np.ones(len(values), dtype=np.bool_)
    if zeros:
        threshold = np.partition(values, zeros - 1)[zeros - 1]
        np.greater_equal(values, threshold, out=kept)
        equal = np.flatnonzero(values == threshold)
        kept[equal[: zeros - int(np.count_nonzero(~kept))]] = False
    return kept


def split(kept: NDArray[np.bool_], shapes: Shapes) -> dict[str, Tensor]:
    """Split a mask over all coordinates into one mask per parameter."""
    sizes = [int(np.prod(shape, dtype=np.int64)) for shape in shapes.values()]
    parts = torch.split(torch.from_numpy(kept), sizes)
    return {name: part.view(tuple(shape)) for part, (name, shape) in zip(parts, shapes.items(), strict=True)}


def total(shapes: Shapes) -> int:
    """Return the number of coordinates of all parameters together."""
    return sum(int(np.prod(shape, dtype=np.int64)) for shape in shapes.values())
