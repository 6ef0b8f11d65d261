"""What a run writes down: its ledger, what it draws from a budget, its checkpoints, and how far it came."""

from __future__ import annotations

__all__ = ["RunRecorder"]

import sys
from pathlib import Path

from privet._utils.unique import Unique
from privet.accounting import DEFAULT_ACCOUNTANT
from privet.budget import Budget
from privet.errors import LedgerError
from privet.ledger import Ledger
from privet.plan import Plan
from privet.training import checkpoint, manifest
from privet.training.directory import LEDGER, claim, forget, prepare, write_status
from privet.training.options import Storage
from privet.training.state.training_state import TrainingState


class RunRecorder(Unique):
    """The record of one run; made by `begin` or `resume`, which leave nothing but the first step to be refused.

    Args:
        plan: of the run.
        directory: of the run; None for one whose ledger is in memory.
        ledger: open.
        budget: that the run draws from, or None.
        state: what checkpoints hold.

    Attributes:
        ledger: as given.
        budget: as given.
        completed: steps whose release is in the state.
    """

    no_copy = "The same steps would be taken twice, and the ledger would count them once. Use Training.resume."

    def __init__(self, plan: Plan, directory: Path | None, ledger: Ledger, budget: Budget | None, state: TrainingState) -> None:
        self._total, self._directory, self._state = plan.total_steps, directory, state
        self.ledger, self.budget, self.completed = ledger, budget, 0
        if directory is not None:
            completed = checkpoint.load(directory, state.model, state.parts, ledger)
            if completed is None:
                state.check_fresh()  # also of a run that is resumed, but was killed before its first checkpoint
                checkpoint.save_first(directory, state.model, state.parts, ledger)
            self.completed = completed or 0
        # Last: whatever is refused until here has drawn nothing.
        if budget is not None:
            budget.draw(ledger, plan)

    @classmethod
    def begin(
        cls,
        plan: Plan,
        storage: Storage,
        state: TrainingState,
        loss: object,
    ) -> RunRecorder:
        """Return the record of a new run; if it is refused, its directory has room for another.

        Args:
            plan, state: as for the class.
            storage: where the run persists.
            loss: of the training, whose name the manifest notes.
        """
        directory, budget = storage.folder, storage.budget
        if directory is not None or budget is not None:
            plan.check_readable()
        facts = {
            "accountant": DEFAULT_ACCOUNTANT,
            "budget": None if budget is None else budget.to_dict(),
        }
        promise = plan.to_dict(), plan.multipliers().tolist()
        if directory is None:
            return cls(plan, None, Ledger.create(*promise, None, facts=facts), budget, state)
        files = {manifest.NAME: manifest.to_text(state.described(), loss), **storage.files}
        anchor = None if storage.anchor is None else Path(storage.anchor)
        claim(directory)
        ledger = Ledger.create(
            *promise, directory / LEDGER, facts=facts, anchor=anchor, prepare=lambda: prepare(directory, plan, files)
        )
        try:
            return cls(plan, directory, ledger, budget, state)
        except BaseException:
            try:
                forget(directory, files)
            except PermissionError:  # Windows removes no file that is open, whoever has it open
                ledger.close()
                forget(directory, files)
            ledger.close()
            raise

    @classmethod
    def resume(cls, plan: Plan, directory: Path, state: TrainingState, *, budget: Budget | None, adopt: bool) -> RunRecorder:
        """Return the record of a run that is gone on with, its state restored.

        Args:
            plan, directory, state: as for the class.
            budget: where its file lies now, if it has moved.
            adopt: as for `Ledger.open`.
        """
        manifest.check(directory, state.described())
        ledger = Ledger.open(plan.to_dict(), plan.multipliers().tolist(), directory / LEDGER, adopt=adopt)
        try:
            return cls(plan, directory, ledger, Budget.of_run(ledger, budget), state)
        except BaseException:
            ledger.close()
            raise

    @property
    def steps_left(self) -> int:
        """Steps that may still be taken."""
        upcoming = self.ledger.next_step
        return 0 if upcoming is None else self._total - upcoming + 1

    def save(self) -> None:
        """Write a checkpoint.

        Raises:
            LedgerError: the run was closed, so that another process may have gone on with it, or the disk refused.
        """
        if self._directory is None:
            return
        if not self.ledger.held:
            raise LedgerError(f"the run in {self._directory} was closed; resume it to go on")
        checkpoint.save(self._directory, self.completed, self._state.model, self._state.parts, self.ledger)
        self._write_status()

    def pause(self) -> None:
        """Give back what was reserved and not used, and write a checkpoint, unless the run is not this process's any more."""
        if sys.is_finalizing():  # nothing can be imported any more; as after a crash, the ledger and the last checkpoint go on
            return
        self.ledger.give_back()
        if self.ledger.held:
            self.save()

    def close(self) -> None:
        """Give back what was reserved and not used, and what was drawn from a budget and not spent; release the ledger."""
        if not self.ledger.held:
            return
        try:
            self.ledger.give_back()
            # Under the ledger's lock: were the run resumed in between, what it spends then would be given back too.
            if self.budget is not None and self.ledger.refusal is None:
                self.budget.settle(self.ledger)
            self._write_status()
        finally:
            self.ledger.close()

    def _write_status(self) -> None:
        if self._directory is not None:
            spent = self._total - self.steps_left
            write_status(self._directory, done=self.completed, spent=spent, planned=self._total)
