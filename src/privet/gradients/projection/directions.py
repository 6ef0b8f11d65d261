"""Reproducible random directions in parameter space, so that all parts of a batch are projected onto the same ones."""

from __future__ import annotations

__all__ = ["Directions"]

import os
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray
from torch import Tensor

from privet.noise import arithmetic

_PIECE = 1 << 16  # numbers drawn at a time
_ZEROS = bytes(8 * _PIECE)


class Directions:
    """Directions with independent standard normal entries, determined by a key.

    The key has 256 bits and is drawn for one step, so no example can be chosen to be orthogonal to the directions. They are
    regenerated on each use: storing them would take as much memory as that many models.

    Args:
        words: 4 random 64-bit words; from the operating system if None.
    """

    def __init__(self, words: NDArray[np.uint64] | None = None) -> None:
        self._key = os.urandom(32) if words is None else words[:4].tobytes()

    def draw(self, parameters: Mapping[str, Tensor], number: int) -> Iterator[dict[str, Tensor]]:
        """Yield the first `number` directions, name → tensor like the parameter."""
        cipher = Cipher(algorithms.AES(self._key), modes.CTR(bytes(16))).encryptor()

        def normals(size: int) -> Tensor:
            found = torch.empty(size, dtype=torch.float64)
            for start in range(0, size, _PIECE):
                piece = found[start : start + _PIECE]
                words = bytearray(cipher.update(_ZEROS[: 8 * (len(piece) + len(piece) % 2)]))
                block = torch.frombuffer(words, dtype=torch.float64)
                arithmetic().box_muller(block)
                piece.copy_(block[: len(piece)])
            return found

        for _ in range(number):
            yield {name: normals(value.numel()).view(value.shape).to(value) for name, value in parameters.items()}
