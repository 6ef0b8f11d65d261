"""Values that are computed from raw gradients, and say so wherever they go."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from privet.evaluation.plain import plain

WARNING = "NOT PRIVATE: computed from raw gradients"


@dataclass(frozen=True, repr=False)
class NonPrivate:
    """What no guarantee covers: its words, its plain values and its figures all say so."""

    private: ClassVar[bool] = False

    def summary(self) -> str:
        """Return what was found, in a line."""
        return ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self))

    def __repr__(self) -> str:
        return f"{WARNING}. {type(self).__name__}: {self.summary()}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that standard JSON can hold, with `"private": False` and the warning among them."""
        return {"private": False, "warning": WARNING, **{name: plain(value) for name, value in self._values().items()}}

    def _values(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}
