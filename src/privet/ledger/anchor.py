"""An anchor: a file outside the run's directory that follows the ledger, so that a copy which goes on by itself is found out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from privet._utils.unique import Unique
from privet.errors import LedgerError
from privet.ledger.journal import Journal, Record, read

FORMAT = 1
_WHAT = "the anchor"


class Anchor(Unique):
    """The latest tip of one run's ledger, in a journal of its own, locked while the run has its ledger open.

    Args:
        path: of the file, best on another disk or where a restored backup of the run would not restore it too.
        run: whose ledger it follows.
        includes: hash → whether that ledger has a line with it.
        begun: whether the run has reserved anything, so that there must be an anchor.

    Guarantee:
        It moves after the ledger and before any noise is drawn. So it is never ahead of the ledger that it belongs to; a ledger
        that lacks its tip was rolled back, or is a copy of one that went on.

    Raises:
        LedgerError: it is missing, in use, damaged, of another run, or ahead of the ledger.
    """

    no_copy = "Two writers would each move it alone. Open the ledger that it follows again: Ledger.open."

    def __init__(self, path: Path, run: str, includes: Callable[[str], bool], *, begun: bool) -> None:
        if begun and not path.exists():
            raise LedgerError(f"the anchor {path} is gone: whether another copy of the run went on is not known")
        self._journal = Journal(path, _WHAT)
        try:
            if not self._journal.records:
                self._journal.append(_opening(run))
            else:
                _check(path, self._journal.records, run, includes)
        except BaseException:
            self._journal.close()
            raise

    def move(self, tip: str) -> None:
        """Note the ledger's new tip, durably."""
        self._journal.append({"record": "tip", "tip": tip})

    def close(self) -> None:
        """Release the lock."""
        self._journal.close()


def verify_anchor(path: Path, run: str, includes: Callable[[str], bool]) -> None:
    """Refuse an anchor that does not belong to the run, or is ahead of its ledger, without taking its lock.

    Raises:
        LedgerError: saying which.
    """
    _check(path, read(path, _WHAT).records, run, includes)


def _opening(run: str) -> Record:
    return {"record": "open", "kind": "anchor", "format": FORMAT, "run": run}


def _check(path: Path, records: Sequence[Record], run: str, includes: Callable[[str], bool]) -> None:
    first = dict(records[0]) if records else {}
    first.pop("previous", None)
    if first != _opening(run):
        raise LedgerError(f"the anchor {path} belongs to another run, or is of another format; give every run a file of its own")
    if len(records) > 1 and not includes(str(records[-1].get("tip"))):
        raise LedgerError(
            f"the anchor {path} is ahead of the ledger: this directory was rolled back, or is a copy of one that went on; "
            "go on with that one"
        )
