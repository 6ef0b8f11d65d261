"""Permission to draw noise once."""

from __future__ import annotations

import os

from privet._utils.unique import Unique
from privet.errors import LedgerError


class Token(Unique):
    """One step's permission to draw noise, issued by a ledger after it made the step's cost durable.

    It carries the noise multiplier that was written down, so the noise that is drawn cannot differ from what is accounted.

    Args:
        step: number of the step that was paid for, counted from 1.
        multiplier: noise multiplier σ that was recorded.
    """

    no_copy = "Each copy would pay for a release, and the ledger counts one. Reserve another token from the ledger."
    __slots__ = ("_process", "_spent", "multiplier", "step")

    def __init__(self, step: int, multiplier: float) -> None:
        self.step, self.multiplier = step, multiplier
        self._process, self._spent = os.getpid(), False

    def spend(self) -> float:
        """Use the token up and return its noise multiplier.

        Raises:
            LedgerError: it was used before, or in another process (a fork would release two results for one payment).
        """
        if self._process != os.getpid():
            raise LedgerError(f"the token of step {self.step} belongs to process {self._process}; a fork cannot spend it")
        if self._spent:
            raise LedgerError(f"the token of step {self.step} was spent already; every release needs its own")
        self._spent = True
        return self.multiplier

    @property
    def spent(self) -> bool:
        """Whether noise was drawn against it."""
        return self._spent
