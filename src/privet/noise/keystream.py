"""Random words that nobody can predict: an AES-CTR keystream keyed by the operating system."""

from __future__ import annotations

import os
import threading

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray


class Keystream:
    """An endless stream of 64-bit words from AES-256 in counter mode.

    The key comes from the operating system, is never seeded, stored or shown, and lives in one process: a forked child
    notices that it is another process and takes a key of its own. Threads may share an instance.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = -1
        self._cipher: CipherContext

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return the next `size` words, each uniform over 64 bits."""
        with self._lock:
            if self._process != os.getpid():
                self._cipher = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(os.urandom(16))).encryptor()
                self._process = os.getpid()
            return np.frombuffer(self._cipher.update(bytes(8 * size)), dtype=np.uint64)

    def __reduce__(self) -> tuple[type[Keystream], tuple[()]]:
        # A copy or a pickle gets a fresh key: two owners of one stream would draw the same noise.
        return (Keystream, ())
