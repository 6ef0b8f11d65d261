"""The terms of a budget: its guarantee and its data set, public and fixed at creation."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from privet._utils.registry import check_registered, decode, encode
from privet.accounting.events import ADJACENCIES
from privet.accounting.privacy_unit import Unit, find_unit
from privet.errors import InvalidArgumentError, between, choice, count, positive
from privet.plan import Plan

# Whether plans may depend on releases, which decides how runs are composed; clauses for the statement.
PLANS = {
    "adaptive": "even if a run's plan is chosen by looking at what earlier runs released",
    "fixed": "provided that no plan was chosen, and no run stopped early, by looking at what runs released",
}


@dataclass(frozen=True)
class Terms:
    """The joint guarantee of all runs on one data set.

    Args:
        epsilon: ε > 0 that all runs together never exceed.
        delta: δ in (0, 1).
        adjacency: how neighbouring data sets differ; the runs' plans must agree.
        unit: the privacy unit; the runs' plans must agree.
        examples: public number of examples of every run's plan, held-out ones included (with parts: an upper bound); or None.
        data: public name of the data set, such as "mnist"; or None.
        parts: names of parts of the data declared to be disjoint; every run then names its part. Spending on different parts does
            not add up. Not for "replace-one": a replaced example could move from one part to another.
        plans: "adaptive" (the default): plans and stopping times may depend on what runs released; "fixed": they do not, which
            the caller guarantees, and which allows slightly tighter composition.

    Raises:
        InvalidArgumentError: an argument is out of range, or neither `examples` nor `data` is given.
    """

    epsilon: float
    delta: float
    adjacency: str = "add-remove"
    unit: str | Unit = "one example"
    examples: int | None = None
    data: str | None = None
    parts: tuple[str, ...] = ()
    plans: str = "adaptive"

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        between("delta", self.delta, 0.0, 1.0, "It is usually well below 1 / examples, such as 1e-5.")
        choice("adjacency", self.adjacency, ADJACENCIES)
        object.__setattr__(self, "unit", decode("unit", self.unit, Unit))  # as `to_dict` wrote it
        find_unit(self.unit).check_adjacency(self.adjacency)
        check_registered("unit", self.unit)
        choice("plans", self.plans, PLANS)
        if self.examples is None and not self.data:
            raise InvalidArgumentError("examples", None, "given unless data is", "They identify the budget's data set.")
        if self.examples is not None:
            count("examples", self.examples, minimum=2)
        if self.data is not None and not isinstance(self.data, str):
            raise InvalidArgumentError("data", self.data, "the public name of a data set")
        object.__setattr__(self, "parts", tuple(self.parts))
        if not all(isinstance(part, str) and part for part in self.parts) or len(set(self.parts)) < len(self.parts):
            raise InvalidArgumentError("parts", self.parts, "distinct names")
        if self.parts and self.adjacency == "replace-one":
            fix = "A replaced example could move from one part to another, which changes both; use one budget without parts."
            raise InvalidArgumentError("parts", self.parts, "left out for 'replace-one' neighbours", fix)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values, of which `Terms` makes equal ones."""
        return {each.name: encode(getattr(self, each.name)) for each in fields(self)}

    def check_part(self, part: str | None) -> None:
        """Refuse an unknown part."""
        if self.parts:
            choice("part", part, self.parts, "The budget is for parts of the data; name the part that the run uses.")
        elif part is not None:
            raise InvalidArgumentError("part", part, "None", "The budget declares no parts of its data.")

    def check_plan(self, plan: Plan) -> None:
        """Refuse a plan with another adjacency, unit or number of examples, or without privacy."""
        for name in ("adjacency", "unit"):
            if getattr(plan, name) != getattr(self, name):
                raise InvalidArgumentError(f"plan.{name}", getattr(plan, name), f"the budget's, {getattr(self, name)!r}")
        examples = plan.examples + (0 if plan.holdout is None else plan.holdout.examples)
        if self.examples is not None and (examples > self.examples if self.parts else examples != self.examples):
            allowed = f"{'at most ' if self.parts else ''}the budget's, {self.examples}"
            raise InvalidArgumentError("plan.examples", examples, allowed, "Use a separate budget for another data set.")
        if math.isinf(plan.epsilon()):
            raise InvalidArgumentError("plan", "without a finite ε", "private", "A budget cannot cover a run without privacy.")
