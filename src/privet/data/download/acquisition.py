"""Acquisition of data from the first source that works, verified by checksums."""

from __future__ import annotations

__all__ = ["ChecksumError", "DataUnavailableError", "Place", "T", "get_from_first", "require_digest"]

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from privet.errors import PrivetError

T = TypeVar("T")
_NAMES = {"md5": "MD5", "sha256": "SHA-256"}


class DataUnavailableError(PrivetError):
    """No source provided the data; the message lists the sources, the reasons, and how to provide the files."""


class ChecksumError(PrivetError):
    """The data differ from the published data: they are damaged, or not what their name says."""


@dataclass(frozen=True)
class Place(Generic[T]):
    """A possible source of data.

    Args:
        description: a noun phrase that fits after "from" and "tried".
        get: function that returns the data, or raises an exception that gives the reason.
    """

    description: str
    get: Callable[[], T]


def get_from_first(what: str, places: Sequence[Place[T]], accept: Callable[[T], T], fix: str) -> tuple[T, str]:
    """Return the data of the first source that works, and the description of this source.

    Args:
        what: name of the data, for the error.
        places: sources in order; those after the first success are not tried.
        accept: function that returns its argument if it is valid, and otherwise raises an exception.
        fix: advice for the user if every source fails.
    Errors: DataUnavailableError if every source fails.
    """
    failures: list[str] = []
    for place in places:
        try:
            return accept(place.get()), place.description
        # A failure of any kind must not prevent the next source from being tried; all reasons are reported below.
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            failures.append(f"  {len(failures) + 1}. {place.description}: {reason}")
    raise DataUnavailableError("\n".join((f"{what} is not available. Tried, in this order:", *failures, fix)))


def require_digest(what: str, content: bytes, expected: str, kind: Literal["md5", "sha256"] = "sha256") -> None:
    """Raise ChecksumError unless the digest of `content` is `expected`, in hexadecimal.

    The publishers of the classic data sets give MD5 sums. Collisions require control over *both* files; replacing a published
    file requires a second preimage, for which no practical attack on MD5 is known.
    """
    found = hashlib.new(kind, content, usedforsecurity=kind != "md5").hexdigest()
    if found != expected:
        raise ChecksumError(f"{what} has {_NAMES[kind]} {found} instead of {expected}")
