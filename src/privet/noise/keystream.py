"""Cryptographic random words: an AES-CTR keystream keyed by the operating system."""

from __future__ import annotations

__all__ = ["ROOM", "Keystream"]

import os
import threading

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from privet._utils.unique import Unique

ROOM = 2  # extra words that `fill` needs at the end of its buffer, because the cipher may ask for one more block
_ZEROS = memoryview(bytes(1 << 17))  # plaintext, encrypted in pieces that stay in cache


class Keystream(Unique):
    """An endless stream of 64-bit words from AES-256 in counter mode.

    The key comes from the operating system and is never seeded, stored or shown. A forked process takes a new one. Threads may
    share an instance.
    """

    no_copy = "Two owners of one stream would draw the same noise. Create a new Keystream, which takes a new key."

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = -1
        self._cipher: CipherContext

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return the next `size` words, each uniform over 64 bits."""
        words = np.empty(size + ROOM, dtype=np.uint64)
        self.fill(words)
        return words[:size]

    def fill(self, words: NDArray[np.generic]) -> None:
        """Overwrite an array of 64-bit numbers with the next words, except for its last `ROOM` elements."""
        content = words.data.cast("B")
        size, room = 8 * (len(words) - ROOM), 8 * ROOM
        with self._lock:
            if self._process != os.getpid():
                self._cipher = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(os.urandom(16))).encryptor()
                self._process = os.getpid()
            for start in range(0, size, len(_ZEROS)):
                stop = min(size, start + len(_ZEROS))
                self._cipher.update_into(_ZEROS[: stop - start], content[start : stop + room])
