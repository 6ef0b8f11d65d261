"""Catalogue of the data sets that can be loaded by name."""

from __future__ import annotations

__all__ = ["catalogue", "fetch", "published_sets"]

import functools
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from privet.data.download import published
from privet.data.download.published import Published
from privet.data.sets.digits import DIGITS
from privet.data.sets.fashion_mnist import FASHION_MNIST
from privet.data.sets.mnist import MNIST
from privet.errors import choice


@functools.cache
def published_sets() -> Mapping[str, Published[Any]]:
    """Return the data sets by name: Privet's own, and those of installed packages (entry points `privet.data_sets`)."""
    others = (entry.load() for entry in entry_points(group="privet.data_sets"))
    return {one.name: one for one in (MNIST, FASHION_MNIST, DIGITS, *others)}


def catalogue() -> tuple[Published[Any], ...]:
    """Return the data sets that can be loaded by name, without reading data or using the network; `to_dict` describes each."""
    return tuple(published_sets().values())


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
