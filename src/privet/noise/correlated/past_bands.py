"""The state of banded noise: the noise of the last b − 1 steps."""

from __future__ import annotations

__all__ = ["PastBands"]

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from privet.noise.correlated.strategies import Bands
from privet.noise.past import Draw, PastNoise, Piece, cells_log2


class PastBands(PastNoise):
    """Noise C⁻¹Z of a banded C: xₜ = zₜ − Σ cⱼ·xₜ₋ⱼ over j = 1, …, b − 1, in units in which c₀ = 1.

    Memory: b − 1 numbers of 32 bits per coordinate.

    Args:
        bands: the strategy.
        steps: number of steps of the plan.
    """

    def __init__(self, bands: Bands, steps: int) -> None:
        # Neighbours whose releases are equal differ in earlier noise, so that float64 rounds their means differently: by far less
        # than a cell. Twice the rounding of the sums is more than both.
        super().__init__(cells_log2(np.abs(bands.solve(np.eye(1, steps)[0])).sum()), rounding=2.0)
        column = bands.column(len(bands.coefficients))
        self._weights: list[float] = column[1 : min(len(column), steps)].tolist()
        self._rings: list[Tensor] = []
        self._taken = 0

    def _start(self, totals: Sequence[Tensor]) -> None:
        length, self._taken = len(self._weights), 0
        self._rings = [torch.empty(length, len(total), dtype=torch.int32, device=total.device) for total in totals]

    def _step(self, draw: Draw, cells: Sequence[float]) -> Iterator[Piece]:
        length = len(self._weights)
        ages = [(weight, (self._taken - age) % length) for age, weight in enumerate(self._weights[: self._taken], 1)]
        for which, part, normals in draw():
            ring = self._rings[which]
            noise = normals.to(ring.device, copy=True).mul_(cells[which])
            for weight, row in ages:
                noise.sub_(ring[row, part], alpha=weight)
            noise.round_()
            if length:
                ring[self._taken % length, part] = noise.to(torch.int32)
            yield which, part, noise
        self._taken += 1
