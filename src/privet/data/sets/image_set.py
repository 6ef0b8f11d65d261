"""Published sets of greyscale images in four arrays."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privet.data.dataset import DataSet, to_tensors
from privet.data.download.packages import decompress, download, require_digest
from privet.data.download.published import Published
from privet.data.preprocessing import Pixels

# Names of the four IDX files, in the order of `Arrays`; all mirrors of these data sets use them.
IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

# Above the size of the largest file (47 MB), and small enough that a malicious archive cannot exhaust the memory.
MOST_BYTES = 2**26

# IDX, the format of MNIST and its successors: two zero bytes, the type, the number of dimensions, each dimension as a big-endian
# 32-bit integer, then the values in C order.
_MAGIC = bytes((0, 0, 0x08))  # unsigned bytes


class Arrays(NamedTuple):
    """Images (N, H, W), or (N, H, W, 3) in colour, and labels (N,) of both splits, all as unsigned bytes."""

    x_train: NDArray[np.uint8]
    y_train: NDArray[np.uint8]
    x_test: NDArray[np.uint8]
    y_test: NDArray[np.uint8]


@dataclass(frozen=True)
class ImageSet(Published[Arrays]):
    """A set of greyscale images, normalised to (pixel / white − mean) / std by published constants.

    `md5` are the sums of the four uncompressed IDX files, in the order of `IDX_FILES`; classes without names are numbers.
    """

    side: int
    white: int
    mean: float
    std: float
    md5: tuple[str, str, str, str]
    class_names: tuple[str, ...] = ()

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(1, side, side)."""
        return 1, self.side, self.side

    @property
    def files(self) -> str:
        """The four IDX files."""
        return f"the four IDX files ({', '.join(IDX_FILES)}; .gz or plain)"

    def verify(self, arrays: Arrays) -> Arrays:
        """Return the arrays if all four IDX files have the published MD5."""
        for file, array, md5 in zip(IDX_FILES, arrays, self.md5, strict=True):
            require_digest(file, encode_idx(array), md5, "md5")
        return arrays

    @property
    def arrays(self) -> type[Arrays]:
        """Images and labels of both splits."""
        return Arrays

    def from_files(self, folder: Path) -> Arrays:
        """Return the arrays of the four IDX files, compressed or not."""
        packed = {file: folder / f"{file}.gz" for file in IDX_FILES}
        return from_idx(lambda file: (packed[file] if packed[file].is_file() else folder / file).read_bytes())

    def dataset(self, arrays: Arrays, provenance: str) -> DataSet:
        """Return normalised images and their labels."""
        pixels = Pixels(self.white, self.mean, self.std)
        return DataSet(
            name=self.name,
            train=to_tensors(pixels(arrays.x_train), arrays.y_train),
            test=to_tensors(pixels(arrays.x_test), arrays.y_test),
            classes=self.classes,
            provenance=provenance,
            pixel_range=(-self.mean / self.std, (1 - self.mean) / self.std),
            preprocessing=pixels,
            class_names=self.class_names,
        )


def from_idx(read: Callable[[str], bytes]) -> Arrays:
    """Return the arrays of four IDX files, unverified; `read` maps a file name to its bytes, compressed or not."""
    return Arrays(*(decode_idx(decompress(read(file), MOST_BYTES)) for file in IDX_FILES))


def from_address(base: str) -> Arrays:
    """Return the arrays of the four files under an address, unverified."""
    return from_idx(lambda file: download(f"{base}{file}.gz", MOST_BYTES))


def encode_idx(array: NDArray[np.uint8]) -> bytes:
    """Return `array` as the content of an IDX file."""
    return _MAGIC + struct.pack(f">B{array.ndim}I", array.ndim, *array.shape) + array.tobytes()


def decode_idx(content: bytes) -> NDArray[np.uint8]:
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
