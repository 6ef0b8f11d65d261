"""Faults in reading, checks and the start of a training: joint reading, repeated entries, earlier optimizer state."""

from functools import partial

from mutant import Mutant, among

SUMS = partial(among, "test_clipped_sums")
PREFLIGHT = partial(among, "test_preflight")
CHANGED = "test_a_model_that_was_changed_is_checked_again"
ITERATION = partial(among, "test_iteration")
OLD = among("test_optimizer_checks", "test_optimizers_with_a_past_are_refused")
SCHEDULERS = among("test_optimizer_checks", "test_schedulers_that_do_not_fit_are_refused")
MASTERS = partial(among, "test_master_weights")
READING = partial(among, "test_rows")
BATCHES = partial(among, "test_batches")
GENERATORS = partial(among, "test_randomness")
SEEDED = GENERATORS("test_a_number_is_all_that_the_generators_hold")
REPEATING = among("test_entries", "test_an_example_in_two_entries_is_refused")
DISTINCT = among("test_entries", "test_different_examples_are_accepted")

TOKENS = partial(among, "test_collate")
PADDED = "test_tokens_are_padded_to_public_lengths_with_a_mask"

COLLATED = [
    Mutant("whole numbers among floats stay whole", "collate._to_floats",
           "float(item) if path in floats else item", "item", TOKENS("test_whole_numbers_in_a_field_of_floats_are_floats")),
    Mutant("the fields with floats are forgotten", "ExampleReader.read_first",
           "self.floats = frozenset().union(*found)", "pass", PREFLIGHT("test_whole_numbers_among_floats_contribute_as_floats")),
    Mutant("padding counts as a label", "Tokens.__call__", '"labels": self.ignored', '"labels": 0', TOKENS(PADDED)),
    Mutant("padding is attended to", "Tokens.__call__",
           'fields.setdefault("attention_mask", torch.ones_like(fields["input_ids"]))', "pass", TOKENS(PADDED)),
]  # fmt: skip

COMBINED = partial(among, "test_combined")

OPTIMIZERS = [
    Mutant("schedulers lose what is stepped", "Combined.load_state_dict",
           "self.param_groups[:] = [group for each in self.optimizers for group in each.param_groups]", "pass",
           COMBINED("test_a_resumed_run_restores_every_optimizer_and_goes_on_with_the_schedule[sgd]")),
    Mutant("the first of several is stepped alone", "Combined.step", "for each in self.optimizers:",
           "for each in self.optimizers[:1]:", COMBINED("test_together_they_step_as_each_alone[sgd]")),
    Mutant("noise is checked for the outer optimizer alone", "check_plan_suits", "wrapped(optimizer)", "(optimizer,)",
           COMBINED("test_an_optimizer_that_knows_its_noise_is_checked_over_its_own_parameters")),
]  # fmt: skip

STEPS = [
    Mutant("groups lose their places in the draw", "sum_gradients", "drawn + group.positions[index]",
           "drawn + group.positions.flip(0)[index]", SUMS("test_norms_are_in_the_order_of_the_draw")),
    Mutant("an error of a step holds what caused it", "loop.raise_hidden",
           "from None", "from error", SUMS("test_a_fault_of_the_library_in_a_step_tells_nothing_of_the_draw")),
    Mutant("draws that were used are kept", "DrawReader.start",
           "del self._kept[done]", "pass", ITERATION("test_draws_that_were_used_are_forgotten")),
    Mutant("every loop draws anew", "DrawReader.start",
           "if self._draws is not None and (step in self._kept or step >= self._upcoming):", "if False:",
           ITERATION("test_every_epoch_is_one_partition_whatever_the_loops")),
]  # fmt: skip

PRECISION = [
    Mutant("updates are rounded away", "MasterWeights.in_place",
           "torch.where(master.to(p.dtype) == p.data, master, p.data.to(master.dtype))", "p.data.to(master.dtype)",
           MASTERS("test_updates_too_small_for_bfloat16_add_up_as_in_float32")),
    Mutant("an optimizer accumulates in bfloat16", "MasterWeights.in_place", "_widen(each.state.get(p, {}), master)", "pass",
           MASTERS("test_updates_too_small_for_bfloat16_add_up_as_in_float32[accumulating]")),
    Mutant("an optimizer is restored in bfloat16", "OptimizerState.load_state_dict",
           "with self._masters.in_place():\n    self._optimizer", "self._optimizer",
           MASTERS("test_a_run_resumes_with_its_masters_and_the_precision_of_the_optimizer")),
    Mutant("a host rounds updates away", "TrainingState.check_host_can_update", "if self._masters.names:", "if False:",
           MASTERS("test_a_host_that_steps_the_optimizer_is_refused_before_anything_is_spent")),
]  # fmt: skip

CHECKED = [
    Mutant("changed modes go unnoticed", "checks.note_modules", "module.training,", "", PREFLIGHT(f"{CHANGED}[changed_mode]")),
    Mutant("new hooks go unnoticed", "checks.note_modules",
           "(module._forward_hooks, module", "(module", PREFLIGHT(f"{CHANGED}[added_hook]")),
    Mutant("new buffers go unnoticed", "checks.note_modules",
           ", *map(id, module._buffers.values())", "", PREFLIGHT(f"{CHANGED}[added_buffer]")),
    Mutant("another forward goes unnoticed", "checks.note_modules",
           '"forward" in module.__dict__, ', "", PREFLIGHT(f"{CHANGED}[replaced_forward]")),
    Mutant("a changed model is not checked", "Training._check_unchanged", "if self._preflight is not None and", "if False and",
           PREFLIGHT("test_a_change_that_breaks_the_promise_is_refused_before_the_step_is_paid_for")),
    Mutant("parametrisations stand still", "advance_parametrizations",
           "getattr(module, name)", "pass", PREFLIGHT("test_spectral_norm_trains_as_in_a_plain_loop")),
    Mutant("power iteration of the old kind stands still", "advance_parametrizations",
           "hook(module, None)", "pass", PREFLIGHT("test_spectral_norm_trains_as_in_a_plain_loop")),
    Mutant("steps in inference mode are paid for", "Loop._check_surroundings", "refuse_inference_mode()", "pass",
           among("test_refusals", "test_inference_mode_around_a_step_is_refused_before_anything_is_spent")),
    Mutant("optimizers may need a closure", "checks._evaluates_again", "needed or issubclass", "issubclass", OLD),
    Mutant("optimizers may need sparse gradients", "checks.check_optimizer",
           "isinstance(each, torch.optim.SparseAdam) or _is_differentiated(each)", "False", OLD),
    Mutant("gradients of inference mode are zero", "Engine.tapes",
           "refuse_inference_mode()", "", among("test_engine", "test_inference_mode_is_refused_and_leaves_nothing_behind")),
    Mutant("norms of parts are in another order", "RunningSum.norms", "index.to(device)", "index.flip(0).to(device)",
           among("test_engine", "test_norms_of_parts_are_those_of_the_whole_batch_and_looped_examples_are_counted")),
    Mutant("a collate that mixes passes", "preflight._check_collate", "not None and couples(collate, items)", "None",
           PREFLIGHT("test_a_collate_that_computes_with_several_examples_is_refused")),
    Mutant("a collate that keeps items passes", "preflight._check_collate",
           "not None and remembers(collate, items)", "None and False", PREFLIGHT("test_a_collate_that_keeps_an_item_is_refused")),
    Mutant("a collate is called once for each item", "remembers", "[_call(collate, [item], 0) for item in reversed(items)]",
           "first[::-1]", PREFLIGHT("test_what_a_collate_keeps_is_found_by_calling_it_again")),
    Mutant("a collate that sorts passes", "couples", "(list(items), alone), (list(items)[::-1], alone[::-1])",
           "((list(items), alone),)", PREFLIGHT("test_a_collate_that_computes_with_several_examples_is_refused")),
    Mutant("what workers cannot send is lost", "Preflight._refuse_what_workers_cannot_send",
           "if (why := find_unsendable(made)) is not None:", "if False:",
           PREFLIGHT("test_objects_that_workers_cannot_send_are_refused")),
    Mutant("the reading of shapes is not reported", "Preflight._find",
           "self.note = SHAPES_WERE_READ.format(unit=find_unit(self.plan.unit).counted)", "pass",
           PREFLIGHT("test_without_them_three_examples_are_read_and_the_statement_says_so")),
    Mutant("an error in a first example says what it holds", "Preflight._first_examples",
           "cannot be read: {type(error).__name__}", "cannot be read: {error}",
           PREFLIGHT("test_a_first_example_that_cannot_be_read_is_refused_without_what_the_error_says")),
    Mutant("compiled code runs", "force_eager", "_set_stance(frames) if known else", "contextlib.nullcontext() if known else",
           among("test_compiled_models", "test_neither_the_check_nor_a_step_compiles_and_the_user_is_told_once")),
    Mutant("a pass changes what is compiled after it", "patches._set_stance",
           "frames._stance = before", "pass", among("test_patches", "test_afterwards_modules_are_compiled_again")),
    Mutant("a spec is not used", "Preflight._find",
           "if self.spec is not None:", "if False:", PREFLIGHT("test_a_spec_or_a_public_batch_takes_the_place_of_real_examples")),
]  # fmt: skip

FRESH = [
    Mutant("what an optimizer wraps is not looked at", "check_fresh_optimizer", "wrapped(optimizer)", "(optimizer,)", OLD),
    Mutant("state passes", "check_fresh_optimizer", "for path, leaf in list_leaves(state):", "for path, leaf in ():", OLD),
    Mutant("tensors in attributes pass", "check_fresh_optimizer",
           "isinstance(leaf, Tensor | np.ndarray) and not is_blank(leaf)", "False", OLD),
    Mutant("any tensor passes as a copy of a parameter", "checks._is_public",
           "torch.equal(value, one.to(value)) if", "True if", OLD),
    Mutant("numbers are no state", "is_blank",
           "(isinstance(leaf, int | float) and leaf == 0)", "isinstance(leaf, int | float)", OLD),
    Mutant("a scheduler of another optimizer passes", "check_scheduler",
           'if getattr(each, "optimizer", None) is not optimizer:', "if False:", SCHEDULERS),
    Mutant("a scheduler with a past passes", "check_scheduler",
           'if fresh and getattr(each, "last_epoch", 0) > 0:', "if False:", SCHEDULERS),
    Mutant("a past within a scheduler passes", "check_scheduler", '*getattr(scheduler, "_schedulers", ())', "", SCHEDULERS),
    Mutant("a scheduler ends before the run", "check_scheduler", "scheduler.total_steps < steps", "False", SCHEDULERS),
    Mutant("a scheduler may ask for a metric", "check_scheduler", "inspect.signature(scheduler.step).bind()", "pass", SCHEDULERS),
    Mutant("an average of other values passes", "check_average",
           "if not torch.equal(value.detach(), averaged[name].detach().to(value)):", "if False:",
           among("test_optimizer_checks", "test_an_average_of_other_parameters_is_refused")),
    Mutant("an average of earlier steps passes", "check_average", "if int(average.n_averaged) > 0:", "if False:",
           among("test_torch_optimizers", "test_an_average_is_not_forgotten_on_resuming_and_must_fit")),
]  # fmt: skip

READ = [
    Mutant("a group that cannot be sent leaves its tensors", "transfer.pack", "del places[used:]", "pass",
           among("test_transfer", "test_a_group_that_cannot_be_sent_is_dropped_alone_and_the_reason_is_told")),
    Mutant("items are collated together", "collate_one", "copy_batch(collate([item]))", "copy_batch(collate([item, item]))",
           READING("test_items_are_asked_for_and_collated_one_at_a_time")),
    Mutant("all examples are read with one seed", "read_each", "seed_generators(number)", "seed_generators(numbers[0])",
           READING("test_randomness_is_of_the_seed_and_the_position_alone")),
    Mutant("seeds begin anew in every physical batch", "batches.split", "else seeds.after(start)", "else seeds",
           READING("test_random_numbers_do_not_depend_on_the_size_of_the_physical_batches")),
    Mutant("errors on public indices are hidden", "read_each",
           "if strict:\n    raise", "", READING("test_failing_examples_are_dropped_and_positions_stay")),
    Mutant("tensors that are not dense pass", "read_each", "pytree.tree_leaves(found) if strict else []", "[]",
           BATCHES("test_tensors_that_are_not_dense_stand_alone_and_are_refused_on_public_indices")),
    Mutant("data sets of others are given several indices at once", "BatchDataset.groups",
           "if self.row_wise:", "if True:", BATCHES("test_only_privets_own_data_sets_are_given_several_indices_at_once")),
    Mutant("the group of an example has another order", "group_examples",
           "stack_flat(alike)", "stack_flat(alike[::-1])", READING("test_items_are_asked_for_and_collated_one_at_a_time")),
    Mutant("reading moves Python's generator", "preserve_generators",
           "random.setstate(python_state)", "", GENERATORS("test_the_generators_are_as_they_were")),
    Mutant("a draw from NumPy's generator is not noticed", "watch_numpy_generator", "!= _FIRST", "== -1.0",
           GENERATORS("test_a_draw_from_numpys_generator_is_noticed")),
    Mutant("reading moves NumPy's generator", "preserve_generators",
           "mtrand.set_bit_generator(numpy_bits)", "", GENERATORS("test_the_generators_are_as_they_were")),
    Mutant("reading moves torch's generator", "preserve_generators",
           "generator.set_state(state)", "pass", GENERATORS("test_the_generators_are_as_they_were")),
    Mutant("torch is not seeded", "seed_generators", "generator.manual_seed(number & 0xFFFF_FFFF)", "pass", SEEDED),
    Mutant("Python is not seeded", "seed_generators", "random.seed(number)", "pass", SEEDED),
    Mutant("generators are put back within a step", "preserve_generators",
           "if _kept.get():\n    yield\n    return", "", GENERATORS("test_inside_of_another_one_nothing_is_put_back")),
    Mutant("small numbers seed NumPy alike", "seed_generators",
           "(number >> 32) + _ODD * number", "number >> 32", GENERATORS("test_small_numbers_seed_every_generator_differently")),
    Mutant("positions share their seeds in pairs", "Seeds.numbers",
           'dtype="<u8")[skipped:].tolist()', 'dtype="<u8")[skipped:].tolist()\nnumbers[1::2] = numbers[: size // 2 * 2 : 2]',
           GENERATORS("test_numbers_are_uniform_and_those_of_a_position_do_not_depend_on_how_many_there_are")),
]  # fmt: skip

ENTRIES = [
    Mutant("subsets are not looked through", "iter_pieces",
           "if isinstance(dataset, Subset) and", "if dataset is None and", REPEATING),
    Mutant("stacked data sets are not looked through", "iter_pieces",
           "elif isinstance(dataset, StackDataset):", "elif dataset is None:", REPEATING),
    Mutant("units are not looked through", "iter_pieces",
           "elif callable(members := getattr(dataset, \"rows_of_entries\", None)):", "elif False:", REPEATING),
    Mutant("units follow a list that changes", "ExampleReader.__init__", "tuple(dataset) if type(dataset) is list else dataset",
           "dataset", READING("test_a_list_that_a_loop_shuffles_keeps_its_examples")),
    Mutant("indices from the end are others", "entries._to_positions",
           "np.where(index < 0, index + length, index)", "index", REPEATING),
    Mutant("only neighbours are compared", "check_distinct",
           "np.lexsort((entries, places))", "np.arange(len(entries))", REPEATING),
    Mutant("two examples of one entry repeat", "check_distinct", " & (entries[1:] != entries[:-1])", "", DISTINCT),
    Mutant("tables over the same memory differ", "entries._locate",
           "base.tensors if isinstance(base, TensorDataset) else (base,)", "(base,)", REPEATING),
    Mutant("views of a table have equal steps", "entries._locate",
           "index * (column.stride(0) * column.element_size())", "index", REPEATING),
    Mutant("arrays are told by their object", "entries._locate",
           "isinstance(column, np.ndarray) and column.ndim", "False", REPEATING),
    Mutant("items of lists are told by their position", "entries._locate",
           "and all(map(_has_identity, base))", "and False", REPEATING),
    Mutant("a list by itself is not looked at", "check_distinct", "and not isinstance(dataset, list | tuple)", "", REPEATING),
    Mutant("an example on another device ends the step", "move_groups",
           "continue", "raise", among("test_clipped_sums", "test_an_example_of_another_kind_contributes_zero")),
    Mutant("indices beyond a data set pass", "entries._to_positions", "if not (-length <= index.min() and index.max() < length):",
           "if False:", among("test_entries", "test_indices_that_are_no_positions_are_refused")),
]  # fmt: skip

MUTANTS = [*COLLATED, *OPTIMIZERS, *STEPS, *PRECISION, *CHECKED, *FRESH, *READ, *ENTRIES]
