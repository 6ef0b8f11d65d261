"""Published sets of grey images in four arrays: what is known of one, and how to get it, check it and keep it."""

from __future__ import annotations

import gzip
import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privet.data import cache, idx
from privet.data.acquisition import Place, first
from privet.data.checksums import require_md5
from privet.data.dataset import DataSet, tensors
from privet.errors import InvalidArgumentError, PrivetWarning
from privet.files import cache_directory

# What the four arrays are called as IDX files, in the order of `Arrays`; everybody who mirrors these sets keeps them.
IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

# More than any of the files holds (47 MB), and little enough that a malicious archive cannot fill the memory.
MOST_BYTES = 2**26


class Arrays(NamedTuple):
    """Images (N, H, W) and labels (N,) of both parts, all of them unsigned bytes."""

    x_train: NDArray[np.uint8]
    y_train: NDArray[np.uint8]
    x_test: NDArray[np.uint8]
    y_test: NDArray[np.uint8]


@dataclass(frozen=True)
class ImageSet:
    """What is publicly known of a set of images, and where it can be had.

    Args:
        name: as users ask for it, and the stem of its file in the cache.
        description: one line for a listing.
        licence: of the data.
        obtained: one line that sums up `places`.
        examples: sizes of the training and the test part.
        side: height and width of an image in pixels.
        classes: how many labels there are.
        white: the pixel value that becomes 1.
        mean: what is subtracted from a pixel in [0, 1]; a published constant.
        std: what it is divided by after that; a published constant.
        md5: of the four IDX files, unpacked, in the order of `IDX_FILES`.
        evidence: what those digests prove, as the end of a sentence.
        places: where to look after the user's folder and the cache.
    """

    name: str
    description: str
    licence: str
    obtained: str
    examples: tuple[int, int]
    side: int
    classes: int
    white: int
    mean: float
    std: float
    md5: tuple[str, str, str, str]
    evidence: str
    places: tuple[Place[Arrays], ...]


def load(images: ImageSet, folder: str | Path | None = None) -> DataSet:
    """Return the set as tensors, and keep it in the cache for the next time.

    Args:
        images: which set.
        folder: a folder to look in first, or None.
    Errors: DataUnavailableError if no place has it. A cache that cannot be written is only a PrivetWarning.
    """
    arrays, place = _obtain(images, folder)
    try:
        _keep(images, arrays, place)
    except OSError as error:
        warnings.warn(f"{images.name} could not be kept in the cache: {error}", PrivetWarning, stacklevel=3)
    return DataSet(
        name=images.name,
        train=tensors(_normalised(images, arrays.x_train), arrays.y_train),
        test=tensors(_normalised(images, arrays.x_test), arrays.y_test),
        classes=images.classes,
        provenance=f"{images.name} came from {place}; {images.evidence}.",
    )


def fetch(images: ImageSet, folder: str | Path | None = None) -> Path:
    """Get the set into the cache and return its file there.

    Args:
        images: which set.
        folder: a folder to look in first, or None.
    Errors: DataUnavailableError if no place has it; InvalidArgumentError if the cache cannot be written.
    """
    arrays, place = _obtain(images, folder)
    try:
        return _keep(images, arrays, place)
    except OSError as error:
        fix = f"Set that environment variable to such a folder ({error})."
        raise InvalidArgumentError("PRIVET_CACHE", str(cache_directory()), "a folder to write into", fix) from error


def verified(images: ImageSet, arrays: Arrays) -> Arrays:
    """Return `arrays` if they are bit for bit the published ones; raise ChecksumError otherwise."""
    for file, array, md5 in zip(IDX_FILES, arrays, images.md5, strict=True):
        require_md5(file, idx.encode(array), md5)
    return arrays


def from_folder(folder: Path, name: str) -> Arrays:
    """Return what `folder` holds as `name`.npz or as the four IDX files, packed or not; unchecked."""
    if not folder.is_dir():
        raise FileNotFoundError("there is no such folder")
    archive = folder / f"{name}.npz"
    return from_npz(archive) if archive.is_file() else from_idx(partial(_read_either, folder))


def from_npz(archive: Path) -> Arrays:
    """Return the arrays of an .npz with the keys x_train, y_train, x_test and y_test; unchecked."""
    if not archive.is_file():
        raise FileNotFoundError("it is not there")
    with open(archive, "rb") as file, np.load(file, allow_pickle=False) as stored:
        return Arrays(*(stored[key].astype(np.uint8, copy=False) for key in Arrays._fields))


def from_idx(read: Callable[[str], bytes]) -> Arrays:
    """Return the arrays of four IDX files, unchecked; `read` maps an IDX file's name to its bytes, packed or not."""
    return Arrays(*(idx.decode(_unpacked(read(file))) for file in IDX_FILES))


def _obtain(images: ImageSet, folder: str | Path | None) -> tuple[Arrays, str]:
    # A named folder goes first, but failing it is no reason to stop: whatever the place, only the published bits pass.
    named = () if folder is None else (_folder_place(images, Path(folder).expanduser()),)
    fix = (
        f"To hand it in, name a folder that holds {images.name}.npz or the four IDX files ({', '.join(IDX_FILES)}; .gz or plain)."
    )
    return first(images.name, (*named, _cache_place(images), *images.places), partial(verified, images), fix)


def _folder_place(images: ImageSet, folder: Path) -> Place[Arrays]:
    return Place(f"the folder {folder}", partial(from_folder, folder, images.name))


def _cache_place(images: ImageSet) -> Place[Arrays]:
    archive = cache.path(images.name)
    return Place(f"the cache at {archive}", partial(from_npz, archive))


def _keep(images: ImageSet, arrays: Arrays, place: str) -> Path:
    archive = cache.path(images.name)
    if place == _cache_place(images).description:
        return archive
    return cache.write(archive, arrays._asdict())


def _normalised(images: ImageSet, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    inputs = pixels[:, np.newaxis].astype(np.float32)
    inputs /= images.white
    inputs -= images.mean
    inputs /= images.std
    return inputs


def _read_either(folder: Path, file: str) -> bytes:
    packed = folder / f"{file}.gz"
    return (packed if packed.is_file() else folder / file).read_bytes()


def _unpacked(content: bytes) -> bytes:
    if not content.startswith(b"\x1f\x8b"):
        return content
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        return file.read(MOST_BYTES)
