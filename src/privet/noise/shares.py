"""The processes that share the coordinates of a release: each owns some, adds noise to them, and hands them to the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from torch import Tensor

from privet.noise.sources import Source

# Contiguous coordinates of one tensor of a release: index of the tensor, the first coordinate, and their numbers.
Share = tuple[int, int, Tensor]


class Owners(Protocol):
    """Several processes, each with a part of a sum."""

    def sizes(self, sums: Mapping[str, Tensor]) -> list[int]:
        """Return the sizes of the whole tensors, of which `sums` may be parts."""

    def scatter(self, sums: Mapping[str, Tensor]) -> list[Share]:
        """Return the coordinates that this process owns, of the sums of flat tensors over all processes."""

    def join(self, sums: Mapping[str, Tensor], shares: Sequence[Share]) -> list[Tensor]:
        """Return flat tensors, shaped like the sums, from the shares of all processes."""

    def compute_once(
        self, compute: Callable[[Mapping[str, Tensor]], dict[str, Tensor]], sums: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return what a function that draws random numbers returns for sparse sums over all processes: one result for all."""


def draw_shares(source: Source, sizes: Sequence[int], shares: Sequence[Share]) -> Iterator[Tensor]:
    """Return fresh standard normals for the coordinates of these shares, in pieces.

    The test source draws all numbers of a release, so that a coordinate gets the same one in however many processes.
    """
    if source.private:
        return source.normals(sum(len(part) for _, _, part in shares))
    every = source.normal(sum(sizes)).split(list(sizes))
    return iter([every[which][first : first + len(part)] for which, first, part in shares])
