"""The plan: one frozen value that holds everything that the guarantee depends on.

Sampler, sampling rate, sensitivity, noise standard deviation, divisor, accounting events and the statement are derived from it,
so they always agree. Settings that do not change the guarantee (physical batch size, device, progress) are elsewhere.
"""

from __future__ import annotations

__all__ = ["FORMAT", "Plan"]

import json
from dataclasses import dataclass, fields
from typing import Any

from privet._utils import documents
from privet._utils.registry import check_registered, construct, encode
from privet.accounting.guarantee.statement import Guarantee
from privet.errors import InvalidArgumentError
from privet.plan.calibration import calibrate
from privet.plan.declaration import Declaration
from privet.plan.statement import build_guarantee

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Plan(Declaration):
    """Everything that the guarantee depends on: data size, sampling, steps, clipping and noise, fixed before any data is read.

    Args:
        examples: public number of examples N ≥ 2 the guarantee is stated for; training refuses a data set of another size. If
            users or groups are clipped as one (see `privet.units`), it is their number.
        sampling: the sampling scheme, such as `privet.sampling.Poisson(batch_size=512)`.
        steps: number of steps, or `privet.epochs(n)`; None if `calibrate` is to find it for given noise.
        clipping: the clipping rule, such as `privet.clipping.Flat(bound=0.3)`.
        delta: δ in (0, 1), below 1/N unless `accept_large_delta`.
        adjacency: "add-remove", "replace-one" or "zero-out": how neighbouring data sets differ.
        noise: `privet.noise.Gaussian(multiplier=...)`; without a multiplier `calibrate` finds it.
        bound_schedule: factor of the rule's bound at every step, such as `privet.schedules.Geometric()`.
        momentum: momentum in addition to the optimizer's: `privet.momentum.InnerOuter(...)`, `PerExample(...)` or None.
        accept_large_delta: allow δ ≥ 1/N, which permits a mechanism that publishes a random record.
        sparsification: the coordinates that steps drop, such as `privet.sparsification.Random(final_rate=0.9)`; or None.
        unit: the unit of privacy: "one example", "one user", that of a `privet.units.Groups`, or a `privet.units.Unit`; training
            refuses a data set with other units.
        holdout: the query for the final model's result on held-out entries (`privet.plan.Holdout`); or None.
        class_counts: the query for the number of training entries of each class (`privet.plan.ClassCounts`); or None.
        schema: the public schema of the table that is trained on (`privet.tables.Schema`); None for other data.

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

    def calibrate(self, epsilon: float, *, accountant: str | None = None) -> Plan:
        """Return a new plan that meets (ε, δ): solve for noise or steps, whichever is open.

        Args:
            epsilon: target ε > 0, never exceeded.
            accountant: whose ε must meet the target, any upper bound; default: the tightest.

        Raises:
            InvalidArgumentError: both or neither are open, or the target cannot be met.
        """
        return calibrate(self, epsilon, accountant)

    def guarantee(self, *, steps: int | None = None, accountant: str | None = None) -> Guarantee:
        """Return the guarantee of this plan after `steps` steps (default: all), by an accountant (default: the tightest)."""
        return build_guarantee(self, steps, accountant)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain JSON values."""
        return {"format": FORMAT, **{f.name: encode(getattr(self, f.name)) for f in fields(self)}}

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the plan as a JSON object; `from_json` gives an equal plan back, to the last bit."""
        return json.dumps(self.to_dict(), indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Return the plan that `to_json` wrote.

        Raises:
            InvalidArgumentError: the text is not a plan, lacks a field without a default, has an unknown one, or another format.
        """
        try:
            data = documents.from_json(text)
        except documents.DocumentError as error:
            raise InvalidArgumentError("plan", text[:40], "a JSON object", f"{error}.") from None
        return cls.from_dict(data)

    @classmethod
    def from_dict(cls, data: object) -> Plan:
        """Return the plan that `to_dict` gave; errors as for `from_json`."""
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            found = data.get("format") if isinstance(data, dict) else data
            raise InvalidArgumentError("plan.format", found, str(FORMAT), "It was written by another version, or is not a plan.")
        values = documents.replace_former_values(data)
        plan: Plan = construct(cls, "plan", {name: value for name, value in values.items() if name != "format"}, cls.BASES)
        return plan

    def check_readable(self) -> None:
        """Refuse a plan that its JSON cannot restore: its run could spend privacy, but not be resumed."""
        for each in fields(self):
            check_registered(f"plan.{each.name}", getattr(self, each.name))
        try:
            same = Plan.from_json(self.to_json()) == self
        except (TypeError, ValueError):  # values without a JSON form; also InvalidArgumentError
            same = False
        if not same:
            raise InvalidArgumentError(
                "plan", "a plan that its JSON does not restore", "made of numbers, text, tuples and such values",
                "Its run could not be resumed; see Plan.to_json.",
            )  # fmt: skip
