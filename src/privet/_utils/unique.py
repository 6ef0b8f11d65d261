"""Objects that cannot be copied: they spend privacy or hold secrets, and nothing would account for a copy."""

from __future__ import annotations

from typing import ClassVar, NoReturn


class Unique:
    """An object that refuses to be copied or pickled, also as part of another; `no_copy` says why, and what to do instead.

    >>> import copy
    >>> class Secret(Unique):
    ...     no_copy = "Two owners would draw the same noise. Make a new one."
    >>> copy.copy(Secret())
    Traceback (most recent call last):
    TypeError: a Secret cannot be copied or pickled. Two owners would draw the same noise. Make a new one.
    """

    __slots__ = ()
    no_copy: ClassVar[str]

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled. {self.no_copy}")
