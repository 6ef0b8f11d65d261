"""Check that the files of a run are consistent: ledger, plan, checkpoints, anchor and budget."""

from __future__ import annotations

__all__ = ["Verified", "verify"]

from dataclasses import dataclass
from pathlib import Path

from privet.accounting.queries import DEFAULT_ACCOUNTANT
from privet.accounting.rounding import format_up
from privet.budget import Budget
from privet.errors import LedgerError
from privet.ledger import History, read_history, verify_anchor
from privet.training import checkpoint
from privet.training.directory import LEDGER, read_plan


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


def verify(directory: Path) -> Verified:
    """Check the files of a run, which may be in progress, against each other, without changing or locking them.

    Guarantee:
        A ledger that passes counts at least the steps whose results are in the checkpoint, in one unbroken chain, each with the
        noise of the plan in the directory. Only a tip that was kept elsewhere shows whether the ledger's end was cut off,
        together with the checkpoints that would show it.
    """
    plan, path = read_plan(directory), directory / LEDGER
    history, tips, torn = read_history(path)
    history.check_plan(plan.to_dict(), plan.multipliers().tolist(), f"the ledger {path}", plan.queries)
    completed = _completed(directory, history, tips)
    if history.facts.get("anchor") is not None:
        verify_anchor(Path(history.facts["anchor"]), history.run, tips.__contains__)
    if history.facts.get("budget") is not None:
        _check_budget(history)
    return Verified(
        run=history.run,
        steps_spent=history.spent,
        steps_planned=plan.total_steps,
        epsilon=plan.epsilon(DEFAULT_ACCOUNTANT, steps=history.spent),
        delta=plan.delta,
        tip=tips[-1],
        sessions=history.sessions,
        torn=torn,
        completed=completed,
        queries=tuple(history.queries),
    )


def _completed(directory: Path, history: History, tips: tuple[str, ...]) -> int | None:
    """Return the number of steps in the newest checkpoint, after checking that the ledger contains it and counts them."""
    path, state = checkpoint.latest(directory)
    if state is None:
        return None
    if state["ledger"] not in tips or state["step"] > history.spent:
        raise LedgerError(f"the checkpoint {path} is newer than, or foreign to, the ledger: spent steps would not be counted")
    return int(state["step"])


def _check_budget(history: History) -> None:
    recorded = history.facts["budget"]
    share = Budget(Path(recorded["path"]), recorded["part"]).account().shares.get(history.run)
    if history.spent and (share is None or share.steps < history.spent):
        drawn = 0 if share is None else share.steps
        raise LedgerError(f"the budget {recorded['path']} counts {drawn} steps of a run that spent {history.spent}")
