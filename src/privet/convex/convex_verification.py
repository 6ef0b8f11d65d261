"""Check that the files of a convex run agree: its ledger and its plan."""

from __future__ import annotations

__all__ = ["VerifiedFit", "read_convex_plan", "verify_fit"]

from dataclasses import dataclass
from pathlib import Path

from privet._utils.documents import DocumentError, from_json, read_text
from privet.accounting.rounding import format_up
from privet.convex.convex_plan import ConvexPlan
from privet.ledger import read_history
from privet.training.directory import LEDGER, PLAN


@dataclass(frozen=True)
class VerifiedFit:
    """The content of the ledger of a convex run, after all checks."""

    run: str
    queries: tuple[str, ...]  # names of the draws of noise that count
    released: bool  # if not, a crash has spent the draws that count
    epsilon: float  # of the plan, if anything counts
    delta: float
    tip: str  # SHA-256 of the ledger's last line

    def __str__(self) -> str:
        what = "the weights were released" if self.released else "no weights were released"
        return (
            f"The ledger of run {self.run} is intact: draws of noise that count: {', '.join(self.queries) or 'none'}; {what}. "
            f"ε = {format_up(self.epsilon)} at δ = {self.delta:g}.\nTip: {self.tip}"
        )


def read_convex_plan(directory: Path) -> ConvexPlan | None:
    """Return the plan of a convex run; None if the directory holds another run, or none."""
    try:
        text = read_text(directory / PLAN)
        values = from_json(text)
    except DocumentError:
        return None
    return ConvexPlan.from_json(text) if isinstance(values, dict) and values.get("format") == ConvexPlan.FORMAT else None


def verify_fit(directory: Path, plan: ConvexPlan) -> VerifiedFit:
    """Check the ledger of a convex run against its plan, without changing it; raises `LedgerError`."""
    path = directory / LEDGER
    history, tips, _ = read_history(path)
    history.check_plan(plan.to_dict(), [], f"the ledger {path}", plan.queries)
    return VerifiedFit(
        run=history.run,
        queries=tuple(history.queries),
        released="solution" in history.answers,
        epsilon=plan.epsilon() if history.queries else 0.0,
        delta=plan.delta,
        tip=tips[-1],
    )
