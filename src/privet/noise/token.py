"""Tokens: permissions to draw noise once."""

from __future__ import annotations

import os

from privet._utils.unique import Unique
from privet.errors import LedgerError


class Token(Unique):
    """Permission to draw the noise of one step, issued by a ledger after it made the step's cost durable.

    It carries the recorded noise multiplier, so the drawn noise cannot differ from the accounted noise.
    """

    no_copy = "Each copy would pay for a release, but the ledger counts only one. Reserve another token from the ledger."
    __slots__ = ("_process", "_spent", "multiplier", "step")

    def __init__(self, step: int, multiplier: float) -> None:
        self.step, self.multiplier = step, multiplier
        self._process, self._spent = os.getpid(), False

    def spend(self) -> float:
        """Spend the token and return its noise multiplier; once only, and not in a fork, which would release twice for it."""
        if self._process != os.getpid():
            raise LedgerError(f"the token of step {self.step} belongs to process {self._process}; a fork cannot spend it")
        if self._spent:
            raise LedgerError(f"the token of step {self.step} is already spent; every release needs its own")
        self._spent = True
        return self.multiplier
