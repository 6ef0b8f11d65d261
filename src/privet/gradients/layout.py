"""Where a tensor holds its examples.

Batches come with examples first, but models move them: time-major layers, flattened positions. Sizes tell where the examples
are, unless another dimension happens to be as long as the batch. Then a pass over a single example shows which of the
dimensions grow with the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

Shape = tuple[int, ...]


class AmbiguousLayoutError(Exception):
    """Sizes alone do not tell where the examples are; a pass over a single example is needed."""


@dataclass(frozen=True)
class Layout:
    """How a tensor holds B examples with T positions each.

    Args:
        examples: B.
        dimension: of the examples: 0 or 1.
        flat: T if positions and examples share dimension 0, else None.
    """

    examples: int
    dimension: int
    flat: int | None = None

    def examples_first(self, x: Tensor) -> Tensor:
        """Return the same numbers as (B, …), with flat positions as (B, T, …)."""
        if self.flat is not None:
            sizes = (self.examples, self.flat) if self.dimension == 0 else (self.flat, self.examples)
            x = x.reshape(*sizes, *x.shape[1:])
        return x.movedim(self.dimension, 0)


class Witness:
    """The shapes that a pass over a single example had at the places where layouts are asked for."""

    def __init__(self) -> None:
        self._shapes: set[Shape] = set()

    def add(self, shape: Sequence[int]) -> None:
        """Note a shape of the pass over a single example."""
        self._shapes.add(tuple(shape))

    def dimensions(self, shape: Sequence[int], candidates: Sequence[int]) -> list[int | None]:
        """Return which of the dimensions hold the examples, as far as the single example tells; None among them for none."""
        single = [(*shape[:dimension], 1, *shape[dimension + 1 :]) for dimension in candidates]
        found: list[int | None] = [d for d, seen in zip(candidates, single, strict=True) if seen in self._shapes]
        return [*found, None] if tuple(shape) in self._shapes else found
