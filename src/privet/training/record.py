"""The record of a run: its ledger, its share of a budget, its checkpoints and its status."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from privet._utils.unique import Unique
from privet.accounting.guarantee.statement import Guarantee
from privet.accounting.queries import DEFAULT_ACCOUNTANT
from privet.budget import Budget
from privet.errors import InvalidArgumentError, LedgerError, PrivetError
from privet.ledger import Ledger
from privet.ledger.ledger import BLOCK
from privet.plan import Plan
from privet.training import checkpoint, manifest
from privet.training.directory import LEDGER, Storage, claim, forget, prepare, write_status
from privet.training.manifest import Parts
from privet.training.state import TrainingState

_FORMAT = 1


class RunRecorder(Unique):
    """The record of one run; use `begin` or `resume`, after which the first step can be taken.

    Attributes:
        ledger, budget: ledger of the run, and the budget that pays for it, or None.
        completed: number of steps whose release is in the state.
        saved: number of checkpoints that this session has written.
        saves: whether rank 0 writes checkpoints.
    """

    no_copy = "The same steps would be taken twice, and the ledger would count them once. Use Training.resume."

    def __init__(
        self, plan: Plan, directory: Path | None, ledger: Ledger, budget: Budget | None, state: TrainingState, *,
        restore: bool = True,
    ) -> None:  # fmt: skip
        self._plan, self._total, self._directory, self._state = plan, plan.total_steps, directory, state
        self.ledger, self.budget, self.completed, self.saved = ledger, budget, 0, 0
        self._restored, self.saves = restore, directory is not None
        if directory is not None:
            completed = checkpoint.load(directory, state.parts if restore else None, ledger, state.device)
            if completed is None and restore:
                state.check_fresh()  # also for a resumed run that was killed before its first checkpoint
                checkpoint.save_first(directory, state.parts, ledger)
            self.completed = completed or 0
        self._saved_after = self.completed
        # Last, so that a run that was refused above has drawn nothing.
        if budget is not None:
            budget.draw(ledger, plan)

    @classmethod
    def begin(cls, plan: Plan, storage: Storage, state: TrainingState, parts: Parts, *, block: int = BLOCK) -> RunRecorder:
        """Return the record of a new run; if it is refused, another run can use its directory.

        A crash loses at most `block` steps, which the ledger reserves at a time.
        """
        directory, budget = storage.folder, storage.budget
        if directory is not None or budget is not None:
            plan.check_readable()
        facts = {"accountant": DEFAULT_ACCOUNTANT, "budget": budget and budget.to_dict(), "purpose": storage.purpose}
        promise = plan.to_dict(), plan.multipliers().tolist()
        if directory is None:
            return cls(plan, None, Ledger.create(*promise, None, facts=facts, queries=plan.queries, block=block), budget, state)
        public, private = manifest.to_files(parts)
        files, private = {**public, **storage.files}, {**private, **storage.private}
        anchor = None if storage.anchor is None else Path(storage.anchor)
        claim(directory)
        ledger = Ledger.create(
            *promise, directory / LEDGER, facts=facts, anchor=anchor, prepare=lambda: prepare(directory, plan, files, private),
            queries=plan.queries, block=block,
        )  # fmt: skip
        try:
            return cls(plan, directory, ledger, budget, state)
        except BaseException:
            try:
                forget(directory, (*files, *private))
            except PermissionError:  # Windows does not remove open files
                ledger.close()
                forget(directory, (*files, *private))
            ledger.close()
            raise

    @classmethod
    def resume(
        cls, plan: Plan, storage: Storage, state: TrainingState, parts: Parts, *, adopt: bool, block: int = BLOCK
    ) -> RunRecorder:
        """Return the record of a resumed run, whose parts are compared with the manifest first."""
        directory, restore = storage.check_resumable(), storage.restore
        manifest.check(directory, parts, options=restore)
        ledger = Ledger.open(
            plan.to_dict(), plan.multipliers().tolist(), directory / LEDGER, adopt=adopt, queries=plan.queries, block=block
        )
        try:
            if storage.purpose not in ("", ledger.facts.get("purpose")):
                raise InvalidArgumentError("purpose", storage.purpose, "that of the run, or left out", "The ledger has it.")
            return cls(plan, directory, ledger, Budget.of_run(ledger, storage.budget), state, restore=restore)
        except BaseException:
            ledger.close()
            raise

    @property
    def steps_left(self) -> int:
        """Number of steps that may still be taken."""
        upcoming = self.ledger.next_step
        return 0 if upcoming is None else self._total - upcoming + 1

    def state_guarantee(self) -> Guarantee:
        """Return the plan's statement for the steps that count, with the purpose and the total of a shared budget."""
        found = self._plan.guarantee(steps=self._total - self.steps_left)
        remarks = () if self.budget is None else (self.budget.remark(self.ledger.run),)
        return replace(found, notes=(*found.notes, *remarks), purpose=self.ledger.facts.get("purpose", ""))

    def follow(self, completed: int, *, saves: bool) -> None:
        """Start at the step that rank 0 has completed. Other ranks follow its record and write no files."""
        self.completed, self._saved_after, self.saves = completed, completed, saves

    def save(self) -> None:
        """Write a checkpoint; refuse if the run was closed, so that another process may have resumed it."""
        if not self.saves:
            return
        if self._directory is not None and not self.ledger.held:
            raise LedgerError(f"the run in {self._directory} was closed; resume it to continue")
        if not self._state.collect(self.completed):
            return
        self._saved_after = self.completed
        if self._directory is None:  # rank 0 writes
            return
        checkpoint.save(self._directory, self.completed, self._state.parts, self.ledger)
        self._state.forget()
        self.saved += 1
        self.write_status()

    def save_if_due(self, every: int) -> None:
        """Write a checkpoint after each `every` steps, unless there is one of these steps already."""
        if self.completed % every == 0 and self.completed != self._saved_after:
            self.save()

    def check_restored(self) -> None:
        """Refuse the first step of a run whose state a host should have restored: its parts have taken steps."""
        if not self._restored:
            try:
                self._state.check_fresh()
            except InvalidArgumentError as error:
                fix = (
                    "The run was opened with Storage(restore=False): call Training.load_state_dict with the state of the same "
                    "checkpoint, or start from new parts."
                )
                raise InvalidArgumentError(error.name, error.value, error.allowed, fix) from None
            self._restored = True

    def state_dict(self) -> dict[str, Any]:
        """Return what a host must save beside model, optimizer and scheduler, as plain values and copies of tensors."""
        own = self._state.state_dict()
        return {"format": _FORMAT, "run": self.ledger.run, "ledger": self.ledger.tip, "step": self.completed, "state": own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned, of this run and within its ledger; steps that were spent since then stay spent."""
        self.ledger.check_open()
        match state:
            case {"format": 1, "run": str(run), "ledger": str(tip), "step": int(step), "state": Mapping() as own} if step >= 0:
                pass
            case _:
                raise InvalidArgumentError("state", type(state).__name__, "what Training.state_dict() returned")
        if run != self.ledger.run:
            raise LedgerError(
                f"the state is of run {run}, and this is run {self.ledger.run}. Open the run that the state was saved in: "
                "Training.resume(Storage(directory, restore=False), ...)"
            )
        if not self.ledger.includes(tip) or step > self.ledger.spent:
            raise LedgerError("the state is newer than the ledger, which was rolled back: spent steps would not be counted")
        try:
            self._state.load_state_dict(own)
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, IndexError, PrivetError) as error:
            raise LedgerError(f"the state does not fit the parts of this training ({error})") from None
        self.completed, self._restored = step, True

    def pause(self) -> None:
        """Return reserved steps that were not used, and write a checkpoint, if this process still holds the run."""
        if sys.is_finalizing():  # nothing can be imported now; the run resumes as after a crash
            return
        self.ledger.give_back()
        if self.ledger.held or (self._directory is None and self.ledger.refusal is None):
            self.save()

    def close(self) -> None:
        """Return unused steps to the ledger and the unspent share to the budget, and release the ledger."""
        if not self.ledger.held:
            return
        try:
            self.ledger.give_back()
            # While the ledger is locked: a process that resumed the run in between could spend what is returned here.
            if self.budget is not None and self.ledger.refusal is None:
                self.budget.settle(self.ledger)
            self.write_status()
        finally:
            self.ledger.close()

    def write_status(self) -> None:
        """Write the progress of the run into its directory."""
        if self._directory is not None:
            spent = self._total - self.steps_left
            write_status(self._directory, done=self.completed, spent=spent, planned=self._total)
