"""Catalogue of the data sets that can be loaded by name."""

from __future__ import annotations

__all__ = ["Entry", "catalogue", "fetch", "published_sets"]

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from privet.data.download import published
from privet.data.download.published import Published, cache_file
from privet.data.sets.digits import DIGITS
from privet.data.sets.fashion_mnist import FASHION_MNIST
from privet.data.sets.mnist import MNIST
from privet.errors import choice


@functools.cache
def published_sets() -> Mapping[str, Published[Any]]:
    """Return the data sets by name: Privet's own, and those of installed packages (entry points `privet.data_sets`)."""
    others = (entry.load() for entry in entry_points(group="privet.data_sets"))
    return {one.name: one for one in (MNIST, FASHION_MNIST, DIGITS, *others)}


@dataclass(frozen=True)
class Entry:
    """A data set of the catalogue.

    Args:
        name: name for `load` and `fetch`.
        description: content in a few words.
        train: number of training examples.
        test: number of test examples.
        input_shape: (channels, height, width) of images, (columns,) of tables, (bytes,) of texts.
        classes: number of classes; None for regression.
        licence: licence of the data.
        obtained: source of the files.
        cached: whether its file is in the cache; its checksum is verified on reading.
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
    """Return the data sets that can be loaded by name, without reading data or using the network."""
    return tuple(_entry(one) for one in published_sets().values())


def fetch(name: str, folder: str | Path | None = None) -> Path:
    """Fetch a data set of the catalogue into the cache and return the path of its file.

    Args:
        name: a name of the catalogue.
        folder: folder to search first, with `name`.npz or the published files.
    Errors: InvalidArgumentError for an unknown name or a cache that cannot be written; DataUnavailableError if no source
        provides it.
    """
    sets = published_sets()
    return published.fetch(sets[choice("name", name, sets)], folder)


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
        cached=cache_file(one.name).is_file(),
    )
