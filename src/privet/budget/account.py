"""The account of a budget: the shares drawn by runs, replayed from its records, and their total ε."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from privet import accounting
from privet._utils.unique import Unique
from privet.accounting.composition.filters import divergence, filter_order, filtered_epsilon, is_filterable
from privet.accounting.events import Release
from privet.accounting.queries import DEFAULT_ACCOUNTANT, composed_epsilon
from privet.budget.terms import Terms
from privet.errors import InvalidArgumentError, LedgerError, PrivetError
from privet.ledger.journal import Record
from privet.plan import Plan

KIND, FORMAT = "budget", 1


@dataclass(frozen=True)
class Share:
    """The share of one run.

    Args:
        run: id of the run, from its ledger.
        plan: the run's plan as plain JSON values.
        steps: number of counted steps: all of the plan's at first, those of its ledger once it is closed.
        settled: whether the run was closed.
        tip: tip of the run's ledger at that time.
        directory: the run's directory, for information.
        part: part of the data; None if the budget has no parts.
        order: Rényi order for this and later runs on the part, if this is the first run.
    """

    run: str
    plan: Mapping[str, Any]
    steps: int
    settled: bool
    tip: str
    directory: str | None
    part: str | None
    order: float | None

    def parts(self) -> tuple[tuple[Release, ...], ...]:
        """Return the releases on each disjoint part of the data that the run divided, one part if it held nothing out.

        A share without counted steps is that of a run that released nothing, no query either (`Budget.settle`).
        """
        return Plan.from_dict(self.plan).parts(self.steps) if self.steps else ((),)


@dataclass(frozen=True)
class Account(Unique):
    """All shares drawn from a budget.

    Args:
        name: name of the budget in errors.
        identity: id of the budget.
        terms: terms of the budget.
        shares: run → its share, in the order of the runs.
        orders: part → Rényi order that its first run fixed.
    """

    no_copy = "A copy would not see what other runs draw. Read the account again: Budget(path).account()."

    name: str
    identity: str
    terms: Terms
    shares: Mapping[str, Share]
    orders: Mapping[str | None, float]

    def with_share(self, share: Share) -> Account:
        """Return the account with this share in place of the run's previous share."""
        orders = self.orders if share.order is None else {**self.orders, share.part: share.order}
        return replace(self, shares={**self.shares, share.run: share}, orders=orders)

    def without(self, run: str) -> Account:
        """Return the account without the share of a run."""
        return replace(self, shares={name: share for name, share in self.shares.items() if name != run})

    def spending(self, part: str | None) -> tuple[Share, ...]:
        """Return the shares with counted steps on a part of the data."""
        return tuple(share for share in self.shares.values() if share.part == part and share.steps)

    def epsilon(self, part: str | None) -> float:
        """Return ε at the budget's δ of all runs on a part of the data; None is all of the data.

        A single run counts as fixed, which it is: a second one only begins if the first is within the filter too.
        """
        shares = self.spending(part)
        if self.terms.plans == "fixed" or len(shares) < 2:
            return _compose_fixed(shares, self.terms)
        return _compose_adaptive(shares, self.terms, self.orders.get(part))

    def total(self) -> float:
        """Return ε at the budget's δ of all runs: the maximum over disjoint parts."""
        return max(self.epsilon(part) for part in self.terms.parts or (None,))

    def returns(self, share: Share) -> bool:
        """Return whether other runs may spend the steps that a run leaves unused.

        If stopping may depend on results, only when the run's whole plan is within the filter, so that every possible outcome is.
        A plan that only fits as the single run would otherwise, if stopped early, free budget on some outcomes that the filter
        does not cover.
        """
        if self.terms.plans == "fixed":
            return True
        plan, order = Plan.from_dict(share.plan), self.orders.get(share.part)
        if order is None or not is_filterable(plan.events()):
            return False
        return _within_filter([plan.parts()], self.terms, order) <= self.terms.epsilon

    def order(self, plan: Plan, part: str | None) -> float | None:
        """Return the Rényi order that this plan fixes for a part; None if it is already fixed, or unknown for the plan."""
        if self.spending(part) or not is_filterable(plan.events()):
            return None
        return filter_order(plan.events(), epsilon=self.terms.epsilon, delta=self.terms.delta, adjacency=self.terms.adjacency)


def replay(records: Sequence[Record], name: str) -> Account:
    """Replay the records of a budget."""
    first = records[0] if records else {}
    if (first.get("record"), first.get("kind"), first.get("format")) != ("open", KIND, FORMAT):
        raise LedgerError(f"{name} does not start with the opening record of a {KIND} of format {FORMAT}")
    try:
        account = Account(name, str(first["budget"]), Terms(**first["terms"]), {}, {})
        for record in records[1:]:
            account = account.with_share(_share(record))
    except (KeyError, TypeError, PrivetError) as error:
        raise LedgerError(f"{name} holds a record that cannot be read ({error})") from None
    return account


def _share(record: Record) -> Share:
    """Return the share in a record; TypeError if it is none."""
    match record:
        case {
            "record": "share", "run": str(), "plan": dict(), "steps": int(steps), "settled": bool(), "tip": str(),
            "directory": str() | None, "part": str() | None, "order": float() | None as order,
        } if steps >= 0 and (order is None or order > 1):  # fmt: skip
            return Share(**{field.name: record[field.name] for field in fields(Share)})
    raise TypeError(f"{record.get('record')} is not the share of a run")


def _compose_fixed(shares: Sequence[Share], terms: Terms) -> float:
    """Return ε of runs whose plans were fixed in advance.

    Within one run, releases on disjoint parts do not add up. Runs divide the data independently, so an entry may be in the most
    expensive part of each: for several runs, the releases on all parts are composed, which covers every case.
    """
    query: dict[str, Any] = {"delta": terms.delta, "adjacency": terms.adjacency, "accountant": DEFAULT_ACCOUNTANT}
    if len(shares) == 1:
        return accounting.parallel_epsilon(shares[0].parts(), **query)
    return composed_epsilon([event for share in shares for part in share.parts() for event in part], **query)


def _compose_adaptive(shares: Sequence[Share], terms: Terms, order: float | None) -> float:
    """Return ε of runs whose plans may depend on results of earlier runs."""
    parts = [share.parts() for share in shares]
    if order is None or not all(is_filterable(part) for own in parts for part in own):
        allowed = "'fixed' for a budget with several runs, one of which has no known Rényi divergences"
        fix = "No other composition is known to hold when plans depend on results; or use a separate budget for that run."
        raise InvalidArgumentError("plans", "adaptive", allowed, fix)
    return _within_filter(parts, terms, order)


def _within_filter(runs: Iterable[Iterable[Sequence[Release]]], terms: Terms, order: float) -> float:
    """Return ε of runs, each given as its releases on disjoint parts of the data.

    A run's Rényi divergence is at most that of its most expensive part, because the divergence is jointly quasi-convex and
    the division does not depend on values (van Erven, Harremoës 2014, "Rényi Divergence and Kullback-Leibler Divergence",
    Theorem 13).
    """
    cost = partial(divergence, order=order, adjacency=terms.adjacency)
    events = [event for parts in runs for event in max(parts, key=cost)]
    return filtered_epsilon(events, order=order, delta=terms.delta, adjacency=terms.adjacency)
