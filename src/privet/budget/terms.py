"""What a budget promises, and to whom: public, and fixed when it is created."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from privet._utils.registry import check_registered, decode, encode
from privet.accounting import ADJACENCIES, Unit, unit
from privet.errors import InvalidArgumentError, between, choice, count, positive
from privet.plan import Plan

# What the plans of runs may depend on, and so how runs are composed.
PLANS = {
    "adaptive": "a run's plan may be chosen by looking at what earlier runs released",
    "fixed": "no plan was chosen, and no run stopped early, by looking at what runs released",
}


@dataclass(frozen=True)
class Terms:
    """What all runs together promise to the people in one data set.

    Args:
        epsilon: ε > 0 that they never exceed.
        delta: δ in (0, 1).
        adjacency: how neighbouring data sets differ; the runs' plans say the same.
        unit: whose privacy it is; the runs' plans say the same.
        examples: public number of examples, which a run's plan must have (with parts: at most have); or None.
        data: public name of the data set, such as "mnist"; or None.
        parts: names of parts that are declared to have nobody in common, of which a run then names one. What is spent on one
            does not add to what is spent on another. Not for "replace-one": a replaced example could change from part to part.
        plans: "adaptive" (the default): plans, and when runs stop, may depend on what runs released; "fixed": they do not, which
            whoever says so promises, and which lets runs be composed a little more tightly.

    Raises:
        InvalidArgumentError: an argument is out of range, or neither examples nor data say what the budget is for.
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
        unit(self.unit).check_adjacency(self.adjacency)
        check_registered("unit", self.unit)
        choice("plans", self.plans, PLANS)
        if self.examples is None and not self.data:
            raise InvalidArgumentError("examples", None, "given, or else data", "Say which data set the budget is for.")
        if self.examples is not None:
            count("examples", self.examples, minimum=2)
        if self.data is not None and not isinstance(self.data, str):
            raise InvalidArgumentError("data", self.data, "the public name of a data set")
        object.__setattr__(self, "parts", tuple(self.parts))
        if not all(isinstance(part, str) and part for part in self.parts) or len(set(self.parts)) < len(self.parts):
            raise InvalidArgumentError("parts", self.parts, "names, no two alike")
        if self.parts and self.adjacency == "replace-one":
            raise InvalidArgumentError(
                "parts", self.parts, "left out for 'replace-one' neighbours",
                "A replaced example could change from one part to another, which changes both; take one budget for all of it.",
            )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values, of which `Terms` makes equal ones."""
        return {each.name: encode(getattr(self, each.name)) for each in fields(self)}

    def check_part(self, part: str | None) -> None:
        """Refuse a part that there is not.

        Raises:
            InvalidArgumentError: naming those that there are.
        """
        if self.parts:
            choice("part", part, self.parts, "The budget is for parts of the data; say which one the run is on.")
        elif part is not None:
            raise InvalidArgumentError("part", part, "None", "The budget declares no parts of its data.")

    def check_plan(self, plan: Plan) -> None:
        """Refuse a plan that does not promise to the same people, or promises nothing.

        Raises:
            InvalidArgumentError: naming what differs.
        """
        for name in ("adjacency", "unit"):
            if getattr(plan, name) != getattr(self, name):
                raise InvalidArgumentError(f"plan.{name}", getattr(plan, name), f"the budget's, {getattr(self, name)!r}")
        if self.examples is not None and (plan.examples > self.examples if self.parts else plan.examples != self.examples):
            allowed = f"{'at most ' if self.parts else ''}the budget's, {self.examples}"
            raise InvalidArgumentError("plan.examples", plan.examples, allowed, "Another data set has a budget of its own.")
        if math.isinf(plan.epsilon()):
            raise InvalidArgumentError("plan", "without a finite ε", "private", "No budget covers what protects nobody.")
