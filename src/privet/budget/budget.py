"""Budget files: a limit on what several runs on one data set spend together, drawn before it is spent."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from privet._utils.files import make_folder
from privet._utils.unique import Unique
from privet.accounting.rounding import format_up
from privet.budget.account import FORMAT, KIND, Account, Share, replay
from privet.budget.terms import PLANS, Terms
from privet.errors import BudgetExhaustedError, InvalidArgumentError, LedgerError
from privet.ledger import Journal, Ledger, read
from privet.plan import Plan

_WHAT = "the budget"


@dataclass(frozen=True)
class Budget(Unique):
    """A privacy budget in a file, shared by several runs on one data set; pass it to every `Training` on that data.

    Args:
        path: path of a file from `create`.
        part: the part of the data that the run uses, if the budget declares parts.

    Guarantee:
        A run draws its whole plan, durably and under the file's lock, before its first step; a plan that would bring all runs
        together above (ε, δ) is refused. Unspent steps return when the run is closed, according to its ledger; a crashed run
        keeps its share until it is resumed and closed. So concurrent runs and crashes never overdraw the budget. It only covers
        runs that were given it, not other runs on the same data.

    Raises:
        LedgerError: the file is missing or damaged.
        InvalidArgumentError: the budget has no such part.

    >>> import tempfile
    >>> from privet import Plan, clipping, noise, sampling
    >>> budget = Budget.create(tempfile.mkdtemp() + "/budget", epsilon=3.0, delta=1e-5, examples=60_000)
    >>> budget.account().total()
    0.0
    """

    no_copy = (
        "A run's share is agreed under the file's lock by the process that opens it. Open it by its path: Budget(path, part)."
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
        """Create an unspent budget.

        Args:
            path: path of the file, preferably next to the data that it protects.
            epsilon, delta, terms: the fields of `Terms`; `examples` or `data` is required.

        Raises:
            InvalidArgumentError: an argument is out of range.
            LedgerError: the budget exists already, or the file cannot be created.
        """
        agreed, place = Terms(epsilon, delta, **terms), Path(path).absolute()
        try:
            make_folder(place.parent)
        except OSError as error:
            raise LedgerError(f"cannot create the folder of {_WHAT} {place}: {error.strerror}") from None
        with Journal(place, _WHAT) as journal:
            if journal.records:
                raise LedgerError(f"{journal.name} exists already, and drawn shares stay drawn; choose another path")
            identity, fields = secrets.token_hex(16), agreed.to_dict()
            journal.append({"record": "open", "kind": KIND, "format": FORMAT, "budget": identity, "terms": fields})
        return cls(place)

    @classmethod
    def of_run(cls, ledger: Ledger, given: Budget | None = None) -> Budget | None:
        """Return the budget that a run draws from, according to its ledger; None if it has none.

        Args:
            ledger: ledger of the run.
            given: the same budget at a new path, if its file has moved.

        Raises:
            LedgerError: the budget is missing, or another one was given or is in its place.
        """
        recorded = ledger.facts.get("budget")
        if recorded is None and given is None:
            return None
        if recorded is None:
            raise LedgerError(f"the run in {ledger.path} began without a budget, and past steps cannot be drawn from one")
        match recorded:
            case {"path": str(path), "part": str() | None as part}:
                budget = given or cls(Path(path), part)
            case _:
                raise LedgerError(f"the run in {ledger.path} does not say which budget it draws from")
        if budget.to_dict() != {**recorded, "path": str(budget.path)}:
            raise LedgerError(f"{_WHAT} {budget.path} is not the one that the run began with, {path}")
        return budget

    def of(self, part: str) -> Budget:
        """Return this budget for a run on one part of the data."""
        return Budget(self.path, part)

    def account(self) -> Account:
        """Return the account of drawn shares."""
        return replay(read(self.path, _WHAT).records, f"{_WHAT} {self.path}")

    def to_dict(self) -> dict[str, str | None]:
        """Return the fields that a run's ledger stores."""
        return {"path": str(self.path), "identity": self.account().identity, "part": self.part}

    def check_data(self, name: str) -> None:
        """Refuse a data set whose name differs from the budget's, if it has one."""
        own = self.account().terms.data
        if own is not None and own != name:
            raise InvalidArgumentError("data", name, f"the budget's, {own!r}", "Use a separate budget for another data set.")

    def draw(self, ledger: Ledger, plan: Plan) -> None:
        """Draw the whole plan of a run before its first step, or again when it is resumed.

        Raises:
            BudgetExhaustedError: all runs together would exceed the budget.
            InvalidArgumentError: the plan's data, unit or adjacency is not the budget's.
            LedgerError: the budget cannot be written, or the run's directory is a copy of one that continued.
        """
        with self._locked() as (journal, account):
            account.terms.check_part(self.part)
            account.terms.check_plan(plan)
            _check_not_a_copy(account.shares.get(ledger.run), ledger)
            share = Share(
                run=ledger.run, plan=plan.to_dict(), steps=plan.total_steps, settled=False, tip=ledger.tip,
                directory=None if ledger.path is None else str(ledger.path.parent.absolute()), part=self.part,
                order=account.order(plan, self.part),
            )  # fmt: skip
            total = account.with_share(share).epsilon(self.part)
            if total > account.terms.epsilon:
                others = account.without(ledger.run).epsilon(self.part)
                raise BudgetExhaustedError(
                    f"{account.name} allows ε = {account.terms.epsilon:g} at δ = {account.terms.delta:g}; it would be "
                    f"{format_up(total)} with this run, and is {format_up(others)} without it: plan fewer steps or more noise"
                )
            journal.append({"record": "share", **asdict(share)})

    def settle(self, ledger: Ledger) -> None:
        """Return a run's unspent steps to the budget, according to its ledger, whose lock must be held to prevent a resume.

        Steps that `Account.returns` does not allow to return stay with the run, which can be resumed.

        Raises:
            LedgerError: the budget cannot be written, or the run's directory is a copy of one that continued.
        """
        with self._locked() as (journal, account):
            share = account.shares[ledger.run]
            _check_not_a_copy(share, ledger)
            # A query that was answered before the first step counts as a step, which keeps the share.
            spent = max(ledger.spent, 1 if ledger.queried else 0)
            steps = spent if spent == 0 or account.returns(share) else share.steps
            settled = replace(share, steps=steps, settled=True, tip=ledger.tip, order=None)
            journal.append({"record": "share", **asdict(settled)})

    def remark(self, run: str) -> str:
        """Return the sentence about the budget for a run's statement."""
        account = self.account()
        terms, total = account.terms, format_up(account.epsilon(self.part))
        others = sum(share.run != run for share in account.spending(self.part))
        where = "" if self.part is None else f", on the part {self.part!r} of the data, which is disjoint from the others"
        runs = f"{others or 'no'} other run{'' if others <= 1 else 's'}"
        return (
            f"The run draws from the budget {self.path.name}{where}: together with {runs} that drew from it, ε ≤ {total} at "
            f"δ = {terms.delta:g} so far, and never above {terms.epsilon:g}, {PLANS[terms.plans]}"
        )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[tuple[Journal, Account]]:
        if not self.path.exists():  # opening a journal would create one
            raise LedgerError(f"{_WHAT} {self.path} is missing, so the drawn shares are unknown; restore the file")
        with Journal(self.path, _WHAT, wait=True) as journal:
            yield journal, replay(journal.records, journal.name)


def _check_not_a_copy(share: Share | None, ledger: Ledger) -> None:
    if share is not None and not ledger.includes(share.tip):
        raise LedgerError(
            f"the ledger {ledger.path} lacks a record that the budget has of the run: it was rolled back, or is a copy"
        )
