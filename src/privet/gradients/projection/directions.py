"""Reproducible random directions in parameter space, so that all parts of a batch are projected onto the same ones."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray
from torch import Tensor

from privet._utils.tensors import gradient_dtype
from privet.noise import arithmetic

_PIECE = 1 << 16  # numbers drawn at a time
_ZEROS = bytes(8 * _PIECE)
_AT_ONCE = 1 << 24  # numbers of a block of directions: 64 MiB in float32


class Directions:
    """Directions with independent standard normal entries, determined by a key of 4 random 64-bit words, the system's if None.

    The key is drawn for one step, so no example can be chosen to be orthogonal to the directions. Many directions of a large
    model are regenerated on each use: storing them would take as much memory as that many models.
    """

    def __init__(self, words: NDArray[np.uint64] | None = None) -> None:
        self._key = os.urandom(32) if words is None else words[:4].tobytes()
        self._kept: dict[str, Tensor] = {}

    def draw(self, parameters: Mapping[str, Tensor], number: int) -> Iterator[dict[str, Tensor]]:
        """Yield the first `number` directions in blocks of k, name → (k, *shape of the parameter); always the same ones."""
        if next(map(len, self._kept.values()), 0) == number:
            yield self._kept
            return
        at_once = max(1, _AT_ONCE // max(1, sum(value.numel() for value in parameters.values())))
        drawing = self._draw(parameters)
        for start in range(0, number, at_once):
            some = list(itertools.islice(drawing, min(at_once, number - start)))
            block = {name: torch.stack([each[name] for each in some]) for name in parameters}
            if at_once >= number:
                self._kept = block
            yield block

    def _draw(self, parameters: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
        cipher = Cipher(algorithms.AES(self._key), modes.CTR(bytes(16))).encryptor()

        def normals(size: int) -> Tensor:
            found = torch.empty(size, dtype=torch.float64, device="cpu")
            for start in range(0, size, _PIECE):
                piece = found[start : start + _PIECE]
                words = bytearray(cipher.update(_ZEROS[: 8 * (len(piece) + len(piece) % 2)]))
                block = torch.frombuffer(words, dtype=torch.float64)
                arithmetic().box_muller(block)
                piece.copy_(block[: len(piece)])
            return found

        while True:
            yield {
                name: normals(value.numel()).view(value.shape).to(value.device, gradient_dtype(value))
                for name, value in parameters.items()
            }
