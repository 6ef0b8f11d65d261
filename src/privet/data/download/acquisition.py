"""A chain of places as data: try each in order, and remember why those before the first success failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from privet.errors import PrivetError

T = TypeVar("T")


class DataUnavailableError(PrivetError):
    """No place had the data; the message lists the places, why each failed and how to hand the data in."""


@dataclass(frozen=True)
class Place(Generic[T]):
    """Somewhere that data may be had.

    Args:
        description: a noun phrase that reads well after "from" and "tried".
        get: returns the data, or raises whatever says why not.
    """

    description: str
    get: Callable[[], T]


def first(what: str, places: Sequence[Place[T]], accept: Callable[[T], T], fix: str) -> tuple[T, str]:
    """Return what the first working place gives, and that place's description.

    Args:
        what: name of the data, for the error.
        places: where to look, in order; later ones are not touched after a success.
        accept: returns its argument if it is what it should be, else raises.
        fix: what the user can do if every place fails.
    Errors: DataUnavailableError if every place fails.
    """
    failures: list[str] = []
    for place in places:
        try:
            return accept(place.get()), place.description
        # Whatever is wrong with one place must not keep the next from being tried; each reason is reported below.
        except Exception as error:
            failures.append(f"  {len(failures) + 1}. {place.description}: {_reason(error)}")
    raise DataUnavailableError("\n".join((f"{what} could not be had. Tried, in this order:", *failures, fix)))


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
