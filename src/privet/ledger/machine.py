"""Identity of the machine on which a ledger is used: host and boot. A directory used elsewhere may be a copy."""

from __future__ import annotations

__all__ = ["Machine"]

import socket
from dataclasses import dataclass
from pathlib import Path

# Linux generates this id at every boot; other systems have no such file and are identified by the host name alone.
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Machine:
    """A host between two reboots.

    Args:
        host: its name.
        boot: its boot id; empty if unknown.
    """

    host: str
    boot: str

    @staticmethod
    def here() -> Machine:
        """Return the machine that this process runs on."""
        return Machine(socket.gethostname(), _BOOT.read_text(encoding="ascii").strip() if _BOOT.exists() else "")

    def __str__(self) -> str:
        return f"{self.host!r}" + (f" (boot {self.boot[:8]})" if self.boot else "")
