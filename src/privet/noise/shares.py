"""Who owns the coordinates of a release: one process all of them, or each of several processes a share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from torch import Tensor

from privet.noise.sources import Source

# Contiguous coordinates of one tensor of a release: index of the tensor, the first coordinate, and their numbers.
Share = tuple[int, int, Tensor]


class Shares:
    """One process, which owns all coordinates of a release."""

    def scatter(self, sums: Sequence[Tensor]) -> list[Share]:
        """Return the coordinates that this process owns, of the sums of flat tensors over all processes."""
        return [(which, 0, total) for which, total in enumerate(sums)]

    def join(self, sums: Sequence[Tensor], shares: Sequence[Share]) -> list[Tensor]:
        """Return whole flat tensors, shaped like the sums, from the shares of all processes."""
        return [own for _, _, own in shares]

    def compute_once(
        self, compute: Callable[[Mapping[str, Tensor]], dict[str, Tensor]], sums: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return what a function that draws random numbers returns for sparse sums over all processes: one result for all."""
        return compute(sums)


WHOLE = Shares()


def draw_shares(source: Source, sizes: Sequence[int], shares: Sequence[Share]) -> Iterator[Tensor]:
    """Yield fresh standard normals for the coordinates of these shares, in pieces.

    The test source draws all numbers of a release, so that a coordinate gets the same one in however many processes.
    """
    own = sum(len(part) for _, _, part in shares)
    if own == sum(sizes) or source.private:
        yield from source.normals(own)
        return
    every = source.normal(sum(sizes)).split(list(sizes))
    for which, first, part in shares:
        yield every[which][first : first + len(part)]
