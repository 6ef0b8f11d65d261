"""What has been drawn from a budget, replayed from its records, and what it comes to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from privet import accounting
from privet._utils.unique import Unique
from privet.accounting.composition.filters import filter_order, filterable, filtered_epsilon
from privet.budget.terms import Terms
from privet.errors import InvalidArgumentError, LedgerError, PrivetError
from privet.ledger.journal import Record
from privet.plan import Plan

KIND, FORMAT = "budget", 1


@dataclass(frozen=True)
class Share:
    """What one run has drawn.

    Args:
        run: id of the run, from its ledger.
        plan: the run's plan as plain JSON values.
        steps: that count: all of the plan's from the beginning, those that its ledger shows after it was closed.
        settled: whether it was closed.
        tip: of the run's ledger then.
        directory: of the run, for people.
        part: of the data; None if the budget has no parts.
        order: Rényi order for this and later runs on the part, if this was the first.
    """

    run: str
    plan: Mapping[str, Any]
    steps: int
    settled: bool
    tip: str
    directory: str | None
    part: str | None
    order: float | None

    def events(self) -> tuple[accounting.Release, ...]:
        """Return what an accountant is told."""
        return Plan.from_dict(self.plan).events(self.steps) if self.steps else ()


@dataclass(frozen=True)
class Account(Unique):
    """All that was drawn from a budget.

    Args:
        name: of the budget, for errors.
        identity: of the budget.
        terms: what it promises.
        shares: run → what it drew, the first run first.
        orders: part → Rényi order that was fixed by its first run.
    """

    no_copy = "A copy would not see what other runs draw. Read the account anew: Budget(path).account()."

    name: str
    identity: str
    terms: Terms
    shares: Mapping[str, Share]
    orders: Mapping[str | None, float]

    def having(self, share: Share) -> Account:
        """Return the account with a share in place of what its run drew before."""
        orders = self.orders if share.order is None else {**self.orders, share.part: share.order}
        return replace(self, shares={**self.shares, share.run: share}, orders=orders)

    def without(self, run: str) -> Account:
        """Return the account without what a run drew."""
        return replace(self, shares={name: share for name, share in self.shares.items() if name != run})

    def spending(self, part: str | None) -> tuple[Share, ...]:
        """Return the shares on a part of the data that cost something."""
        return tuple(share for share in self.shares.values() if share.part == part and share.steps)

    def epsilon(self, part: str | None) -> float:
        """Return ε at the budget's δ of all runs on a part of the data (on all of it, for None)."""
        return _COMPOSITIONS[self.terms.plans](self.spending(part), self.terms, self.orders.get(part))

    def total(self) -> float:
        """Return ε at the budget's δ of everything: of disjoint parts, the one on which most was spent counts."""
        return max(self.epsilon(part) for part in self.terms.parts or (None,))

    def returns(self, share: Share) -> bool:
        """Return whether what a run leaves over may be spent by others.

        Where stopping may depend on results, only if the run's whole plan is within the filter: then everything is, on every
        path. A plan that only fits because nothing else does would, stopped early, make room on some paths for what the others
        cannot afford.
        """
        if self.terms.plans == "fixed":
            return True
        events, order = Plan.from_dict(share.plan).events(), self.orders.get(share.part)
        return order is not None and filterable(events) and _within_filter(events, self.terms, order) <= self.terms.epsilon

    def order(self, plan: Plan, part: str | None) -> float | None:
        """Return the Rényi order to fix for a part with this plan; None if it is fixed, or there is none for the plan."""
        if self.spending(part) or not filterable(plan.events()):
            return None
        return filter_order(plan.events(), epsilon=self.terms.epsilon, delta=self.terms.delta, adjacency=self.terms.adjacency)


def opening(identity: str, terms: Terms) -> Record:
    """Return a budget's first record."""
    return {"record": "open", "kind": KIND, "format": FORMAT, "budget": identity, "terms": terms.to_dict()}


def drawn(share: Share) -> Record:
    """Return the record of a share."""
    return {"record": "share", **asdict(share)}


def replay(records: Sequence[Record], name: str) -> Account:
    """Return what the records come to.

    Raises:
        LedgerError: they are not those of a budget in this format.
    """
    first = records[0] if records else {}
    if (first.get("record"), first.get("kind"), first.get("format")) != ("open", KIND, FORMAT):
        raise LedgerError(f"{name} does not start with the opening record of a {KIND} of format {FORMAT}")
    try:
        account = Account(name, str(first["budget"]), Terms(**first["terms"]), {}, {})
        for record in records[1:]:
            account = account.having(_share(record))
    except (KeyError, TypeError, PrivetError) as error:
        raise LedgerError(f"{name} holds a record that cannot be read ({error})") from None
    return account


def _share(record: Record) -> Share:
    """Return the share that a record is of.

    Raises:
        TypeError: it is of none.
    """
    match record:
        case {
            "record": "share", "run": str(), "plan": dict(), "steps": int(steps), "settled": bool(), "tip": str(),
            "directory": str() | None, "part": str() | None, "order": float() | None as order,
        } if steps >= 0 and (order is None or order > 1):  # fmt: skip
            return Share(**{field.name: record[field.name] for field in fields(Share)})
    raise TypeError(f"{record.get('record')} is not the share of a run")


def _together(shares: Iterable[Share]) -> list[accounting.Release]:
    return [event for share in shares for event in share.events()]


def _composed(shares: Sequence[Share], terms: Terms, order: float | None) -> float:
    """Return ε of runs whose plans were fixed in advance: all their releases at once."""
    accountant = accounting.DEFAULT_ACCOUNTANT
    return accounting.composed_epsilon(_together(shares), delta=terms.delta, adjacency=terms.adjacency, accountant=accountant)


def _filtered(shares: Sequence[Share], terms: Terms, order: float | None) -> float:
    """Return ε of runs whose plans may depend on what earlier ones released; of a single one, as if it were fixed, which it is.

    If a second run begins, the first one is within the filter too. So if it is not, there is only the first, whatever happens.
    """
    if len(shares) < 2:
        return _composed(shares, terms, order)
    events = _together(shares)
    if order is None or not filterable(events):
        raise InvalidArgumentError(
            "plans", "adaptive", "'fixed' for a budget with several runs one of which has no bound in Rényi divergences",
            "No other composition is known to hold when plans depend on results; or give that run a budget of its own.",
        )  # fmt: skip
    return _within_filter(events, terms, order)


def _within_filter(events: Iterable[accounting.Release], terms: Terms, order: float) -> float:
    return filtered_epsilon(events, order=order, delta=terms.delta, adjacency=terms.adjacency)


_COMPOSITIONS: dict[str, Callable[[Sequence[Share], Terms, float | None], float]] = {"adaptive": _filtered, "fixed": _composed}
