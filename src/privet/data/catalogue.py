"""The data sets that Privet knows by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privet.data.download import cache, published
from privet.data.download.published import Published
from privet.data.sets.california_housing import CALIFORNIA_HOUSING
from privet.data.sets.cifar10 import CIFAR10
from privet.data.sets.covertype import COVERTYPE
from privet.data.sets.digits import DIGITS
from privet.data.sets.fashion_mnist import FASHION_MNIST
from privet.data.sets.mnist import MNIST
from privet.data.sets.sst2 import SST2
from privet.data.sets.wine_quality import WINE_QUALITY_RED
from privet.errors import choice

SETS: dict[str, Published[Any]] = {
    one.name: one for one in (MNIST, FASHION_MNIST, DIGITS, CIFAR10, SST2, COVERTYPE, CALIFORNIA_HOUSING, WINE_QUALITY_RED)
}


@dataclass(frozen=True)
class Entry:
    """One line of the catalogue.

    Args:
        name: what `load` and `fetch` take.
        description: what it shows.
        train: number of training examples.
        test: number of test examples.
        input_shape: (channels, height, width) of images, (columns,) of tables, (bytes,) of texts.
        classes: number of labels; None for a regression.
        licence: of the data.
        obtained: where it comes from.
        cached: whether its file is in the cache; its checksum is verified when it is read.
    """

    name: str
    description: str
    train: int
    test: int
    input_shape: tuple[int, ...]
    classes: int | None
    licence: str
    obtained: str
    cached: bool


def catalogue() -> tuple[Entry, ...]:
    """Return what can be loaded by name; touches neither the network nor the data."""
    return tuple(_entry(one) for one in SETS.values())


def fetch(name: str, folder: str | Path | None = None) -> Path:
    """Get a data set of the catalogue into the cache and return its file there.

    Args:
        name: one of the catalogue.
        folder: a folder to look in first, with `name`.npz or the files that it was published as in it.
    Errors: InvalidArgumentError for an unknown name or a cache that cannot be written; DataUnavailableError if no
        place has it.
    """
    return published.fetch(SETS[choice("name", name, SETS)], folder)


def _entry(one: Published[Any]) -> Entry:
    train, test = one.examples
    return Entry(
        name=one.name,
        description=one.description,
        train=train,
        test=test,
        input_shape=one.input_shape,
        classes=one.classes,
        licence=one.licence,
        obtained=one.obtained,
        cached=cache.path(one.name).is_file(),
    )
