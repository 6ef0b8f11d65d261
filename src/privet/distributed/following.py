"""The ledger as ranks other than 0 see it, and how they learn of a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privet.distributed.world import STEP, World
from privet.ledger import Ledger
from privet.noise import Token


class FollowingLedger(Ledger):
    """What another rank knows of rank 0's ledger: the run, and how many steps are spent. It writes nothing."""

    def __init__(self, world: World, run: str, facts: Mapping[str, Any], spent: int, total: int) -> None:
        self._world, self.run, self.facts, self._spent, self._total = world, run, facts, spent, total
        self._reserved, self._answers = set(), {}
        self._refusal: str | None = None

    @property
    def tip(self) -> str:
        """No hash: only rank 0 has one."""
        return ""

    @property
    def refusal(self) -> str | None:
        """Why no step can be taken any more; None while one can."""
        return self._refusal

    @property
    def held(self) -> bool:
        """Whether this process has the ledger open: rank 0 has."""
        return False

    @property
    def next_step(self) -> int | None:
        """Number of the next step; None when all steps of the plan are spent."""
        return self._spent + 1 if self._spent < self._total else None

    def reserve(self) -> Token:
        """Return the token of the next step, once rank 0 has made it durable."""
        self.check_open()
        step, multiplier = self._world.vote(STEP)
        self._spent = int(step)
        return Token(self._spent, multiplier)

    def give_back(self) -> None:
        """Do nothing: rank 0 returns the steps that were not used."""

    def includes(self, tip: str) -> bool:
        """Return True: rank 0 compares."""
        return True

    def close(self) -> None:
        """Take no more steps in this process."""
        self._refusal = "it was closed"
