"""Replay of a ledger's records: the run, its plan, the number of spent steps, and queries with their answers."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privet._utils.documents import replace_former_values
from privet.errors import LedgerError
from privet.ledger.journal import Record, read

KIND, FORMAT = "ledger", 2
WHAT = "the ledger"
_NONE: Mapping[str, float] = {}
# Linux generates this id at every boot; other systems have no such file and are identified by the host name alone.
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Machine:
    """A host between two reboots (empty boot id if unknown): a directory that is used on another one may be a copy."""

    host: str
    boot: str

    @staticmethod
    def here() -> Machine:
        """Return the machine that this process runs on."""
        return Machine(socket.gethostname(), _BOOT.read_text(encoding="ascii").strip() if _BOOT.exists() else "")

    def __str__(self) -> str:
        return f"{self.host!r}" + (f" (boot {self.boot[:8]})" if self.boot else "")


@dataclass(frozen=True)
class History:
    """The state of a ledger after replaying its records.

    Args:
        facts: further fields of the first record.
        machine: machine on which it was last opened.
        spent: number of spent steps: all that were reserved and not returned.
        multipliers: noise multiplier of each spent step.
        sessions: number of times it was opened.
        begun: whether anything was ever reserved, even if it was returned.
        queries: name → noise multiplier of each reserved query: a release beside the steps, at most one of each name.
        answers: name → what a reserved query released; a crash in between leaves a query that counts and has no answer.
    """

    run: str
    plan: Mapping[str, Any]
    facts: Mapping[str, Any]
    machine: Machine
    spent: int
    multipliers: tuple[float, ...]
    sessions: int
    begun: bool
    queries: Mapping[str, float] = field(default_factory=dict)
    answers: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def check_plan(
        self, plan: Mapping[str, Any], multipliers: Sequence[float], name: str, queries: Mapping[str, float] = _NONE
    ) -> None:
        """Refuse a plan other than the recorded one, and reserved steps or queries that are not the plan's."""
        for key in sorted({*self.plan, *plan}):
            if self.plan.get(key) != plan.get(key):
                raise LedgerError(f"{name} was opened for another plan: {key} was {self.plan.get(key)!r}, now {plan.get(key)!r}")
        if self.multipliers != tuple(multipliers[: self.spent]):
            raise LedgerError(f"{name} counts {self.spent} steps that are not the first of the plan's {len(multipliers)}")
        for query, multiplier in self.queries.items():
            if queries.get(query) != multiplier:
                raise LedgerError(f"{name} counts a query, {query!r}, that is not the plan's")


def replay(records: Sequence[Record], name: str) -> History:
    """Replay the records of a ledger; refuse those that are of another format, or contradict each other."""
    if not records:
        raise LedgerError(f"{name} is empty: the run never began; start a new run")
    opening = records[0]
    if (opening.get("record"), opening.get("kind"), opening.get("format")) != ("open", KIND, FORMAT):
        raise LedgerError(f"{name} does not start with the opening record of a {KIND} of format {FORMAT}")
    machine, sessions, begun = opening.get("machine"), 1, False
    multipliers: list[float] = []
    queries: dict[str, float] = {}
    answers: dict[str, tuple[float, ...]] = {}
    open_ended = 0  # steps of the last reservation, as long as they may still be returned
    for number, record in enumerate(records[1:], start=2):
        match record:
            case {"record": "reserve", "first": first, "count": int(count), "multipliers": [*new]} if (
                first == len(multipliers) + 1 and count == len(new) > 0
            ):
                multipliers += new
                begun, open_ended = True, count
            case {"record": "return", "first": first, "count": int(count)} if (
                first == len(multipliers) - count + 1 and 0 < count <= open_ended
            ):
                del multipliers[-count:]
                open_ended = 0
            case {"record": "query", "query": str(query), "multiplier": float(multiplier)} if query not in queries:
                queries[query], begun, open_ended = multiplier, True, 0
            case {"record": "answer", "query": str(query), "values": [*values]} if (
                query in queries and query not in answers and all(isinstance(value, float) for value in values)
            ):
                answers[query] = tuple(values)
            case {"record": "resume", "machine": dict() as machine}:
                sessions, open_ended = sessions + 1, 0
            case _:
                raise LedgerError(f"line {number} of {name} contradicts the lines before it, so the ledger cannot be used")
    match {**opening, "machine": machine}:
        case {
            "run": str(run), "plan": dict() as plan, "facts": {"anchor": str() | None} as facts,
            "machine": {"host": str(host), "boot": str(boot)},
        }:  # fmt: skip
            here, plan = Machine(host, boot), replace_former_values(plan)
            return History(run, plan, facts, here, len(multipliers), tuple(multipliers), sessions, begun, queries, answers)
    raise LedgerError(f"the opening record of {name} lacks its run, its plan or its place, or no machine is recorded")


def read_history(path: Path) -> tuple[History, tuple[str, ...], bool]:
    """Return a ledger's history, the hashes of its lines, and whether its last line is incomplete, without taking its lock."""
    content = read(path, WHAT)
    return replay(content.records, f"{WHAT} {path}"), content.tips, content.torn
