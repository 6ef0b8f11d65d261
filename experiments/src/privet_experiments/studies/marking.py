"""Base of results that are computed from raw gradients, and are marked as not private."""

from __future__ import annotations

__all__ = ["WARNING", "NonPrivate"]

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from privet.evaluation.bins import to_plain

WARNING = "NOT PRIVATE: computed from raw gradients"


@dataclass(frozen=True, repr=False)
class NonPrivate:
    """A result without a guarantee; its text, its JSON values and its figures are marked."""

    private: ClassVar[bool] = False

    def summary(self) -> str:
        """Return the result in one line."""
        return ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self))

    def __repr__(self) -> str:
        return f"{WARNING}. {type(self).__name__}: {self.summary()}"

    def to_dict(self) -> dict[str, Any]:
        """Return values for standard JSON, including `"private": False` and the warning."""
        return {"private": False, "warning": WARNING, **{name: to_plain(value) for name, value in self._values().items()}}

    def _values(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}
