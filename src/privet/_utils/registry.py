"""Registry of the kinds of frozen values in a plan; their JSON is written and read by it.

Privet's own kinds are in it; `register` adds a user's.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib.metadata import entry_points
from typing import Any, TypeVar

from privet.errors import InvalidArgumentError, choice

# Name → kind. Complete once `privet.plan` is imported, which imports every kind of part.
PARTS: dict[str, type[Any]] = {}
_PACKAGE = __name__.partition(".")[0]
_PLAIN = (float, int, str, bool, type(None))
_NONE: Mapping[str, type[Any]] = {}
_INSTALLED = "privet.kinds"  # entry points of packages: name of a kind → its class, which is registered
_FIX = (
    "Register your own kind in every program that reads the plan: privet.register(Kind). "
    f"For commands, list it among the entry points {_INSTALLED!r} of an installed package."
)

Kind = TypeVar("Kind", bound=type)


class Part:
    """Base class of the parts of a plan: clipping rules, sampling schemes, schedules, momenta, sparsifications and units."""

    def check_combination(self, plan: Any) -> None:
        """Refuse a `privet.Plan` with other parts that cannot be combined with this one; called for each part of a new plan."""


def register(kind: Kind) -> Kind:
    """Register a kind of part for plans, plan files, budgets and `Training.resume`; usable as a decorator.

    Every program that reads such a plan must register the kind first. Privet's commands import it from an installed package that
    has an entry point of its name in the group `privet.kinds`.

    Args:
        kind: a frozen dataclass that is a clipping rule, sampling scheme, schedule, momentum, sparsification or privacy unit.

    Returns:
        The kind.

    Guarantee:
        None beyond that of the kind itself, which declares its sensitivity, weights and events.

    Raises:
        InvalidArgumentError: it is not such a dataclass, or another kind has its name.

    >>> from dataclasses import dataclass
    >>> import privet
    >>> @privet.register
    ... @dataclass(frozen=True)
    ... class Half(privet.clipping.NormRule):
    ...     def factor(self, norms):
    ...         return 0.5 * (self.bound / norms).clamp(max=1.0)
    >>> plan = privet.Plan(
    ...     examples=1000, sampling=privet.sampling.Poisson(batch_size=50), steps=10, clipping=Half(bound=0.3), delta=1e-5
    ... )
    >>> privet.Plan.from_json(plan.to_json()) == plan
    True
    """
    frozen = isinstance(kind, type) and is_dataclass(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    if not frozen or not issubclass(kind, Part):
        allowed = (
            "a frozen dataclass derived from clipping.Rule, sampling.Scheme, schedules.Schedule, "
            "momentum.Momentum, sparsification.Sparsification or units.Unit"
        )
        fix = "Decorate it with @dataclass(frozen=True)."
        raise InvalidArgumentError("kind", kind, allowed, fix)
    known = PARTS.get(kind.__name__)
    # Running a notebook cell again defines the same kind again.
    if known is not None and (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        fix = f"{known.__module__} has it; rename it."
        raise InvalidArgumentError("kind", kind.__name__, "a name that no other kind has", fix)
    return add(kind)


def add(kind: Kind) -> Kind:
    """Add one of Privet's own kinds: a part, or a kind that users cannot define, such as the noise."""
    PARTS[kind.__name__] = kind
    return kind


def kinds_of(base: type[Any]) -> dict[str, type[Any]]:
    """Return name → kind for all known kinds derived from a class, in order of registration."""
    return {name: kind for name, kind in PARTS.items() if issubclass(kind, base)}


def foreign_kinds(value: object) -> set[str]:
    """Return the names of kinds that are not Privet's own, in a value and all parts within it that are compared."""
    if type(value) in _PLAIN:
        return set()
    if isinstance(value, list | tuple):
        return set().union(*map(foreign_kinds, value))
    found = {type(value).__name__} if isinstance(value, Part) and not is_own_kind(type(value)) else set()
    if is_dataclass(value) and not isinstance(value, type):
        found = found.union(*(foreign_kinds(getattr(value, name)) for name in _compared_fields(type(value))))
    return found


@functools.cache
def _compared_fields(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.compare)


def is_own_kind(kind: type[Any]) -> bool:
    """Return whether a class is one of Privet's own."""
    return kind.__module__.partition(".")[0] == _PACKAGE


def is_own(value: object) -> bool:
    """Return whether a value and all parts within it are of Privet's own kinds."""
    return not foreign_kinds(value)


def check_registered(name: str, value: object) -> None:
    """Refuse a value with a dataclass that is not registered, so that its JSON could not be read back."""
    if isinstance(value, list | tuple):
        for item in value:
            check_registered(name, item)
    if not is_dataclass(value) or isinstance(value, type):
        return
    kind = type(value).__name__
    if PARTS.get(kind) is not type(value):
        fix = f"Call privet.register({kind})."
        raise InvalidArgumentError(f"{name}.kind", kind, "known, so that the run can be resumed", fix)
    for field in fields(value):
        check_registered(f"{name}.{field.name}", getattr(value, field.name))


def encode(value: object) -> Any:
    """Return the plain JSON value of a frozen value made of dataclasses, tuples, numbers and text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {"kind": type(value).__name__, **{field.name: encode(getattr(value, field.name)) for field in fields(value)}}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    return value


def decode(name: str, value: object, base: type[Any] = object) -> Any:
    """Return the value that `encode` encoded, whose kind is derived from `base`; `name` is for errors."""
    if isinstance(value, list):
        return tuple(decode(name, item) for item in value)
    if not isinstance(value, Mapping):
        return value
    named = str(value.get("kind"))
    if named not in PARTS:
        for entry in entry_points(group=_INSTALLED, name=named):
            entry.load()
    kind = PARTS.get(named)
    if kind is None or not issubclass(kind, base):
        kinds = kinds_of(base)
        kind = kinds[choice(f"{name}.kind", value.get("kind"), kinds, _FIX)]
    return construct(kind, name, {key: item for key, item in value.items() if key != "kind"})


def construct(kind: type, name: str, values: Mapping[str, object], bases: Mapping[str, type[Any]] = _NONE) -> Any:
    """Return a dataclass from field → plain JSON value; `bases` are required base classes of the values."""
    known = {field.name for field in fields(kind)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise InvalidArgumentError(name, unknown, f"made of the fields {', '.join(sorted(known))}")
    try:
        return kind(**{key: decode(f"{name}.{key}", value, bases.get(key, object)) for key, value in values.items()})
    except TypeError as error:
        raise InvalidArgumentError(name, sorted(values), "complete", cause=str(error)) from None
