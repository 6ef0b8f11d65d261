"""IDX, the file format of MNIST and its successors, for unsigned bytes.

Source: the format description on the MNIST page: two zero bytes, the type (0x08), the number of dimensions, each
dimension as a big-endian 32-bit integer, then the values in C order (last index fastest).
"""

from __future__ import annotations

__all__ = ["decode", "encode"]

import math
import struct

import numpy as np
from numpy.typing import NDArray

_MAGIC = bytes((0, 0, 0x08))


def encode(array: NDArray[np.uint8]) -> bytes:
    """Return `array` as the content of an IDX file."""
    return _MAGIC + struct.pack(f">B{array.ndim}I", array.ndim, *array.shape) + array.tobytes()


def decode(content: bytes) -> NDArray[np.uint8]:
    """Return the array in the content of an IDX file; raise ValueError if it is not an IDX file of unsigned bytes."""
    if len(content) < 4 or not content.startswith(_MAGIC):
        raise ValueError("this is not an IDX file of unsigned bytes")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise ValueError("the header of the IDX file is truncated")
    shape = struct.unpack_from(f">{content[3]}I", content, offset=4)
    if math.prod(shape) != len(content) - start:
        raise ValueError(f"the IDX header gives the shape {shape}, but {len(content) - start} values follow")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)
