"""Journals: append-only files with durable, chained records, on which ledgers, budgets and anchors are built.

Each line is a CRC-32, a space and a JSON object that contains the SHA-256 of the previous line. An incomplete last line was never
acknowledged and is dropped; a last line that only lacks its newline counts. Any other damage is refused.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import weakref
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privet._utils.documents import from_json
from privet._utils.files import synchronise, synchronise_folder
from privet._utils.locks import lock
from privet._utils.unique import Unique
from privet.errors import LedgerError

Record = dict[str, Any]

_START = "0" * 64
_FORKED = "it was opened by another process; a fork must not spend from the same budget"
# Windows would turn each newline into two bytes.
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)


@dataclass(frozen=True)
class Content:
    """The content of a journal file: the records and SHA-256 tips of its complete lines, and their total length in bytes.

    After them, part of another line may be `torn`: a write that was interrupted, or is in progress. The last complete line may
    lack its newline (`unended`).
    """

    records: tuple[Record, ...]
    tips: tuple[str, ...]
    length: int
    torn: bool
    unended: bool


class Chain(Unique):
    """A chain of records in memory, for runs without a directory, whose record is lost together with the run."""

    no_copy = "Two writers would count their spending independently. Reopen the file, or start a separate run."

    def __init__(self, name: str) -> None:
        self.name = name
        self._tip, self._known = _START, set[str]()
        self._refusal: str | None = None
        self._closed, self._process = False, os.getpid()
        _OPEN.add(self)

    @property
    def tip(self) -> str:
        """SHA-256 of the last line."""
        return self._tip

    @property
    def held(self) -> bool:
        """Whether this process opened it and has not closed it."""
        return not self._closed and self._process == os.getpid()

    @property
    def refusal(self) -> str | None:
        """Why no record can be appended any more; None while it can."""
        return _FORKED if self._process != os.getpid() else self._refusal

    def includes(self, tip: str) -> bool:
        """Return whether there is a line with this hash."""
        return tip in self._known

    @contextlib.contextmanager
    def appending(self, record: Record) -> Iterator[None]:
        """Make a record durable, then run the body, which updates the caller's state.

        Any interruption (a signal, a write error) leaves a journal that takes no more records, because the last record may or may
        not be on disk. Reopening the file resolves this.
        """
        if self.refusal is not None:
            raise LedgerError(f"{self.name} cannot be written any more: {self.refusal}")
        line = _line({**record, "previous": self._tip})
        self._refusal = "a write was interrupted; reopen it"
        try:
            self._write(line)
        except OSError as error:
            # After a failed fsync the state of the file is unknown, so the descriptor is never used again.
            self.close(f"a record could not be made durable ({error.strerror})")
            raise LedgerError(f"{self.name} could not be made durable ({error.strerror}); no noise was drawn for it") from None
        self._tip = _hash(line)
        self._known.add(self._tip)
        yield
        self._refusal = None

    def append(self, record: Record) -> None:
        """Make a record durable; errors as for `appending`."""
        with self.appending(record):
            pass

    def close(self, why: str = "it was closed") -> None:
        """Take no more records."""
        self._closed, self._refusal = True, why

    def _write(self, line: bytes) -> None:
        """Make a line durable; chains in memory do nothing."""


class Journal(Chain):
    """A chain of records in a file that is locked while it is open, and created for its owner alone if it does not exist."""

    def __init__(self, path: Path, what: str, *, wait: bool = False) -> None:
        self._descriptor: int | None = None
        self._unlock: Callable[[], None] | None = None
        super().__init__(f"{what} {path}")
        self.path = path
        try:
            self._descriptor = os.open(path, _FLAGS, 0o600)
        except OSError as error:
            raise LedgerError(f"cannot open {self.name} for writing: {error.strerror}") from None
        # One that is dropped without being closed, as in a notebook, would stay locked until the process ends.
        self._release = weakref.finalize(self, os.close, self._descriptor)
        self._release.atexit = False
        try:
            self._lock(wait)
            with os.fdopen(os.dup(self._descriptor), "rb") as file:
                content = _parse(file.read(), self.name)
            if content.torn:
                os.ftruncate(self._descriptor, content.length)
            if content.unended:
                self._write(b"\n")
            if not content.records:
                synchronise_folder(path.parent)
        except OSError as error:
            self.close()
            raise LedgerError(f"{self.name} cannot be kept on this file system ({error.strerror}); use a local disk") from None
        except BaseException:
            self.close()
            raise
        self.records = content.records
        self._known.update(content.tips)
        self._tip = content.tips[-1] if content.tips else _START

    def close(self, why: str = "it was closed") -> None:
        """Release the lock and take no more records."""
        super().close(why)
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                self._release()
        self._descriptor = None
        # A fork closes what it inherited, but the lock is its parent's.
        if self._unlock is not None and self._process == os.getpid():
            self._unlock()
        self._unlock = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lock(self, wait: bool) -> None:
        assert self._descriptor is not None
        try:
            self._unlock = lock(self._descriptor, self.path, wait=wait)
        except BlockingIOError:
            raise LedgerError(
                f"{self.name} is in use by another process, or by an open Training in this one; wait for it, stop it, or close it"
            ) from None

    def _write(self, line: bytes) -> None:
        assert self._descriptor is not None
        # Synchronisation and editors replace a file by another of the same name: what is written to the old one is lost.
        if not os.path.samestat(os.fstat(self._descriptor), os.stat(self.path)):
            raise OSError(errno.ENOENT, "the file was replaced by another one")
        if os.write(self._descriptor, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        synchronise(self._descriptor)


def read(path: Path, what: str) -> Content:
    """Return the content of a journal file, without taking its lock; errors as for `Journal`."""
    try:
        return _parse(path.read_bytes(), f"{what} {path}")
    except OSError as error:
        raise LedgerError(f"cannot read {what} {path}: {error.strerror}") from None


def _parse(content: bytes, name: str) -> Content:
    """Parse a journal's records, checking every line and the chain."""
    *lines, rest = content.split(b"\n")
    # A last line that only lacks its newline may have been acknowledged, so it counts; if it was not, counting it does no harm.
    unended = _record(rest) is not None
    if unended:
        lines, rest = [*lines, rest], b""
    elif _record(rest[:-1]) is not None:
        raise LedgerError(f"the end of the last line of {name} is damaged; the spending is unknown, so it cannot be used")
    records, tips = [], [_START]
    for number, line in enumerate(lines, start=1):
        record = _record(line)
        if record is None:
            raise LedgerError(f"line {number} of {name} is damaged; the spending is unknown, so it cannot be used")
        if record.get("previous") != tips[-1]:
            raise LedgerError(f"line {number} of {name} does not follow line {number - 1}: lines were lost or changed")
        records.append(record)
        tips.append(_hash(line + b"\n"))
    return Content(tuple(records), tuple(tips[1:]), len(content) - len(rest), bool(rest), unended)


def _record(line: bytes) -> Record | None:
    """Return the record of a line without its newline; None if it is damaged."""
    checksum, _, body = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(body):
        return None
    try:
        record = from_json(body.decode())
    except ValueError:  # includes DocumentError
        return None
    return record if isinstance(record, dict) else None


def _line(record: Record) -> bytes:
    body = json.dumps(record, sort_keys=True).encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _leave_to_the_parent() -> None:
    """In a fork, close what the parent has open: its lock must end with the parent, and only the parent may write."""
    for chain in list(_OPEN):
        chain.close(_FORKED)


_OPEN: weakref.WeakSet[Chain] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):  # there are no forks elsewhere
    os.register_at_fork(after_in_child=_leave_to_the_parent)
