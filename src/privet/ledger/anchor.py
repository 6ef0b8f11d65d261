"""Anchor: a file outside the run's directory that follows the ledger, to detect rollbacks and copies of a run.

It holds the latest tip of one run's ledger, in a journal of its own, which is locked while the run's ledger is open. It moves
after the ledger and before any noise is drawn, so it is never ahead of its ledger. A ledger without the anchor's tip was rolled
back, or is a copy of a ledger that continued elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from privet.errors import LedgerError
from privet.ledger.journal import Journal, Record, read

FORMAT = 1
_WHAT = "the anchor"


def open_anchor(path: Path, run: str, includes: Callable[[str], bool], *, begun: bool) -> Journal:
    """Open the anchor of a run, preferably on another disk than the run, and create it for a new one.

    `includes` tells whether the run's ledger has a line with a hash. If the run has `begun` to reserve steps, it must have a tip.

    Raises:
        LedgerError: it is missing, emptied, in use, damaged, of another run, or ahead of the ledger.
    """
    if begun and not path.exists():
        raise LedgerError(f"the anchor {path} is missing, so another copy of the run may have continued; restore the file")
    journal = Journal(path, _WHAT)
    try:
        if begun and not any("tip" in record for record in journal.records):  # opening the ledger wrote the first
            raise LedgerError(
                f"the anchor {path} was emptied or cut off, so another copy of the run may have continued; restore the file"
            )
        if journal.records:
            _check(path, journal.records, run, includes)
        else:
            journal.append(_opening_record(run))
    except BaseException:
        journal.close()
        raise
    return journal


def move_anchor(anchor: Journal, tip: str) -> None:
    """Record the ledger's new tip durably."""
    anchor.append({"record": "tip", "tip": tip})


def verify_anchor(path: Path, run: str, includes: Callable[[str], bool]) -> None:
    """Refuse an anchor that does not belong to the run, or is ahead of its ledger, without taking its lock."""
    _check(path, read(path, _WHAT).records, run, includes)


def _opening_record(run: str) -> Record:
    return {"record": "open", "kind": "anchor", "format": FORMAT, "run": run}


def _check(path: Path, records: Sequence[Record], run: str, includes: Callable[[str], bool]) -> None:
    first = dict(records[0]) if records else {}
    first.pop("previous", None)
    if first != _opening_record(run):
        raise LedgerError(f"the anchor {path} belongs to another run, or has another format; use a separate file for every run")
    if len(records) > 1 and not includes(str(records[-1].get("tip"))):
        raise LedgerError(
            f"the anchor {path} is ahead of the ledger: this directory was rolled back, or is a copy of one that continued; "
            "resume the latest one"
        )
