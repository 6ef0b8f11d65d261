"""Kinds of frozen values that plans are made of: one table of them all, by which their JSON is written and read.

Privet's own kinds and everybody else's join it alike, by `register`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from privet.errors import InvalidArgumentError, choice

# Name → kind. It is complete once `privet.plan` is imported, which imports all that a plan can be made of.
PARTS: dict[str, type[Any]] = {}
_PACKAGE = __name__.partition(".")[0]
_NONE: Mapping[str, type[Any]] = {}
_FIX = "A kind that is not Privet's has to be registered in every program that reads the plan: privet.register(Kind)."

Kind = TypeVar("Kind", bound=type)


class Part:
    """A value that a plan is made of: what clipping rules, sampling schemes, schedules and the like are derived from."""

    def check_beside(self, plan: Any) -> None:
        """Refuse a plan whose other parts do not go with this one. Every new plan asks each of its parts.

        Args:
            plan: a `privet.Plan`, each field of which is of its type and in its range.

        Raises:
            InvalidArgumentError: naming the part that is to be changed, and how.
        """


def register(kind: Kind) -> Kind:
    """Make a kind of values known to plans, their files, budgets and `Training.resume`; usable as a decorator.

    It has to be registered in every program that reads such a plan, before it does so.

    Args:
        kind: a frozen dataclass that is a clipping rule, sampling scheme, schedule, momentum, sparsification or privacy unit.

    Returns:
        The kind.

    Guarantee:
        None beyond what the kind itself keeps: sensitivity, weights and events are its own statement.

    Raises:
        InvalidArgumentError: it is something else, or another kind has its name.

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
        raise InvalidArgumentError(
            "kind", kind, "a frozen dataclass derived from clipping.Rule, sampling.Scheme, schedules.Schedule, "
            "momentum.Momentum, sparsification.Sparsification or units.Unit", "Decorate it with @dataclass(frozen=True).",
        )  # fmt: skip
    known = PARTS.get(kind.__name__)
    # A notebook's cell that runs again defines the same kind again.
    if known is not None and (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise InvalidArgumentError(
            "kind", kind.__name__, "a name that no other kind has", f"{known.__module__} has it; rename it."
        )
    return add(kind)


def add(kind: Kind) -> Kind:
    """Put one of Privet's own kinds into the table; beside parts, those that nobody else may define, such as the noise."""
    PARTS[kind.__name__] = kind
    return kind


def kinds_of(base: type[Any]) -> dict[str, type[Any]]:
    """Return name → kind for all known kinds that are derived from a class, those that were registered first coming first."""
    return {name: kind for name, kind in PARTS.items() if issubclass(kind, base)}


def foreign_kinds(value: object) -> set[str]:
    """Return the names of the kinds in a value, itself and the parts that it holds, that are not Privet's own.

    >>> from privet.clipping import Flat, Layerwise
    >>> foreign_kinds(Layerwise(Flat(bound=0.5)))
    set()
    """
    if isinstance(value, list | tuple):
        return set().union(*map(foreign_kinds, value))
    found = {type(value).__name__} if isinstance(value, Part) and type(value).__module__.partition(".")[0] != _PACKAGE else set()
    if is_dataclass(value) and not isinstance(value, type):
        found = found.union(*(foreign_kinds(getattr(value, field.name)) for field in fields(value)))
    return found


def is_own(value: object) -> bool:
    """Return whether a value and every part that it holds are of Privet's own kinds."""
    return not foreign_kinds(value)


def check_registered(name: str, value: object) -> None:
    """Refuse a value that is, or holds, a dataclass which would be read back as nothing, or as another kind of its name.

    Args:
        name: what errors call it.
        value: made of dataclasses, tuples, numbers and text.

    Raises:
        InvalidArgumentError: naming the kind.
    """
    if isinstance(value, list | tuple):
        for item in value:
            check_registered(name, item)
    if not is_dataclass(value) or isinstance(value, type):
        return
    kind = type(value).__name__
    if PARTS.get(kind) is not type(value):
        raise InvalidArgumentError(
            f"{name}.kind", kind, "known, so that the run can be resumed", f"Call privet.register({kind})."
        )
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
    """Return the value that `encode` was given.

    Args:
        name: what errors call it.
        value: plain JSON value.
        base: what its kind has to be derived from, if it has one.

    Raises:
        InvalidArgumentError: a kind, or a field of one, is not known, or a value is out of its range.
    """
    if isinstance(value, list):
        return tuple(decode(name, item) for item in value)
    if not isinstance(value, Mapping):
        return value
    kinds = kinds_of(base)
    kind = kinds[choice(f"{name}.kind", value.get("kind"), kinds, _FIX)]
    return construct(kind, name, {key: item for key, item in value.items() if key != "kind"})


def construct(kind: type, name: str, values: Mapping[str, object], bases: Mapping[str, type[Any]] = _NONE) -> Any:
    """Return a dataclass from the plain JSON values of its fields.

    Args:
        kind: the dataclass.
        name: what errors call the value.
        values: field → plain JSON value.
        bases: field → what its value's kind has to be derived from, if it has one.

    Raises:
        InvalidArgumentError: as for `decode`.
    """
    known = {field.name for field in fields(kind)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise InvalidArgumentError(name, unknown, f"made of the fields {', '.join(sorted(known))}")
    try:
        return kind(**{key: decode(f"{name}.{key}", value, bases.get(key, object)) for key, value in values.items()})
    except TypeError as error:
        raise InvalidArgumentError(name, sorted(values), "complete", str(error)) from None
