"""A budget file: what several runs on one data set may spend together, drawn before it is spent."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from privet._utils.files import make_folder
from privet._utils.unique import Unique
from privet.accounting.rounding import format_up
from privet.budget.account import Account, Share, drawn, opening, replay
from privet.budget.terms import PLANS, Terms
from privet.errors import BudgetExhaustedError, InvalidArgumentError, LedgerError
from privet.ledger import Journal, Ledger, read
from privet.plan import Plan

_WHAT = "the budget"


@dataclass(frozen=True)
class Budget(Unique):
    """What several runs on one data set share, in a file; hand it to every `Training` on that data.

    Args:
        path: of the file that `create` made.
        part: of the data that the run is on, if the budget declares parts.

    Guarantee:
        A run draws its whole plan, durably and under the file's lock, before its first step; what would bring all runs together
        above (ε, δ) is refused. What a run did not spend returns when it is closed, by what its ledger shows; a run that crashed
        keeps what it drew until it is resumed and closed. So concurrent runs, and crashes, never overdraw it. It covers the runs
        that were given it: a run on the same data without it is not known to it.

    Raises:
        LedgerError: there is no budget there, or it is damaged.
        InvalidArgumentError: the part is not one of the budget's.

    >>> import tempfile
    >>> from privet import Plan, clipping, noise, sampling
    >>> budget = Budget.create(tempfile.mkdtemp() + "/budget", epsilon=3.0, delta=1e-5, examples=60_000)
    >>> budget.account().total()
    0.0
    """

    no_copy = (
        "What a run may spend is agreed under the file's lock, by whoever opens it. Open it by its path: Budget(path, part)."
    )

    path: Path
    part: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path).absolute())
        terms = self.account().terms
        if self.part is not None:
            terms.check_part(self.part)

    @classmethod
    def create(cls, path: str | Path, *, epsilon: float, delta: float, **terms: Any) -> Budget:
        """Return a new budget of which nothing is spent.

        Args:
            path: of the file, best beside the data that it protects.
            epsilon, delta, terms: the fields of `Terms`; examples or data are needed.

        Raises:
            InvalidArgumentError: an argument is out of range.
            LedgerError: there is a budget already, or the file cannot be made.
        """
        agreed, place = Terms(epsilon, delta, **terms), Path(path).absolute()
        try:
            make_folder(place.parent)
        except OSError as error:
            raise LedgerError(f"cannot make the folder of {_WHAT} {place}: {error.strerror}") from None
        with Journal(place, _WHAT) as journal:
            if journal.records:
                raise LedgerError(f"{journal.name} exists already; what was drawn from it stays drawn")
            journal.append(opening(secrets.token_hex(16), agreed))
        return cls(place)

    @classmethod
    def of_run(cls, ledger: Ledger, given: Budget | None = None) -> Budget | None:
        """Return the budget that a run draws from by what its ledger says; None if it has none.

        Args:
            ledger: of the run.
            given: that budget, where its file has moved.

        Raises:
            LedgerError: another budget stands in its place or was given, or there is none any more.
        """
        recorded = ledger.facts.get("budget")
        if recorded is None and given is None:
            return None
        if recorded is None:
            raise LedgerError(f"the run in {ledger.path} began without a budget; what it spent cannot be drawn afterwards")
        match recorded:
            case {"path": str(path), "part": str() | None as part}:
                budget = given or cls(Path(path), part)
            case _:
                raise LedgerError(f"the run in {ledger.path} does not say which budget it draws from")
        if budget.to_dict() != {**recorded, "path": str(budget.path)}:
            raise LedgerError(f"{_WHAT} {budget.path} is not the one that the run began with, {path}")
        return budget

    def of(self, part: str) -> Budget:
        """Return the budget for a run on this part of the data."""
        return Budget(self.path, part)

    def account(self) -> Account:
        """Return what has been drawn."""
        return replay(read(self.path, _WHAT).records, f"{_WHAT} {self.path}")

    def to_dict(self) -> dict[str, str | None]:
        """Return what a run's ledger notes of it."""
        return {"path": str(self.path), "identity": self.account().identity, "part": self.part}

    def check_data(self, name: str) -> None:
        """Refuse a data set of another name than the budget's, if it has one.

        Raises:
            InvalidArgumentError: naming both.
        """
        own = self.account().terms.data
        if own is not None and own != name:
            raise InvalidArgumentError("data", name, f"the budget's, {own!r}", "Another data set has a budget of its own.")

    def draw(self, ledger: Ledger, plan: Plan) -> None:
        """Draw the whole plan for a run, before it spends anything; for one that is resumed, again.

        Raises:
            BudgetExhaustedError: together with the other runs it would be too much.
            InvalidArgumentError: the plan is not for the budget's people.
            LedgerError: the budget cannot be written, or the run's directory is a copy of one that went on.
        """
        with self._locked() as (journal, account):
            account.terms.check_part(self.part)
            account.terms.check_plan(plan)
            _check_not_a_copy(account.shares.get(ledger.run), ledger)
            share = Share(
                run=ledger.run,
                plan=plan.to_dict(),
                steps=plan.total_steps,
                settled=False,
                tip=ledger.tip,
                directory=None if ledger.path is None else str(ledger.path.parent.absolute()),
                part=self.part,
                order=account.order(plan, self.part),
            )
            total = account.having(share).epsilon(self.part)
            if total > account.terms.epsilon:
                others = account.without(ledger.run).epsilon(self.part)
                raise BudgetExhaustedError(
                    f"{account.name} allows ε = {account.terms.epsilon:g} at δ = {account.terms.delta:g}; with this run it would "
                    f"be {format_up(total)}, without it it is {format_up(others)}: plan fewer steps or more noise"
                )
            journal.append(drawn(share))

    def settle(self, ledger: Ledger) -> None:
        """Return what a run did not spend, by what its ledger shows. Its lock must be held, so that nobody resumes meanwhile.

        What `Account.returns` does not allow to return stays with the run, which can be resumed.

        Raises:
            LedgerError: the budget cannot be written, or the run's directory is a copy of one that went on.
        """
        with self._locked() as (journal, account):
            share = account.shares[ledger.run]
            _check_not_a_copy(share, ledger)
            steps = ledger.spent if ledger.spent == 0 or account.returns(share) else share.steps
            journal.append(drawn(replace(share, steps=steps, settled=True, tip=ledger.tip, order=None)))

    def remark(self, run: str) -> str:
        """Return what the statement of a run says of the budget."""
        account = self.account()
        terms, total = account.terms, format_up(account.epsilon(self.part))
        others = sum(share.run != run for share in account.spending(self.part))
        where = "" if self.part is None else f", on the part {self.part!r} of the data, which shares nobody with the others"
        runs = f"{others or 'no'} other run{'' if others <= 1 else 's'}"
        return (
            f"The run draws from the budget {self.path.name}{where}: together with {runs} that drew from it, ε ≤ {total} at "
            f"δ = {terms.delta:g} so far, and never above {terms.epsilon:g}, where {PLANS[terms.plans]}"
        )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[tuple[Journal, Account]]:
        if not self.path.exists():  # opening a journal would make one
            raise LedgerError(f"{_WHAT} {self.path} is gone: what was drawn from it is not known")
        with Journal(self.path, _WHAT, wait=True) as journal:
            yield journal, replay(journal.records, journal.name)


def _check_not_a_copy(share: Share | None, ledger: Ledger) -> None:
    if share is not None and not ledger.includes(share.tip):
        raise LedgerError(f"the ledger {ledger.path} lacks what the budget knows of the run: it was rolled back, or is a copy")
