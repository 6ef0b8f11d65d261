"""The state of noise whose strategy is a sum of geometric sequences: one buffer for each."""

from __future__ import annotations

__all__ = ["PastBuffers"]

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from privet.noise.correlated.strategies import Buffers
from privet.noise.past import Draw, PastNoise, Piece, cells_log2

_ULP_LOG2 = -52  # of float64; numbers of up to 2³¹ cells are exact to 2⁻²¹ cells


class PastBuffers(PastNoise):
    """Noise C⁻¹Z of buffers: x = z − Σᵢ sᵢBᵢ, then Bᵢ ← dᵢBᵢ + x.

    Memory: one float64 number per coordinate and buffer.

    Args:
        buffers: the strategy.
        steps: number of steps of the plan.

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
