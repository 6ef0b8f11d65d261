"""Published data sets: description, acquisition, verification and caching."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from privet._utils.files import cache_directory, write_atomically
from privet.data.dataset import DataSet
from privet.data.download.packages import Place, get_from_first
from privet.errors import InvalidArgumentError, PrivetWarning

A = TypeVar("A", bound=NamedTuple)


@dataclass(frozen=True)
class Published(ABC, Generic[A]):
    """A published data set and its sources. `A` is a named tuple of its arrays in the cache.

    Args:
        name: name of the data set, and stem of its file in the cache.
        description: one line for listings.
        licence: licence of the data.
        obtained: one line that summarises `places`.
        examples: numbers of training and test examples.
        classes: number of classes; None for regression.
        evidence: what its checksums prove, as the end of a sentence.
        places: sources to try after the user's folder and the cache.
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
    def train(self) -> int:
        """Number of training examples."""
        return self.examples[0]

    @property
    def test(self) -> int:
        """Number of test examples."""
        return self.examples[1]

    @property
    def cached(self) -> bool:
        """Whether its file is in the cache; its checksum is verified on reading."""
        return cache_file(self.name).is_file()

    def to_dict(self) -> dict[str, Any]:
        """Return its public facts, as plain values."""
        names = ("name", "description", "train", "test", "input_shape", "classes", "licence", "obtained", "cached")
        return {name: getattr(self, name) for name in names}

    @property
    @abstractmethod
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input, without the batch dimension."""

    @property
    @abstractmethod
    def files(self) -> str:
        """Published files that a user's folder may hold instead of `name`.npz, for error messages."""

    @abstractmethod
    def verify(self, arrays: A) -> A:
        """Return `arrays` if they are identical to the published ones; raise ChecksumError otherwise."""

    @property
    @abstractmethod
    def arrays(self) -> type[A]:
        """Type of its arrays, a named tuple."""

    @property
    def array_type(self) -> str:
        """Type of the entries of its arrays."""
        return "u1"

    @abstractmethod
    def from_files(self, folder: Path) -> A:
        """Return the arrays in published files in a user's folder, unverified."""

    def from_folder(self, folder: Path) -> A:
        """Return the arrays of `name`.npz in a user's folder, else of published files; unverified."""
        if not folder.is_dir():
            raise FileNotFoundError("the folder does not exist")
        archive = folder / f"{self.name}.npz"
        return self.from_npz(archive) if archive.is_file() else self.from_files(folder)

    def from_npz(self, archive: Path) -> A:
        """Return the arrays in an .npz file, unverified."""
        if not archive.is_file():
            raise FileNotFoundError("the file does not exist")
        with open(archive, "rb") as file, np.load(file, allow_pickle=False) as stored:
            columns = {key: np.asarray(stored[key], self.array_type) for key in self.arrays._fields}
        arrays: Any = self.arrays
        found: A = arrays(**columns)
        return found

    @abstractmethod
    def dataset(self, arrays: A, provenance: str) -> DataSet:
        """Return verified arrays as a data set of tensors."""


def load(published: Published[A], folder: str | Path | None = None) -> DataSet:
    """Return a published data set as tensors, and store it in the cache; a cache that cannot be written only warns."""
    arrays, place = _obtain(published, folder)
    try:
        _keep(published, arrays, place)
    except OSError as error:
        warnings.warn(f"{published.name} could not be stored in the cache: {error}", PrivetWarning, stacklevel=3)
    return published.dataset(arrays, f"{published.name} came from {place}; {published.evidence}.")


def fetch(published: Published[A], folder: str | Path | None = None) -> Path:
    """Fetch a published data set into the cache and return the path of its file."""
    arrays, place = _obtain(published, folder)
    try:
        return _keep(published, arrays, place)
    except OSError as error:
        fix = f"Set this environment variable to a writable folder ({error})."
        raise InvalidArgumentError("PRIVET_CACHE", str(cache_directory()), "a writable folder", fix) from error


def _obtain(published: Published[A], folder: str | Path | None) -> tuple[A, str]:
    archive = cache_file(published.name)
    places = (Place(_describe_cache(archive), partial(published.from_npz, archive)), *published.places)
    # The user's folder goes first, but other sources are tried if it fails: only the published data pass verification.
    if folder is not None:
        own = Path(folder).expanduser()
        places = (Place(f"the folder {own}", partial(published.from_folder, own)), *places)
    fix = f"To provide it, name a folder (--folder) with {published.name}.npz or {published.files}."
    return get_from_first(published.name, places, published.verify, fix)


def _describe_cache(archive: Path) -> str:
    return f"the cache at {archive}"


def cache_file(name: str) -> Path:
    """Return the path of a data set's file in the cache, whether or not it exists."""
    return cache_directory() / "data" / f"{name}.npz"


def _keep(published: Published[A], arrays: A, place: str) -> Path:
    """Write the arrays into the cache, atomically, unless they came from there."""

    def save(temporary: Path) -> None:
        with temporary.open("xb") as file:  # given a path without the suffix .npz, numpy would append it
            np.savez(file, **arrays._asdict())

    archive = cache_file(published.name)
    return archive if place == _describe_cache(archive) else write_atomically(archive, save)
