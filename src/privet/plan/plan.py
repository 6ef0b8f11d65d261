"""The plan: one frozen value that holds everything that the guarantee depends on.

The sampler, the sensitivity, the noise, the divisor, the accounting and the statement all follow from the plan, so they always
agree. Settings that do not change the guarantee, such as the device, are elsewhere.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from privet._utils import documents
from privet._utils.registry import check_registered, construct, encode
from privet.accounting.guarantee.statement import Guarantee
from privet.errors import InvalidArgumentError
from privet.plan.declaration import Declaration
from privet.plan.statement import build_guarantee


class JsonForm:
    """A frozen dataclass of numbers, text and parts. Its JSON restores it to the last bit."""

    FORMAT: ClassVar[int | str]
    BASES: ClassVar[dict[str, type[Any]]]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain JSON values."""
        return {"format": self.FORMAT, **{each.name: encode(getattr(self, each.name)) for each in fields(self)}}  # type: ignore[arg-type]

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the plan as a JSON object. `from_json` returns an equal plan, to the last bit."""
        return json.dumps(self.to_dict(), indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the plan that `to_json` wrote. Any other text is refused."""
        try:
            data = documents.from_json(text)
        except documents.DocumentError as error:
            raise InvalidArgumentError("plan", text[:40], "a JSON object", cause=f"{error}") from None
        return cls.from_dict(data)

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Return the plan that `to_dict` described."""
        if not isinstance(data, dict) or data.get("format") != cls.FORMAT:
            found, fix = data.get("format") if isinstance(data, dict) else data, "It is from another version, or is no such plan."
            raise InvalidArgumentError("plan.format", found, repr(cls.FORMAT), fix)
        values = documents.replace_former_values(data)
        plan: Self = construct(cls, "plan", {name: value for name, value in values.items() if name != "format"}, cls.BASES)
        return plan


@dataclass(frozen=True, kw_only=True)
class Plan(JsonForm, Declaration):
    """Everything that the guarantee depends on: data size, sampling, steps, clipping and noise, fixed before any data is read.

    Args:
        examples: public number N ≥ 2 of examples. Training refuses a data set of another size. If the units are users or groups
            (see `privet.units`), it is their number.
        sampling: the sampling scheme, such as `privet.sampling.Poisson(batch_size=512)`.
        steps: number of steps, or `privet.epochs(n)`, or None if `calibrate` finds it for given noise. `total_steps` is the
            number in any case.
        clipping: the clipping rule, such as `privet.clipping.Flat(bound=0.3)`.
        delta: δ in (0, 1), below 1/N unless `accept_large_delta`.
        adjacency: "add-remove", "replace-one" or "zero-out": how neighbouring data sets differ.
        noise: `privet.noise.Gaussian(multiplier=...)`. Without a multiplier, `calibrate` finds it.
        bound_schedule: factor of the rule's bound at every step, such as `privet.schedules.Geometric()`.
        momentum: `privet.momentum.InnerOuter(...)`, `PerExample(...)` or None, in addition to the optimizer's momentum.
        accept_large_delta: whether δ ≥ 1/N is allowed. Such a δ permits a mechanism that publishes a random record.
        sparsification: the coordinates that steps drop, such as `privet.sparsification.Random(final_rate=0.9)`; or None.
        embeddings: the rows of embedding tables that steps release, such as `privet.sparsification.AdaFEST(...)`; None for all.
        unit: the privacy unit: "one example", "one user", the `privacy_unit` of a `privet.units.Groups`, or a
            `privet.units.Unit`. Training refuses a data set with another unit.
        holdout: `privet.plan.Holdout`, the query for the result of the final model on held-out entries; or None.
        class_counts: `privet.plan.ClassCounts`, the query for the number of training entries of each class; or None.
        schema: the public schema of the table that is trained on (`privet.tables.Schema`, or its path); None for other data.

    Raises:
        InvalidArgumentError: an argument is out of range, or arguments cannot be combined.

    >>> from privet import clipping, noise, sampling
    >>> plan = Plan(
    ...     examples=60_000, sampling=sampling.Poisson(batch_size=256), steps=3515, clipping=clipping.Flat(bound=1.0),
    ...     delta=1e-5, noise=noise.Gaussian(multiplier=1.1),
    ... )
    >>> round(plan.epsilon(), 2)
    1.13
    >>> Plan.from_json(plan.to_json()) == plan
    True
    """

    FORMAT: ClassVar[int | str] = 1

    def guarantee(self, *, steps: int | None = None, accountant: str | None = None) -> Guarantee:
        """Return the guarantee of this plan after `steps` steps (default: all) by an accountant (default: the tightest)."""
        return build_guarantee(self, steps, accountant)

    def check_readable(self) -> None:
        """Refuse a plan that its JSON cannot restore. A run of such a plan could spend privacy, but could not be resumed."""
        for each in fields(self):
            check_registered(f"plan.{each.name}", getattr(self, each.name))
        try:
            same = Plan.from_json(self.to_json()) == self
        except (TypeError, ValueError):  # values without a JSON form; also InvalidArgumentError
            same = False
        if not same:
            allowed = "made of numbers, text, tuples and such values"
            fix = "Its run could not be resumed; see Plan.to_json."
            raise InvalidArgumentError("plan", "a plan that its JSON does not restore", allowed, fix)
