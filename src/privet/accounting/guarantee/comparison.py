"""Comparison of all accountants on one plan: each one's ε, its direction of error, or why it has no answer."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from privet.accounting.queries import ACCOUNTANTS, DIRECTIONS
from privet.accounting.rounding import format_up
from privet.errors import InvalidArgumentError


@dataclass(frozen=True)
class ComparisonRow:
    """One accountant's answer."""

    accountant: str
    epsilon: float | None  # None if it has no answer
    direction: str  # of its error
    why_not: str = ""  # it has no answer, in a sentence


@dataclass(frozen=True)
class Comparison:
    """Every accountant's answer for the same releases; prints as a table.

    Args:
        rows: the tightest bound first, the approximation last.
        delta: δ.
        adjacency: how neighbouring data sets differ.
        steps: number of releases.
    """

    rows: tuple[ComparisonRow, ...]
    delta: float
    adjacency: str
    steps: int

    def __str__(self) -> str:
        lines = [f"ε of {self.steps:,} steps at δ = {self.delta:g} ({self.adjacency})", "accountant      ε         direction"]
        for row in self.rows:
            shown = "—" if row.epsilon is None else format_up(row.epsilon)
            lines.append(f"{row.accountant:<12}{shown:>9}    {row.why_not or row.direction}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain JSON values: infinity becomes "inf", no answer null."""
        known = [(row, "inf" if row.epsilon == math.inf else row.epsilon, row.epsilon is not None) for row in self.rows]
        rows = [
            asdict(row) | {"epsilon": epsilon, "covers": covers, "why_not": row.why_not or None} for row, epsilon, covers in known
        ]
        return {"delta": self.delta, "adjacency": self.adjacency, "steps": self.steps, "rows": rows}


def compare(plan: Any, *, steps: int | None = None) -> Comparison:
    """Return every accountant's ε of a plan, including those without an answer; `privet.report.draw_comparison` plots it.

    Args:
        plan: a `privet.Plan` with its noise and steps.
        steps: how many releases to count; all by default.

    >>> import privet
    >>> plan = privet.Plan(
    ...     examples=1000, sampling=privet.sampling.FixedSize(20), steps=50, clipping=privet.clipping.Flat(0.5), delta=1e-5,
    ...     adjacency="replace-one", noise=privet.noise.Gaussian(2.0),
    ... )
    >>> [row.accountant for row in compare(plan).rows if row.epsilon is not None]
    ['pld', 'rdp']
    """
    number = plan.total_steps if steps is None else steps
    return Comparison(tuple(_row(plan, name, number) for name in ACCOUNTANTS), plan.delta, plan.adjacency, number)


def _row(plan: Any, name: str, steps: int) -> ComparisonRow:
    direction = DIRECTIONS[name]
    try:
        return ComparisonRow(name, plan.epsilon(name, steps=steps), direction)
    except InvalidArgumentError as error:
        if error.name != "accountant":  # an error in the plan itself concerns every accountant
            raise
        return ComparisonRow(name, None, direction, f"only {error.allowed}. {error.fix}")
