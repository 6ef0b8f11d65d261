"""Faults in what is counted, and in what makes it last."""

from functools import partial

from faults_mechanism import among
from mutant import Mutant

LEDGER = partial(among, "ledger/test_ledger")
JOURNAL = partial(among, "ledger/test_journal")
BUDGET = partial(among, "budget/test_budget")

COUNTED = [
    Mutant("steps are not written down", "ledger.py",
           'self._note({"record": "reserve", "first": first, "count": len(reserved), "multipliers": reserved}, len(reserved))',
           "self._spent += len(reserved)",
           LEDGER("test_cost_is_on_disk_before_a_token_exists"), "ledger"),
    Mutant("a step that was handed out is given back", "ledger.py",
           "number = len(self._tokens)\n", "number = len(self._tokens) + 1\n",
           LEDGER("test_closing_gives_back_only_what_was_never_handed_out"), "ledger"),
    Mutant("another boot is the same machine", "ledger.py",
           "if here != history.machine and not adopt:", "if here.host != history.machine.host and not adopt:",
           LEDGER("test_another_machine_has_to_be_accepted_and_is_then_remembered"), "ledger"),
    Mutant("nothing waits for the disk", "journal.py",
           "        synchronise(self._descriptor)\n", "",
           LEDGER("test_the_file_and_its_place_in_the_folder_are_durable_before_anything_is_reserved"), "ledger"),
    Mutant("the folder is not made durable", "journal.py",
           "synchronise_folder(path.parent)", "pass",
           LEDGER("test_the_file_and_its_place_in_the_folder_are_durable_before_anything_is_reserved"), "ledger"),
    Mutant("an interrupted write is gone on with", "journal.py",
           'self._refusal = "a write was interrupted; reopen it"', "self._refusal = None",
           LEDGER("test_an_interrupt_in_the_middle_of_a_write_leaves_a_ledger_that_can_be_opened_again"), "ledger"),
    Mutant("two may have it", "locks.py",
           "fcntl.LOCK_EX |", "fcntl.LOCK_SH |",
           LEDGER("test_two_owners_are_refused"), "_utils"),
    Mutant("a fork keeps what it inherited", "journal.py",
           "chain.close(_FORKED)", "pass",
           LEDGER("test_a_fork_that_outlives_its_parent_does_not_keep_the_lock"), "ledger"),
    Mutant("lines may be missing", "journal.py",
           'if record.get("previous") != tips[-1]:', 'if record.get("previous") != tips[-1] and number == 1:',
           JOURNAL("test_lines_that_are_lost_moved_or_repeated_are_refused_though_each_is_whole"), "ledger"),
    Mutant("more is given back than was reserved", "history.py",
           "0 < count <= open_ended", "0 < count",
           LEDGER("test_records_that_make_no_sense_are_refused_though_nothing_is_damaged"), "ledger"),
    Mutant("a copy that fell behind is believed", "anchor.py",
           'not includes(str(records[-1].get("tip")))', "False",
           LEDGER("test_a_copy_of_a_run_that_continued_is_refused"), "ledger"),
    Mutant("a ledger that was rolled back is believed", "checkpoint.py",
           'if not ledger.includes(state["ledger"]):', "if False:",
           among("training/test_checkpoint", "test_a_newer_checkpoint_than_the_ledger_is_refused_though_an_older_one_would_do"),
           "training"),
]  # fmt: skip

SHARED = [
    Mutant("what others drew is forgotten", "budget.py",
           "total = account.with_share(share)", "total = replace(account, shares={}).with_share(share)",
           BUDGET("test_fixed_plans_compose_exactly"), "budget"),
    Mutant("what fits only alone is returned", "budget.py",
           "steps = ledger.spent if ledger.spent == 0 or account.returns(share) else share.steps", "steps = ledger.spent",
           BUDGET("test_a_plan_that_fits_only_alone_returns_nothing_as_stopping_may_depend_on_results"), "budget"),
    Mutant("every run chooses an order for all", "account.py",
           "if self.spending(part) or not is_filterable(plan.events()):", "if not is_filterable(plan.events()):",
           BUDGET("test_the_order_is_fixed_by_the_first_run_and_stays"), "budget"),
    Mutant("parts are not told apart", "account.py",
           "if share.part == part and share.steps)", "if share.steps)",
           BUDGET("test_disjoint_parts_do_not_add_up_and_runs_on_one_part_do"), "budget"),
    Mutant("plans that depend on results are composed as if they did not", "account.py",
           "if len(shares) < 2:", "if len(shares) < 2000:",
           BUDGET("test_plans_that_may_depend_on_results_cost_more_than_fixed_ones"), "budget"),
    Mutant("a run draws without the lock", "budget.py",
           "with Journal(self.path, _WHAT, wait=True) as journal:",
           "content = read(self.path, _WHAT)\n        with Journal(self.path, _WHAT, wait=True) as journal:\n"
           "            journal.records = content.records",
           BUDGET("test_concurrent_processes_never_overdraw"), "budget"),
]  # fmt: skip

MUTANTS = [*COUNTED, *SHARED]
