"""Interface of the state of correlated noise: what later steps need to know of the noise of earlier ones."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence

from torch import Tensor

from privet._utils.unique import Unique

# One piece of a release's noise: index of the tensor, slice of it, numbers for it.
Piece = tuple[int, slice, Tensor]
# Draws standard normals for all coordinates of a release once: fresh ones at every call.
Draw = Callable[[], Iterator[Piece]]

_REACH = 8.6  # no source draws a longer standard normal
_WORD = 31  # bits of a cell's number beside its sign, in the state


def cells_log2(gain: float) -> int:
    """Return the logarithm of the number of grid cells per standard deviation with which no noise leaves 32 bits.

    `gain` is the largest noise of a coordinate, or number kept about it, over the longest standard normal.
    """
    return _WORD - 1 - math.ceil(math.log2(_REACH * gain))


class PastNoise(Unique):
    """The noise of a run's earlier steps, from which that of the next one is made. It is secret and is never saved.

    Args:
        log2: logarithm of the number of grid cells per standard deviation.
        rounding: largest effect of all rounding on the difference of neighbours, over that of rounding their sums once.

    Guarantee:
        Noise consists of whole cells of the release's grid, and what is kept about it is exact. So for given releases, the noise
        of a step is a rounded normal number around a mean that depends on neighbours as C says, and the releases are
        post-processing of C·S + Z (Denisov et al. 2022 allow steps that depend on earlier releases).

        A strategy without negative entries may start afresh at any step: that leaves out entries of C, which never raises the
        sensitivity. It does so after a gap in the steps, when new draws of examples begin, and in a resumed run.
    """

    no_copy = "Two owners would draw the same noise, and the difference of their releases would have none."

    def __init__(self, log2: int, rounding: float = 1.0) -> None:
        self.log2, self.rounding = log2, rounding
        self._setting: tuple[object, ...] = ()  # what must stay the same from step to step, or the noise starts afresh
        self._next = 0  # the step that the state is for; 0 if there is none

    def noise(self, step: int, first: int, draw: Draw, cells: Sequence[float], totals: Sequence[Tensor]) -> Iterator[Piece]:
        """Yield the noise of a step in whole grid cells, float64, in pieces.

        Args:
            step: number of the step, from 1.
            first: step at which the draws of examples began that this one belongs to.
            draw: draws standard normals.
            cells: standard deviation of each tensor's fresh noise, in grid cells.
            totals: flat tensors that the noise is for.
        """
        setting = (first, tuple(cells), tuple(map(len, totals)))
        known, self._next = self._next, 0  # an interruption leaves no state, rather than one of half a step
        if known != step or setting != self._setting or self._restarts(step):
            self._setting = setting
            self._start(totals)
        yield from self._step(draw, cells)
        self._next = step + 1

    def _restarts(self, step: int) -> bool:
        """Return whether the noise starts afresh at this step by plan."""
        return False

    @abstractmethod
    def _start(self, totals: Sequence[Tensor]) -> None:
        """Forget all noise, and make room for tensors like these."""

    @abstractmethod
    def _step(self, draw: Draw, cells: Sequence[float]) -> Iterator[Piece]:
        """Yield the noise of the next step since the start, and keep what later ones need."""
