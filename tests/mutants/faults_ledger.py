"""Faults in counting spent steps, and in making the count durable."""

from functools import partial

from mutant import Mutant, among

LEDGER = partial(among, "test_ledger")
JOURNAL = partial(among, "test_journal")
BUDGET = partial(among, "test_budget")
HOSTS = partial(among, "test_hosts")
LIGHTNING = partial(among, "test_lightning")

MUTANTS = [
    # Counted
    Mutant("steps are not written down", "Ledger.reserve",
           '_note({"record": "reserve", "first": first, "count": len(reserved), "multipliers": reserved}, len(reserved))',
           "_spent += len(reserved)", LEDGER("test_cost_is_on_disk_before_a_token_exists")),
    Mutant("a step that was handed out is given back", "Ledger.give_back",
           "len(self._tokens)", "len(self._tokens) + 1", LEDGER("test_closing_gives_back_only_what_was_never_handed_out")),
    Mutant("another boot is the same machine", "Ledger.open", "here != history.machine and",
           "here.host != history.machine.host and", LEDGER("test_another_machine_has_to_be_accepted_and_is_then_remembered")),
    Mutant("nothing waits for the disk", "Journal._write", "synchronise(self._descriptor)", "",
           LEDGER("test_the_file_and_its_place_in_the_folder_are_durable_before_anything_is_reserved")),
    Mutant("the folder is not made durable", "Journal.__init__", "synchronise_folder(path.parent)", "pass",
           LEDGER("test_the_file_and_its_place_in_the_folder_are_durable_before_anything_is_reserved")),
    Mutant("writing continues after an interrupted write", "Chain.appending", '"a write was interrupted; reopen it"', "None",
           LEDGER("test_an_interrupt_in_the_middle_of_a_write_leaves_a_ledger_that_can_be_opened_again")),
    Mutant("two may have it", "locks.lock", "fcntl.LOCK_EX |", "fcntl.LOCK_SH |", LEDGER("test_two_owners_are_refused")),
    Mutant("a fork keeps what it inherited", "_leave_to_the_parent",
           "chain.close(_FORKED)", "pass", LEDGER("test_a_fork_that_outlives_its_parent_does_not_keep_the_lock")),
    Mutant("lines may be missing", "journal._parse", "tips[-1]", "tips[-1] and number == 1",
           JOURNAL("test_lines_that_are_lost_moved_or_repeated_are_refused_though_each_is_whole")),
    Mutant("more is given back than was reserved", "history.replay", "0 < count <= open_ended", "0 < count",
           LEDGER("test_records_that_make_no_sense_are_refused_though_nothing_is_damaged")),
    Mutant("an emptied anchor is as good as a new one", "open_anchor",
           'if begun and not any("tip" in record for record in journal.records):', "if False:",
           LEDGER("test_an_anchor_that_was_cut_off_is_refused_once_a_step_was_reserved[0]")),
    Mutant("a copy that fell behind is believed", "anchor._check",
           'not includes(str(records[-1].get("tip")))', "False", LEDGER("test_a_copy_of_a_run_that_continued_is_refused")),
    Mutant("a damaged checkpoint is read", "checkpoint.read", "damaged = parts.testzip()", "damaged = None",
           among("test_checkpoint", "test_a_checkpoint_in_which_a_bit_has_changed_is_unreadable")),
    Mutant("a ledger that was rolled back is believed", "checkpoint.load",
           'if state is not None and not ledger.includes(state["ledger"]):', "if False:",
           among("test_checkpoint", "test_a_newer_checkpoint_than_the_ledger_is_refused_though_an_older_one_would_do")),
    Mutant("a host's state of a ledger that was rolled back is believed", "RunRecorder.load_state_dict",
           "if not self.ledger.includes(tip) or step > self.ledger.spent:", "if False:",
           HOSTS("test_a_state_of_another_run_or_of_a_ledger_that_was_rolled_back_is_refused")),
    Mutant("a host that restores nothing goes unnoticed", "RunRecorder.check_restored", "self._state.check_fresh()", "pass",
           HOSTS("test_a_host_that_forgets_to_restore_the_state_is_refused_before_a_step_is_spent")),
    Mutant("going back gives steps back", "RunRecorder.load_state_dict", "self.completed, self._restored = step, True",
           "self.completed, self._restored = step, True\nself.ledger._spent = step",
           HOSTS("test_going_back_within_a_process_returns_nothing")),
    Mutant("records go to a file that was replaced", "Journal._write",
           "if not os.path.samestat(os.fstat(self._descriptor), os.stat(self.path)):", "if False:",
           among("test_journal", "test_a_file_that_is_no_longer_there_is_not_written_to")),
    Mutant("another division into users is let through", "manifest.fingerprint", 'getattr(parts.dataset, "division", None)',
           "None", among("test_manifest", "test_a_run_of_users_is_not_resumed_with_others")),
    Mutant("another base goes unnoticed", "manifest.fingerprint", "frozen_digest(parts.model)", "None",
           among("test_frozen_parts", "test_a_model_with_another_base_is_refused_before_anything_is_restored")),
    Mutant("a base that changes is not saved", "ChangedTensors.state_dict", "if frozen_digest(self._module) != self._start:",
           "if False:", among("test_frozen_parts", "test_a_frozen_parameter_that_follows_the_trained_ones_is_saved")),
    # Hosted
    Mutant("a host's lost steps are released again", "PrivateModule.training_step",
           "self.private_training.steps_spent > trainer.global_step", "False",
           LIGHTNING("test_a_fit_resumes_from_an_older_checkpoint_and_what_was_lost_stays_spent")),
    Mutant("a private loss can be logged", "PrivateModule.training_step", "PublicTrainer.of(trainer)", "trainer",
           LIGHTNING("test_a_loss_has_public_numbers_of_the_trainer_and_what_it_logs_reaches_nobody[False]")),
    Mutant("the check of a loss finds another trainer than its steps", "PrivateModule.training_step",
           "self.private_training = self._open(privacy, trainer)",
           "self.trainer, numbers = trainer, self.trainer\n"
           "self.private_training = self._open(privacy, trainer)\n"
           "self.trainer = numbers",
           LIGHTNING("test_a_loss_that_asks_more_of_the_trainer_is_refused_before_a_step[read]")),
    Mutant("a host's own state of the ledger is not loaded", "PrivateModule._open",
           "training.load_state_dict(saved)", "pass", LIGHTNING("test_an_adapted_bound_continues_from_the_checkpoint")),
    Mutant("a host takes more steps than the plan has", "trainer_settings._SETTINGS",
           "value == plan.total_steps", "value >= plan.total_steps",
           LIGHTNING("test_what_would_void_the_promise_is_refused_by_name_before_a_step[another number of steps]")),
    Mutant("a data module's loader takes the place of the plan's draws", "use_own_ticks",
           "isinstance(trainer.fit_loop._data_source.instance, pl.LightningDataModule)", "False",
           LIGHTNING("test_a_data_module_serves_validation_and_leaves_training_to_the_plan[Unused]")),
    Mutant("a fit that trained on nothing ends as if it had trained", "check_stepped", "not stepped", "False",
           LIGHTNING("test_a_fit_without_a_step_does_not_end_silently[WithoutBatches-options0-loaders0]")),
    # Shared
    Mutant("what others drew is forgotten", "Budget.draw", "total = account.with_share(share)",
           "total = replace(account, shares={}).with_share(share)", BUDGET("test_fixed_plans_compose_exactly")),
    Mutant("what fits only alone is returned", "Budget.settle", "spent if spent == 0 or account.returns(share) else share.steps",
           "spent", BUDGET("test_a_plan_that_fits_only_alone_returns_nothing_as_stopping_may_depend_on_results")),
    Mutant("every run chooses an order for all", "Account.order",
           "self.spending(part) or not", "not", BUDGET("test_the_order_is_fixed_by_the_first_run_and_stays")),
    Mutant("parts are not told apart", "Account.spending", "if share.part == part and share.steps)", "if share.steps)",
           BUDGET("test_disjoint_parts_do_not_add_up_and_runs_on_one_part_do")),
    Mutant("plans that depend on results are composed as if they did not", "Account.epsilon", "len(shares) < 2:",
           "len(shares) < 2000:", BUDGET("test_plans_that_may_depend_on_results_cost_more_than_fixed_ones")),
    Mutant("a run draws without the lock", "Budget._locked",
           "with Journal(self.path, _WHAT, wait=True) as journal:",
           "content = read(self.path, _WHAT)\n"
           "with Journal(self.path, _WHAT, wait=True) as journal:\n    journal.records = content.records",
           BUDGET("test_concurrent_processes_never_overdraw")),
]  # fmt: skip
