"""Whether the files of a run fit together: every line of its ledger, its plan, checkpoints, anchor and budget."""

from __future__ import annotations

__all__ = ["Verified", "verify"]

from dataclasses import dataclass
from pathlib import Path

from privet.accounting import DEFAULT_ACCOUNTANT
from privet.accounting.rounding import format_up
from privet.budget import Budget
from privet.errors import LedgerError
from privet.ledger import History, read_history, verify_anchor
from privet.training import checkpoint, read_plan
from privet.training.directory import LEDGER


@dataclass(frozen=True)
class Verified:
    """What a run's ledger shows, after everything was checked.

    Args:
        run: id of the run.
        steps_spent: steps that count.
        steps_planned: of the plan.
        epsilon: ε at `delta` of the steps that count.
        delta: the plan's.
        tip: SHA-256 of the ledger's last line: to be noted elsewhere, as nothing in a copied directory shows that it is one.
        sessions: how often the run was begun or gone on with.
        torn: whether the last line was cut off: a crash, or a write that is going on.
        completed: steps in the newest checkpoint that can be read; None without one.
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

    def __str__(self) -> str:
        saved = "no checkpoint" if self.completed is None else f"{self.completed:,} in the checkpoint"
        return (
            f"The ledger of run {self.run} is whole: {self.steps_spent:,} of {self.steps_planned:,} steps count ({saved}), "
            f"ε = {format_up(self.epsilon)} at δ = {self.delta:g}, in {self.sessions} session{'s' * (self.sessions != 1)}."
            + " Its last line was cut off, and does not count." * self.torn
            + f"\nTip: {self.tip}"
        )


def verify(directory: Path) -> Verified:
    """Check the files of a run against each other, without changing or locking any.

    Args:
        directory: of the run, which may be going on.

    Returns:
        What the ledger shows.

    Raises:
        LedgerError: there is no run, or something is damaged or does not belong; the message says what.

    Guarantee:
        A ledger that passes counts at least the steps whose results are in the checkpoint, in one unbroken chain, each with the
        noise of the plan that stands beside it. That its end was not cut off, with the checkpoints that would show it, is what
        the tip shows to whoever noted it.
    """
    plan, path = read_plan(directory), directory / LEDGER
    history, tips, torn = read_history(path)
    history.check_plan(plan.to_dict(), plan.multipliers().tolist(), f"the ledger {path}")
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
    )


def _completed(directory: Path, history: History, tips: tuple[str, ...]) -> int | None:
    """Return the steps in the newest checkpoint, after checking that the ledger knows it and counts them."""
    path, state = checkpoint.latest(directory)
    if state is None:
        return None
    if state["ledger"] not in tips or state["step"] > history.spent:
        raise LedgerError(f"the checkpoint {path} is newer than, or foreign to, the ledger: spent steps would be lost")
    return int(state["step"])


def _check_budget(history: History) -> None:
    recorded = history.facts["budget"]
    share = Budget(Path(recorded["path"]), recorded["part"]).account().shares.get(history.run)
    if history.spent and (share is None or share.steps < history.spent):
        drawn = 0 if share is None else share.steps
        raise LedgerError(f"the budget {recorded['path']} counts {drawn} steps of a run that spent {history.spent}")
