"""Where a ledger is used: the host, and since when it runs. A directory that turns up elsewhere may be a copy."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

# Linux draws it anew whenever it starts; other systems have no such file, and only the host's name to tell.
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Machine:
    """A host between two of its starts.

    Args:
        host: its name.
        boot: what was drawn when it started; empty where that is not known.
    """

    host: str
    boot: str

    @staticmethod
    def here() -> Machine:
        """Return the one that this process runs on."""
        return Machine(socket.gethostname(), _BOOT.read_text(encoding="ascii").strip() if _BOOT.exists() else "")

    def __str__(self) -> str:
        return f"{self.host!r}" + (f" (started as {self.boot[:8]})" if self.boot else "")
