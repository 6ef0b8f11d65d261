"""Acquisition of data from the first source that works, with the reasons why earlier ones failed."""

from __future__ import annotations

__all__ = ["DataUnavailableError", "Place", "T", "get_from_first"]

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from privet.errors import PrivetError

T = TypeVar("T")


class DataUnavailableError(PrivetError):
    """No source provided the data; the message lists the sources, the reasons, and how to provide the files."""


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
            failures.append(f"  {len(failures) + 1}. {place.description}: {_reason(error)}")
    raise DataUnavailableError("\n".join((f"{what} is not available. Tried, in this order:", *failures, fix)))


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
