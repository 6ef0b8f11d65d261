"""The state of Toeplitz noise: the last b − 1 steps of banded noise, and a buffer for each geometric sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from privet.noise.correlated.strategies import Bands, Buffers
from privet.noise.past import Draw, PastNoise, Piece, cells_log2

_ULP_LOG2 = -52  # of float64; numbers of up to 2³¹ cells are exact to 2⁻²¹ cells


class PastBands(PastNoise):
    """Noise C⁻¹Z of a banded C: xₜ = zₜ − Σ cⱼ·xₜ₋ⱼ over j = 1, …, b − 1, in units in which c₀ = 1.

    Memory: b − 1 numbers of 32 bits per coordinate.
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


class PastBuffers(PastNoise):
    """Noise C⁻¹Z of buffers: x = z − Σᵢ sᵢBᵢ, then Bᵢ ← dᵢBᵢ + x.

    Memory: one float64 number per coordinate and buffer.

    Guarantee:
        Buffers round, and neighbours whose releases are equal have different ones. An update of sᵢBᵢ < 2³¹ cells is off by at
        most 2⁻²¹ cells, of which dᵢ times as much is left one step later. So the means of a step differ by at most
        4·2⁻²¹·Σᵢ min(T, 1/(1 − dᵢ)) cells, also after later rounding, and T steps by √T times that, which is added to the
        sensitivity.
    """

    def __init__(self, buffers: Buffers, steps: int) -> None:
        lasting = sum(min(steps, 1 / (1 - decay)) for decay in buffers.decays)
        drift = 4.0 * 2.0 ** (31 + _ULP_LOG2) * lasting * np.sqrt(steps)
        super().__init__(cells_log2(_gain(buffers, steps)), rounding=1.0 + float(drift))
        self._buffers = buffers
        self._state: list[Tensor] = []

    def _start(self, totals: Sequence[Tensor]) -> None:
        number = len(self._buffers.decays)
        self._state = [torch.zeros(number, len(total), dtype=torch.float64, device=total.device) for total in totals]

    def _step(self, draw: Draw, cells: Sequence[float]) -> Iterator[Piece]:
        for which, part, normals in draw():
            state = self._state[which]
            noise = normals.to(state.device, copy=True).mul_(cells[which])
            for buffer, scale in zip(state, self._buffers.scales, strict=True):
                noise.sub_(buffer[part], alpha=scale)
            noise.round_()
            for buffer, decay in zip(state, self._buffers.decays, strict=True):
                buffer[part].mul_(decay).add_(noise)
            yield which, part, noise


def _gain(buffers: Buffers, steps: int) -> float:
    """Return the largest of the noise and of every sᵢBᵢ over the longest standard normal."""
    from scipy.signal import lfilter

    noise = buffers.solve(np.eye(1, steps)[0])
    held = [lfilter([scale], [1.0, -decay], noise) for decay, scale in zip(buffers.decays, buffers.scales, strict=True)]
    return float(max(np.abs(sequence).sum() for sequence in (noise, *held)))
