"""The ledger: an append-only record of what was spent, durable before any noise is drawn.

    reserve → on disk → sample → clip → noise, against a token → release

A crash anywhere after the reservation leaves a step counted that may not have been taken; never the reverse.
"""

from __future__ import annotations

import os
import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from privet._utils.unique import Unique
from privet.errors import BudgetExhaustedError, LedgerError
from privet.ledger.anchor import Anchor
from privet.ledger.history import FORMAT, KIND, WHAT, replay
from privet.ledger.journal import Chain, Journal, Record
from privet.ledger.machine import Machine
from privet.noise import Token

_BLOCK = 16


class Ledger(Unique):
    """What one run has spent; made by `create` or `open`.

    Args:
        chain: where it is written.
        multipliers: noise multiplier of every step that the plan allows.
        block: steps reserved at a time.
        run: id of the run.
        facts: what else the first record says, the place of the anchor included.
        spent: steps that count already.
        begun: whether anything was reserved before.

    Attributes:
        run: id of the run.
        facts: what else the first record says, as plain JSON values.
    """

    no_copy = "The same steps would be taken twice, and each ledger would count them once. Close it and use Ledger.open."

    def __init__(
        self,
        chain: Chain,
        multipliers: Sequence[float],
        block: int,
        *,
        run: str,
        facts: Mapping[str, Any],
        spent: int,
        begun: bool,
    ) -> None:
        self.run, self.facts = run, facts
        self._chain, self._multipliers, self._block, self._spent = chain, multipliers, block, spent
        self._tokens: deque[Token] = deque()
        self._anchor: Anchor | None = None
        if facts.get("anchor") is not None:
            self._anchor = Anchor(Path(facts["anchor"]), run, self.includes, begun=begun)
            self._anchor.move(self.tip)

    @classmethod
    def create(
        cls,
        plan: Mapping[str, Any],
        multipliers: Sequence[float],
        path: Path | None,
        block: int = _BLOCK,
        *,
        facts: Mapping[str, Any] | None = None,
        anchor: Path | None = None,
        prepare: Callable[[], object] | None = None,
    ) -> Ledger:
        """Return the ledger of a new run.

        Args:
            plan: the plan's `to_dict()`, for the first record.
            multipliers: noise multiplier of every step that the plan allows.
            path: of the file, which stays locked; None keeps the ledger in memory, where a crash takes model and record alike.
            block: steps reserved at a time: one synchronised write per block, and at most that many over-counted by a crash.
            facts: what else the first record is to say, as plain JSON values.
            anchor: a file outside the run's directory that follows the ledger (see `Anchor`); the first record keeps its place.
            prepare: what is to be done before the first record, while nobody else can begin a run there.

        Raises:
            LedgerError: the file is a run's already, is locked by another process, or cannot be written.
        """
        chain = Chain(f"{WHAT} in memory") if path is None else Journal(path, WHAT)
        try:
            if isinstance(chain, Journal) and chain.records:
                raise LedgerError(f"{path} is the ledger of a run already; resume that run, or choose another directory")
            if prepare is not None:
                prepare()
            run, place = secrets.token_hex(16), None if anchor is None else str(anchor.absolute())
            known = {"anchor": place, **(facts or {})}
            chain.append({
                "record": "open", "kind": KIND, "format": FORMAT, "run": run, "plan": plan, "facts": known, **_session()
            })  # fmt: skip
            return cls(chain, multipliers, block, run=run, facts=known, spent=0, begun=False)
        except BaseException:
            chain.close()
            raise

    @classmethod
    def open(
        cls, plan: Mapping[str, Any], multipliers: Sequence[float], path: Path, block: int = _BLOCK, *, adopt: bool = False
    ) -> Ledger:
        """Return the ledger of a run that is gone on with.

        Args:
            plan, multipliers, path, block: as for `create`.
            adopt: accept that the ledger was used on another machine, or before this one was started again; whoever says so has
                made sure that there is no other copy that goes on.

        Raises:
            LedgerError: there is none, or it is locked by another process, damaged, of another plan or machine, or behind its
                anchor.
        """
        if not path.exists():
            raise LedgerError(f"{path.parent} has lost its ledger: what was spent is not known, so it cannot be resumed")
        journal = Journal(path, WHAT)
        try:
            history = replay(journal.records, journal.name)
            history.check_plan(plan, multipliers, journal.name)
            here = Machine.here()
            if here != history.machine and not adopt:
                raise LedgerError(
                    f"{journal.name} was last open on {history.machine}, and this is {here}: if no other copy of the run goes "
                    "on, say adopt=True (privet train --resume RUN --adopt)"
                )
            ledger = cls(
                journal, multipliers, block,
                run=history.run, facts=history.facts, spent=history.spent, begun=history.begun,
            )  # fmt: skip
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
        """Steps that count against the budget: everything reserved and not given back."""
        return self._spent

    @property
    def tip(self) -> str:
        """SHA-256 of the last line: what a checkpoint notes to prove that it belongs here."""
        return self._chain.tip

    @property
    def refusal(self) -> str | None:
        """Why nothing can be reserved any more; None while it can."""
        return self._chain.refusal

    @property
    def held(self) -> bool:
        """Whether this process has it open, so that nobody else can go on with the run."""
        return self._chain.held

    @property
    def next_step(self) -> int | None:
        """Number of the step that the next token pays for; None when the plan's steps are used up."""
        upcoming = self._tokens[0].step if self._tokens else self._spent + 1
        return upcoming if upcoming <= len(self._multipliers) else None

    def check_open(self) -> None:
        """Refuse to go on where nothing can be reserved any more.

        Raises:
            LedgerError: the ledger was closed, the disk refused before, or this is another process than the one that opened it.
        """
        if self.refusal is not None:
            raise LedgerError(f"nothing can be reserved in this ledger any more: {self.refusal}")

    def reserve(self) -> Token:
        """Return a token for one step, after its cost is on disk.

        Raises:
            BudgetExhaustedError: the plan's steps are used up.
            LedgerError: the disk refused, the ledger was closed, or this is another process.
        """
        self.check_open()
        if not self._tokens:
            first = self._spent + 1
            reserved = [float(multiplier) for multiplier in self._multipliers[self._spent : self._spent + self._block]]
            if not reserved:
                raise BudgetExhaustedError(f"all {self._spent} steps of the plan are spent; a new plan is a new guarantee")
            self._note({"record": "reserve", "first": first, "count": len(reserved), "multipliers": reserved}, len(reserved))
            self._tokens.extend(Token(first + i, multiplier) for i, multiplier in enumerate(reserved))
        return self._tokens.popleft()

    def give_back(self) -> None:
        """Return what was reserved but never handed out as a token: no noise can have been drawn for it.

        Where nothing can be written any more, it stays counted.

        Raises:
            LedgerError: the disk refused; it stays counted.
        """
        number = len(self._tokens)
        self._tokens.clear()
        if number and self.refusal is None:
            self._note({"record": "return", "first": self._spent - number + 1, "count": number}, -number)

    def close(self) -> None:
        """Give back what was not used and release the lock; nothing can be reserved afterwards."""
        try:
            self.give_back()
        finally:
            self._chain.close(self.refusal or "it was closed")
            if self._anchor is not None:
                self._anchor.close()

    def includes(self, tip: str) -> bool:
        """Return whether a line with this hash stands in the ledger, so that what notes it belongs to this run."""
        return self._chain.includes(tip)

    def _note(self, record: Record, steps: int = 0) -> None:
        """Write a record that counts so many steps more; nothing interrupts the count and leaves the ledger usable."""
        with self._chain.appended(record):
            self._spent += steps
            if self._anchor is not None:
                self._anchor.move(self.tip)


def _session() -> Record:
    """Return who opens a ledger, where and when."""
    return {
        "machine": asdict(Machine.here()),
        "process": os.getpid(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {name: version(name) for name in ("privet", "torch", "numpy", "scipy")},
    }
