"""The kinds of values that a plan can be made of, by the names that its JSON has for them; others join by `register`."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from privet.clipping import KINDS, Rule
from privet.errors import InvalidArgumentError, choice
from privet.momentum import MOMENTA
from privet.noise import Gaussian
from privet.plan.length import Epochs
from privet.sampling import SCHEMES, Scheme
from privet.schedules import SCHEDULES, Schedule
from privet.sparsification import SPARSIFICATIONS, Sparsification

PARTS: dict[str, type[Any]] = {
    **SCHEMES, **KINDS, **SCHEDULES, **SPARSIFICATIONS, **MOMENTA, "Epochs": Epochs, "Gaussian": Gaussian,
}  # fmt: skip
# The fields that hold kinds which can be somebody else's.
_BASES: dict[str, type[Any]] = {
    "sampling": Scheme, "clipping": Rule, "bound_schedule": Schedule, "sparsification": Sparsification,
}  # fmt: skip
_FIX = "A kind of your own has to be made known first, in every program that reads the plan: privet.register(Kind)."

Kind = TypeVar("Kind", bound=type)


def register(kind: Kind) -> Kind:
    """Make a kind of one's own known to plans, their files, budgets and `Training.resume`; usable as a decorator.

    It has to be registered in every program that reads such a plan, before it does so.

    Args:
        kind: a frozen dataclass that is a clipping rule, sampling scheme, schedule or sparsification.

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
    if not frozen or not issubclass(kind, tuple(_BASES.values())):
        raise InvalidArgumentError(
            "kind", kind, "a frozen dataclass derived from clipping.Rule, sampling.Scheme, schedules.Schedule or "
            "sparsification.Sparsification", "Decorate it with @dataclass(frozen=True).",
        )  # fmt: skip
    known = PARTS.get(kind.__name__)
    # A notebook's cell that runs again defines the same kind again.
    if known is not None and (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise InvalidArgumentError(
            "kind", kind.__name__, "a name that no other kind has", f"{known.__module__} has it; rename it."
        )
    PARTS[kind.__name__] = kind
    return kind


def check_kinds(data: dict[str, Any]) -> None:
    """Refuse the plain JSON values of a plan some of whose fields are of kinds that are not known.

    Raises:
        InvalidArgumentError: naming the field, the kind and those that would do.
    """
    for name, base in _BASES.items():
        match data.get(name):
            case {"kind": kind}:
                choice(f"plan.{name}.kind", kind, [own for own, part in PARTS.items() if issubclass(part, base)], _FIX)


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
