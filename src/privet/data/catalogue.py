"""The data sets that Privet knows by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from privet.data import cache, image_set
from privet.data.digits import DIGITS
from privet.data.fashion_mnist import FASHION_MNIST
from privet.data.image_set import ImageSet
from privet.data.mnist import MNIST
from privet.errors import choice

IMAGE_SETS = {images.name: images for images in (MNIST, FASHION_MNIST, DIGITS)}


@dataclass(frozen=True)
class Entry:
    """One line of the catalogue.

    Args:
        name: what `load` and `fetch` take.
        description: what it shows.
        train: number of training examples.
        test: number of test examples.
        input_shape: (channels, height, width).
        classes: number of labels.
        licence: of the data.
        obtained: where it comes from.
        cached: whether its file is in the cache; its checksum is verified when it is read.
    """

    name: str
    description: str
    train: int
    test: int
    input_shape: tuple[int, int, int]
    classes: int
    licence: str
    obtained: str
    cached: bool


def catalogue() -> tuple[Entry, ...]:
    """Return what can be loaded by name; touches neither the network nor the data."""
    return tuple(_entry(images) for images in IMAGE_SETS.values())


def fetch(name: str, folder: str | Path | None = None) -> Path:
    """Get a data set of the catalogue into the cache and return its file there.

    Args:
        name: one of the catalogue.
        folder: a folder to look in first, with `name`.npz or the four IDX files in it.
    Errors: InvalidArgumentError for an unknown name or a cache that cannot be written; DataUnavailableError if no
        place has it.
    """
    return image_set.fetch(IMAGE_SETS[choice("name", name, IMAGE_SETS)], folder)


def _entry(images: ImageSet) -> Entry:
    train, test = images.examples
    return Entry(
        name=images.name,
        description=images.description,
        train=train,
        test=test,
        input_shape=(1, images.side, images.side),
        classes=images.classes,
        licence=images.licence,
        obtained=images.obtained,
        cached=cache.path(images.name).is_file(),
    )
