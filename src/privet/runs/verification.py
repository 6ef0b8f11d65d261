"""Verification of the files of a run against each other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from privet._utils.documents import DocumentError, from_json, read_text
from privet.accounting.queries import DEFAULT_ACCOUNTANT
from privet.accounting.rounding import format_up
from privet.budget import Budget
from privet.convex import ConvexPlan
from privet.errors import LedgerError
from privet.ledger import read_history, verify_anchor
from privet.training import checkpoint, read_plan
from privet.training.directory import LEDGER, PLAN


@dataclass(frozen=True)
class Verified:
    """The content of a run's ledger, after all checks.

    Args:
        steps_spent: number of steps that count.
        steps_planned: number of steps of the plan.
        epsilon: ε at `delta` of the steps that count.
        tip: SHA-256 of the ledger's last line. Keep it elsewhere: nothing within a directory shows that it is a copy.
        sessions: number of times that the run was started or resumed.
        torn: whether the last line is incomplete, because of a crash or a write in progress.
        completed: number of steps in the newest readable checkpoint; None without one.
        queries: names of the queries beside the steps that count.
    """

    run: str
    steps_spent: int
    steps_planned: int
    epsilon: float
    delta: float
    tip: str
    sessions: int
    torn: bool
    completed: int | None
    queries: tuple[str, ...] = ()

    def __str__(self) -> str:
        saved = "no checkpoint" if self.completed is None else f"{self.completed:,} in the checkpoint"
        return (
            f"The ledger of run {self.run} is intact: {self.steps_spent:,} of {self.steps_planned:,} steps count ({saved}), "
            f"ε = {format_up(self.epsilon)} at δ = {self.delta:g}, in {self.sessions} session{'s' * (self.sessions != 1)}."
            + f" Queries that count: {', '.join(self.queries)}." * bool(self.queries)
            + " Its last line is incomplete and does not count." * self.torn
            + f"\nTip: {self.tip}"
        )


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


def verify(directory: Path) -> Verified | VerifiedFit:
    """Check the files of a run, which may be in progress, against each other, without changing or locking them.

    Guarantee:
        A ledger that passes counts at least the steps whose results are in the checkpoint, in one unbroken chain, each with the
        noise of the plan in the directory. Only a tip that was kept elsewhere shows whether the ledger's end was cut off,
        together with the checkpoints that would show it.
    """
    path, convex = directory / LEDGER, _read_convex_plan(directory)
    plan = read_plan(directory) if convex is None else convex
    history, tips, torn = read_history(path)
    multipliers = [] if isinstance(plan, ConvexPlan) else plan.multipliers().tolist()
    history.check_plan(plan.to_dict(), multipliers, f"the ledger {path}", plan.queries)
    if isinstance(plan, ConvexPlan):
        return VerifiedFit(
            run=history.run,
            queries=tuple(history.queries),
            released="solution" in history.answers,
            epsilon=plan.epsilon() if history.queries else 0.0,
            delta=plan.delta,
            tip=tips[-1],
        )
    saved, state = checkpoint.latest(directory)
    if state is not None and (state["ledger"] not in tips or state["step"] > history.spent):
        raise LedgerError(f"the checkpoint {saved} is newer than, or foreign to, the ledger: spent steps would not be counted")
    if history.facts.get("anchor") is not None:
        verify_anchor(Path(history.facts["anchor"]), history.run, tips.__contains__)
    if (recorded := history.facts.get("budget")) is not None:
        share = Budget(Path(recorded["path"]), recorded["part"]).account().shares.get(history.run)
        drawn = 0 if share is None else share.steps
        if drawn < history.spent:
            raise LedgerError(f"the budget {recorded['path']} counts {drawn} steps of a run that spent {history.spent}")
    return Verified(
        run=history.run,
        steps_spent=history.spent,
        steps_planned=plan.total_steps,
        epsilon=plan.epsilon(DEFAULT_ACCOUNTANT, steps=history.spent),
        delta=plan.delta,
        tip=tips[-1],
        sessions=history.sessions,
        torn=torn,
        completed=None if state is None else int(state["step"]),
        queries=tuple(history.queries),
    )


def _read_convex_plan(directory: Path) -> ConvexPlan | None:
    """Return the plan of a convex run; None if the directory holds another run, or none."""
    try:
        text = read_text(directory / PLAN)
        values = from_json(text)
    except DocumentError:
        return None
    return ConvexPlan.from_json(text) if isinstance(values, dict) and values.get("format") == ConvexPlan.FORMAT else None
