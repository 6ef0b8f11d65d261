"""Exceptions and argument checks.

Every error about an argument names the argument, its value, the allowed range and the fix. Only public values are checked
(settings, shapes, counts): a private value never decides whether an exception is raised.
"""

from __future__ import annotations

__all__ = [
    "BudgetExhaustedError",
    "InvalidArgumentError",
    "LedgerError",
    "PrivetError",
    "PrivetWarning",
    "UnsupportedModelError",
]

import math
from collections.abc import Iterable

# What user code may raise because of one example: exit() and the panics of extensions, which are no `Exception`, included. An
# interrupt comes from whoever runs the program: call `raise_interrupt` first.
USER_ERRORS = BaseException


class PrivetError(Exception):
    """Base class of all exceptions that Privet raises deliberately."""


class InvalidArgumentError(PrivetError, ValueError):
    """An argument is not allowed; the message names the cause, the argument, its value, the allowed values and the fix.

    Args:
        name: name of the argument, as the caller spells it.
        value: its value.
        allowed: the allowed values, in words.
        fix: how to fix it.
        cause: what went wrong, where value and allowed values do not say it.
    """

    def __init__(self, name: str, value: object, allowed: str, fix: str = "", cause: str = "") -> None:
        self.name, self.value, self.allowed, self.fix, self.cause = name, value, allowed, fix, cause
        found = "missing" if value is None and allowed.startswith(("given", "declared")) else repr(value)
        rule = "" if (found, allowed) == ("missing", "given") else f"; it must be {allowed}"
        super().__init__((f"{cause}: " if cause else "") + f"{name} is {found}{rule}." + (f" {fix}" if fix else ""))

    def under(self, name: str) -> InvalidArgumentError:
        """Return the error with another name of the argument."""
        return InvalidArgumentError(name, self.value, self.allowed, self.fix, self.cause)

    def __reduce__(self) -> tuple[type[InvalidArgumentError], tuple[str, object, str, str, str]]:
        return (type(self), (self.name, self.value, self.allowed, self.fix, self.cause))


class UnsupportedModelError(PrivetError):
    """The model or loss cannot be trained with the guarantee; the message names the culprit."""


class LedgerError(PrivetError):
    """The record of spent privacy is damaged, locked, exhausted or belongs to something else."""


class BudgetExhaustedError(LedgerError):
    """The request would exceed the privacy budget."""


class PrivetWarning(UserWarning):
    """A valid setting or event that users should know about."""


def raise_interrupt(error: BaseException) -> None:
    """Raise a KeyboardInterrupt again: it comes from whoever runs the program, not from an example."""
    if isinstance(error, KeyboardInterrupt):
        raise error


def real(name: str, value: object, fix: str = "") -> float:
    """Return `value` as a float, refusing anything but finite real numbers (booleans and strings are refused)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgumentError(name, value, "a real number", fix)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidArgumentError(name, value, "finite", fix)
    return number


def positive(name: str, value: object, fix: str = "") -> float:
    """Return `value` as a float in (0, ∞)."""
    number = real(name, value, fix)
    if number <= 0:
        raise InvalidArgumentError(name, value, "greater than 0", fix)
    return number


def between(name: str, value: object, low: float, high: float, fix: str = "") -> float:
    """Return `value` as a float in the open interval (low, high)."""
    number = real(name, value, fix)
    if not low < number < high:
        raise InvalidArgumentError(name, value, f"between {low:g} and {high:g}, both excluded", fix)
    return number


def count(name: str, value: object, minimum: int = 1, fix: str = "") -> int:
    """Return `value` as an int that is at least `minimum` and below 2³¹."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgumentError(name, value, "a whole number", fix)
    if not minimum <= value < 2**31:
        raise InvalidArgumentError(name, value, f"at least {minimum} and less than 2**31", fix)
    return value


def choice(name: str, value: object, allowed: Iterable[str], fix: str = "") -> str:
    """Return `value` if it is one of the `allowed` words."""
    words = tuple(allowed)
    if not isinstance(value, str) or value not in words:
        raise InvalidArgumentError(name, value, "one of " + ", ".join(repr(word) for word in words), fix)
    return value


def check_public_number(value: object, operation: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{operation} takes a public number, not {type(value).__name__}: a tensor could carry private data")
    return float(value)
