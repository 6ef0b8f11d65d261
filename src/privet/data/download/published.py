"""Published data sets: what is known of one, and how to get it, check it and keep it."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from privet._utils.files import cache_directory
from privet.data.dataset import DataSet
from privet.data.download import cache
from privet.data.download.acquisition import Place, first
from privet.errors import InvalidArgumentError, PrivetWarning


class _NamedArrays(Protocol):
    def _asdict(self) -> dict[str, Any]: ...


A = TypeVar("A", bound=_NamedArrays)


@dataclass(frozen=True)
class Published(ABC, Generic[A]):
    """What is publicly known of a data set, and where it can be had. `A` is a named tuple of the arrays it is kept as.

    Args:
        name: as users ask for it, and the stem of its file in the cache.
        description: one line for a listing.
        licence: of the data.
        obtained: one line that sums up `places`.
        examples: sizes of the training and the test part.
        classes: how many labels there are; None for a regression.
        evidence: what its digests prove, as the end of a sentence.
        places: where to look after the user's folder and the cache.
    """

    name: str
    description: str
    licence: str
    obtained: str
    examples: tuple[int, int]
    classes: int | None
    evidence: str
    places: tuple[Place[A], ...]

    @property
    @abstractmethod
    def input_shape(self) -> tuple[int, ...]:
        """Of one input, without the batch dimension."""

    @property
    @abstractmethod
    def files(self) -> str:
        """What a user's folder may hold beside `name`.npz, for the error that asks for it."""

    @abstractmethod
    def verified(self, arrays: A) -> A:
        """Return `arrays` if they are bit for bit the published ones; raise ChecksumError otherwise."""

    @abstractmethod
    def from_folder(self, folder: Path) -> A:
        """Return what a user's folder holds, unchecked."""

    @abstractmethod
    def from_npz(self, archive: Path) -> A:
        """Return what a file of the cache holds, unchecked; raise FileNotFoundError if there is none."""

    @abstractmethod
    def dataset(self, arrays: A, provenance: str) -> DataSet:
        """Return verified arrays as tensors."""


def load(published: Published[A], folder: str | Path | None = None) -> DataSet:
    """Return the set as tensors, and keep it in the cache for the next time.

    Args:
        published: which set.
        folder: a folder to look in first, or None.
    Errors: DataUnavailableError if no place has it. A cache that cannot be written is only a PrivetWarning.
    """
    arrays, place = _obtain(published, folder)
    try:
        _keep(published, arrays, place)
    except OSError as error:
        warnings.warn(f"{published.name} could not be kept in the cache: {error}", PrivetWarning, stacklevel=3)
    return published.dataset(arrays, f"{published.name} came from {place}; {published.evidence}.")


def fetch(published: Published[A], folder: str | Path | None = None) -> Path:
    """Get the set into the cache and return its file there.

    Args:
        published: which set.
        folder: a folder to look in first, or None.
    Errors: DataUnavailableError if no place has it; InvalidArgumentError if the cache cannot be written.
    """
    arrays, place = _obtain(published, folder)
    try:
        return _keep(published, arrays, place)
    except OSError as error:
        fix = f"Set that environment variable to such a folder ({error})."
        raise InvalidArgumentError("PRIVET_CACHE", str(cache_directory()), "a folder to write into", fix) from error


def _obtain(published: Published[A], folder: str | Path | None) -> tuple[A, str]:
    # A named folder goes first, but failing it is no reason to stop: whatever the place, only the published bits pass.
    named = () if folder is None else (_folder_place(published, Path(folder).expanduser()),)
    fix = f"To hand it in, name a folder that holds {published.name}.npz or {published.files}."
    return first(published.name, (*named, _cache_place(published), *published.places), published.verified, fix)


def _folder_place(published: Published[A], folder: Path) -> Place[A]:
    return Place(f"the folder {folder}", partial(published.from_folder, folder))


def _cache_place(published: Published[A]) -> Place[A]:
    archive = cache.path(published.name)
    return Place(f"the cache at {archive}", partial(published.from_npz, archive))


def _keep(published: Published[A], arrays: A, place: str) -> Path:
    archive = cache.path(published.name)
    if place == _cache_place(published).description:
        return archive
    return cache.write(archive, arrays._asdict())
