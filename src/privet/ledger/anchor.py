"""An anchor: a file outside the run's directory that follows the ledger, so that a copy which goes on by itself is found out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from privet.errors import LedgerError
from privet.ledger.journal import Journal, read

FORMAT = 1
_WHAT = "the anchor"


class Anchor:
    """The latest tip of one run's ledger, in a journal of its own, locked while the run has its ledger open.

    Args:
        path: of the file, best on another disk or where a restored backup of the run would not restore it too.
        run: whose ledger it follows.
        begun: whether the run has reserved anything, so that there must be an anchor.

    Guarantee:
        It moves after the ledger and before any noise is drawn. So it is never ahead of the ledger that it belongs to; a ledger
        that lacks its tip was rolled back, or is a copy of one that went on.

    Raises:
        LedgerError: it is missing, in use, damaged, or of another run.
    """

    def __init__(self, path: Path, run: str, *, begun: bool) -> None:
        if begun and not path.exists():
            raise LedgerError(f"the anchor {path} is gone: whether another copy of the run went on is not known")
        self._journal = Journal(path, _WHAT)
        if not self._journal.records:
            self._journal.append(_opening(run))
        elif not _follows(self._journal.records[0], run):
            self._journal.close()
            raise _foreign(path)

    def check(self, includes: Callable[[str], bool]) -> None:
        """Refuse a ledger without the line that was anchored last.

        Args:
            includes: hash → whether the ledger has a line with it.
        """
        _check(self._journal.path, self._journal.records[1:], includes)

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
    records = read(path, _WHAT).records
    if not records or not _follows(records[0], run):
        raise _foreign(path)
    _check(path, records[1:], includes)


def _opening(run: str) -> dict[str, object]:
    return {"record": "open", "kind": "anchor", "format": FORMAT, "run": run}


def _follows(record: dict[str, object], run: str) -> bool:
    return {**record, "previous": None} == {**_opening(run), "previous": None}


def _foreign(path: Path) -> LedgerError:
    return LedgerError(f"the anchor {path} belongs to another run, or is of another format; give every run a file of its own")


def _check(path: Path, tips: tuple[dict[str, object], ...], includes: Callable[[str], bool]) -> None:
    if tips and not includes(str(tips[-1].get("tip"))):
        raise LedgerError(
            f"the anchor {path} is ahead of the ledger: this directory was rolled back, or is a copy of one that went on; "
            "go on with that one"
        )
