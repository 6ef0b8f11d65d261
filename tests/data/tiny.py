"""A published image set of six examples, for tests of the machinery around it."""

import gzip
import hashlib
from dataclasses import replace

import numpy as np

from privet.data.download.packages import Place
from privet.data.sets.image_set import IDX_FILES, Arrays, encode_idx
from privet.data.sets.mnist import MNIST

ARRAYS = Arrays(
    x_train=np.arange(4 * 28 * 28, dtype=np.uint32).astype(np.uint8).reshape(4, 28, 28),
    y_train=np.array([0, 1, 2, 9], dtype=np.uint8),
    x_test=np.full((2, 28, 28), 255, dtype=np.uint8),
    y_test=np.array([3, 4], dtype=np.uint8),
)
MD5 = tuple(hashlib.md5(encode_idx(array)).hexdigest() for array in ARRAYS)


def image_set(*places):
    """The set with these functions as its places."""
    named = tuple(Place(f"place {number}", get) for number, get in enumerate(places, start=1))
    return replace(MNIST, name="tiny", examples=(4, 2), md5=MD5, places=named)


def unreachable():
    raise OSError("no route to host")


def write_idx(folder, packed):
    """Write the four IDX files, gzipped or plain."""
    folder.mkdir()
    for name, array in zip(IDX_FILES, ARRAYS, strict=True):
        content = encode_idx(array)
        (folder / f"{name}.gz").write_bytes(gzip.compress(content)) if packed else (folder / name).write_bytes(content)
    return folder
