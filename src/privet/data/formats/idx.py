"""The IDX file format of MNIST and its successors, for unsigned bytes.

Source: the format description on the MNIST page: two zero bytes, the type (0x08), the number of dimensions, each
dimension as a big-endian 32-bit integer, then the values with the last index running fastest.
"""

from __future__ import annotations

import math
import struct

import numpy as np
from numpy.typing import NDArray

_MAGIC = bytes((0, 0, 0x08))


def encode(array: NDArray[np.uint8]) -> bytes:
    """Return the IDX file that holds `array`."""
    return _MAGIC + struct.pack(f">B{array.ndim}I", array.ndim, *array.shape) + array.tobytes()


def decode(content: bytes) -> NDArray[np.uint8]:
    """Return the array that an IDX file holds; raise ValueError if it is not one of unsigned bytes."""
    if len(content) < 4 or not content.startswith(_MAGIC):
        raise ValueError("this is not an IDX file of unsigned bytes")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise ValueError("the header of the IDX file is cut short")
    shape = struct.unpack_from(f">{content[3]}I", content, offset=4)
    if math.prod(shape) != len(content) - start:
        raise ValueError(f"the IDX header promises the shape {shape}, but {len(content) - start} values follow")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)
