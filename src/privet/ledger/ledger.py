"""The ledger: an append-only record of spent steps, durable before any noise is drawn.

    reserve (durable) → sample → clip → noise, paid for by a token → release

A crash after the reservation can leave a step counted that was not taken, but never the reverse. A query beside the steps is
reserved in the same way, and its answer is recorded too, so that it can be read again and never has to be drawn again.
"""

from __future__ import annotations

import os
import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from privet._utils.unique import Unique
from privet.accounting.guarantee.statement import find_versions
from privet.errors import BudgetExhaustedError, LedgerError
from privet.ledger.anchor import move_anchor, open_anchor
from privet.ledger.history import FORMAT, KIND, WHAT, History, Machine, replay
from privet.ledger.journal import Chain, Journal, Record
from privet.noise import Token

BLOCK = 16
_NONE: Mapping[str, float] = {}


class Ledger(Unique):
    """The ledger of one run; use `create` or `open`. Its `facts` are further fields of the first record, as plain JSON values."""

    no_copy = "The same steps would be taken twice, but counted once in each ledger. Close it and use Ledger.open."

    def __init__(
        self, chain: Chain, history: History, multipliers: Sequence[float], block: int, queries: Mapping[str, float]
    ) -> None:
        self.run, self.facts = history.run, history.facts
        self._queries, self._reserved, self._answers = queries, set(history.queries), dict(history.answers)
        self._chain, self._multipliers, self._block, self._spent = chain, multipliers, block, history.spent
        self._tokens: deque[Token] = deque()
        self._anchor: Journal | None = None
        if self.facts.get("anchor") is not None:
            self._anchor = open_anchor(Path(self.facts["anchor"]), self.run, self.includes, begun=history.begun)
            self._move_anchor()

    @classmethod
    def create(
        cls,
        plan: Mapping[str, Any],
        multipliers: Sequence[float],
        path: Path | None,
        block: int = BLOCK,
        *,
        facts: Mapping[str, Any] | None = None,
        anchor: Path | None = None,
        prepare: Callable[[], object] | None = None,
        queries: Mapping[str, float] = _NONE,
    ) -> Ledger:
        """Create the ledger of a new run.

        Args:
            plan, multipliers, queries: the plan's `to_dict()`, the noise multiplier of every step, and those of queries by name.
            path: path of the file, which stays locked; None keeps the ledger in memory, where a crash loses model and record.
            block: number of steps reserved at a time: one synchronised write per block; a crash over-counts by at most a block.
            anchor: a file outside the run's directory that follows the ledger; the first record stores its path.
            prepare: called before the first record, while no other process can start a run there.
        """
        chain = Chain(f"{WHAT} in memory") if path is None else Journal(path, WHAT)
        try:
            if isinstance(chain, Journal) and chain.records:
                raise LedgerError(f"{path} is already the ledger of a run; resume that run, or choose another directory")
            if prepare is not None:
                prepare()
            known = {"anchor": None if anchor is None else str(anchor.absolute()), **(facts or {})}
            opening: Record = {"record": "open", "kind": KIND, "format": FORMAT, "run": secrets.token_hex(16)}
            opening |= {"plan": plan, "facts": known, **_session()}
            chain.append(opening)
            return cls(chain, replay([opening], chain.name), multipliers, block, queries)
        except BaseException:
            chain.close()
            raise

    @classmethod
    def open(
        cls,
        plan: Mapping[str, Any],
        multipliers: Sequence[float],
        path: Path,
        block: int = BLOCK,
        *,
        adopt: bool = False,
        queries: Mapping[str, float] = _NONE,
    ) -> Ledger:
        """Open the ledger of a run that is resumed; arguments as for `create`.

        With `adopt`, one is accepted that was last used on another machine, or before this one rebooted: the caller guarantees
        that no other copy of the run continues.
        """
        if not path.exists():
            raise LedgerError(f"{path.parent} has no ledger: the spending is unknown, so the run cannot be resumed")
        journal = Journal(path, WHAT)
        try:
            history = replay(journal.records, journal.name)
            history.check_plan(plan, multipliers, journal.name, queries)
            here = Machine.here()
            if here != history.machine and not adopt:
                raise LedgerError(
                    f"{journal.name} was last open on {history.machine}, and this is {here}: if no other copy of the run "
                    "continues, pass adopt=True (privet train --resume RUN --adopt)"
                )
            ledger = cls(journal, history, multipliers, block, queries)
            ledger._note({"record": "resume", "adopted": here != history.machine, **_session()})
            return ledger
        except BaseException:
            journal.close()
            raise

    @property
    def path(self) -> Path | None:
        """The file; None for a ledger in memory."""
        return self._chain.path if isinstance(self._chain, Journal) else None

    @property
    def spent(self) -> int:
        """Number of steps that count against the budget: all that were reserved and not returned."""
        return self._spent

    @property
    def tip(self) -> str:
        """SHA-256 of the last line, which a checkpoint stores to prove that it belongs to this ledger."""
        return self._chain.tip

    @property
    def refusal(self) -> str | None:
        """Why no step can be reserved any more; None while one can."""
        return self._chain.refusal

    @property
    def held(self) -> bool:
        """Whether this process has it open, so that no other process can resume the run."""
        return self._chain.held

    @property
    def next_step(self) -> int | None:
        """Number of the step of the next token; None when all steps of the plan are spent."""
        upcoming = self._tokens[0].step if self._tokens else self._spent + 1
        return upcoming if upcoming <= len(self._multipliers) else None

    def check_open(self) -> None:
        """Refuse to continue if no step can be reserved any more."""
        if self.refusal is not None:
            raise LedgerError(f"no more steps can be reserved in this ledger: {self.refusal}")

    def reserve(self) -> Token:
        """Reserve one step durably, and return its token; BudgetExhaustedError if all steps of the plan are spent."""
        self.check_open()
        if not self._tokens:
            first = self._spent + 1
            reserved = [float(multiplier) for multiplier in self._multipliers[self._spent : self._spent + self._block]]
            if not reserved:
                raise BudgetExhaustedError(f"all {self._spent} steps of the plan are spent; a new plan is a new guarantee")
            self._note({"record": "reserve", "first": first, "count": len(reserved), "multipliers": reserved}, len(reserved))
            self._tokens.extend(Token(first + i, multiplier) for i, multiplier in enumerate(reserved))
        return self._tokens.popleft()

    @property
    def answers(self) -> Mapping[str, tuple[float, ...]]:
        """Name → what a query released."""
        return self._answers

    @property
    def queried(self) -> bool:
        """Whether a query was reserved."""
        return bool(self._reserved)

    @property
    def lost(self) -> frozenset[str]:
        """Names of the queries that were reserved by a process that ended before it recorded the answer."""
        return frozenset(self._reserved - self._answers.keys())

    def reserve_query(self, name: str) -> Token:
        """Reserve a query of the plan durably, and return its token; each is reserved once, whether or not it was answered."""
        self.check_open()
        self.give_back()  # so that no step reserved before the query is returned after it
        if name not in self._queries or name in self._reserved:
            why = "was reserved before" if name in self._reserved else "is not in the plan"
            raise BudgetExhaustedError(f"the query {name!r} {why}; a new plan is a new guarantee")
        with self._chain.appending({"record": "query", "query": name, "multiplier": float(self._queries[name])}):
            self._reserved.add(name)
            self._move_anchor()
        return Token(self._spent, self._queries[name])

    def record_answer(self, name: str, values: Sequence[float]) -> None:
        """Record durably what a reserved query released."""
        if name not in self.lost:
            raise LedgerError(f"the query {name!r} was not reserved, or has an answer")
        with self._chain.appending({"record": "answer", "query": name, "values": [float(value) for value in values]}):
            self._answers[name] = tuple(map(float, values))
            self._move_anchor()

    def give_back(self) -> None:
        """Return reserved steps whose tokens were never issued, so that no noise can have been drawn for them.

        If the ledger cannot be written any more, they stay counted.
        """
        number = len(self._tokens)
        self._tokens.clear()
        if number and self.refusal is None:
            self._note({"record": "return", "first": self._spent - number + 1, "count": number}, -number)

    def close(self) -> None:
        """Return unused steps and release the lock; no step can be reserved afterwards."""
        try:
            self.give_back()
        finally:
            self._chain.close(self.refusal or "it was closed")
            if self._anchor is not None:
                self._anchor.close()

    def includes(self, tip: str) -> bool:
        """Return whether the ledger has a line with this hash, so that a file that stores the hash belongs to this run."""
        return self._chain.includes(tip)

    def _note(self, record: Record, steps: int = 0) -> None:
        """Append a record that adds `steps` spent steps; an interruption in between makes the ledger unusable."""
        with self._chain.appending(record):
            self._spent += steps
            self._move_anchor()

    def _move_anchor(self) -> None:
        if self._anchor is not None:
            move_anchor(self._anchor, self.tip)


def _session() -> Record:
    return {
        "machine": asdict(Machine.here()),
        "process": os.getpid(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": find_versions(),
    }
