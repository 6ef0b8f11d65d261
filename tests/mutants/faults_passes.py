"""Faults in passes over a batch, in the restoration of state, and in the check on public input."""

from functools import partial

from mutant import Mutant, among, tape

BATCHES = partial(among, "test_batches")
ENGINE = partial(among, "test_engine")
AGAIN = among("test_pass_randomness", "test_draws_since_a_mark_are_repeated")
WATCHED = among("test_pass_randomness", "test_draws_from_global_generators_are_detected")
WRITES = among("test_calls", "test_parameters_are_not_written_to")
GRADS = among("test_loop", "test_grad_is_unchanged_although_a_reentrant_checkpoint_fills_it")
CHECKPOINTED = among("test_ghost", "test_checkpointed_parts_are_recomputed_with_the_same_numbers_and_leave_nothing_behind")
SAME_DRAWS = among("test_passes", "test_an_example_draws_the_same_in_every_pass")
PROBE = partial(among, "test_probe")
MADE_UP = PROBE("test_what_is_made_up_has_the_type_of_a_real_value_and_no_other_trace_of_it")
OBJECTS = PROBE("test_objects_that_cannot_be_made_up_are_refused_unless_all_examples_share_one")
CONTAINERS = among("test_examples", "test_containers_that_are_merely_equal_are_not_stacked")
FOREIGN = PROBE("test_foreign_parameters_are_refused_by_name")

EXAMPLES = [
    Mutant("parts are the first examples", "Examples.select", "leaf.index_select(0, index.to(leaf.device))", "leaf[: len(index)]",
           among("test_passes", "test_groups_are_of_examples_that_agree")),
    Mutant("examples of several types are stacked", "flat_signature", "(leaf.shape, leaf.dtype, leaf.device) if",
           "(leaf.shape, leaf.device) if", BATCHES("test_the_signature_of_an_example_is_its_group")),
    Mutant("containers that call themselves equal are merged", "flat_signature",
           "return _tree_key(tree), kinds", "return tree, kinds", CONTAINERS),
    Mutant("contexts of containers that call themselves equal are merged", "examples._context_key",
           "return _constant_key(context.value if isinstance(context, _Constant) else context)", "return context", CONTAINERS),
    Mutant("0.0 stands for -0.0", "examples._constant_key",
           "(float, leaf.hex()) if", "(float, leaf) if", BATCHES("test_what_is_no_tensor_is_never_taken_from_another_example")),
    Mutant("objects stand for each other by their own equality", "examples._constant_key",
           "else _Same(leaf)", "else leaf", BATCHES("test_what_is_no_tensor_is_never_taken_from_another_example")),
    Mutant("tensors that are not dense are stacked", "is_stackable",
           "type(leaf) is Tensor and not leaf.is_nested and leaf.layout is torch.strided and not leaf.is_quantized",
           "isinstance(leaf, Tensor) and not leaf.is_nested",
           BATCHES("test_tensors_that_are_not_dense_stand_alone_and_are_refused_on_public_indices")),
]  # fmt: skip

RANDOMNESS = [
    Mutant("calls of a stretch are not counted", "Draws.sample", "self._calls += 1", "self._calls += 0",
           among("test_pass_randomness", "test_restarted_passes_repeat_the_numbers_drawn_before")),
    Mutant("what runs again draws new numbers", "Draws.replay_from", "self._restore(mark)", "pass", AGAIN),
    Mutant("what comes after it draws what ran again drew", "Draws.replay_from", "self._restore(now)", "pass", AGAIN),
    Mutant("draws from torch go unnoticed", "GeneratorWatch.has_advanced", "drawn or", "", WATCHED),
    Mutant("draws from NumPy go unnoticed", "GeneratorWatch.has_advanced", "or self._has_numpy_advanced()", "", WATCHED),
    Mutant("all calls draw the same numbers", "engine._make_engine",
           "torch.Generator().manual_seed(draw_torch_seed())", "torch.Generator().manual_seed(torch.initial_seed())",
           among("test_engine", "test_calls_draw_new_numbers_which_torchs_seed_determines[clipped_sum-ghost]")),
    Mutant("all examples get the whole list", "split_batch", "nested = tree.num_nodes > 1 + tree.num_leaves", "nested = False",
           among("test_examples", "test_a_list_with_an_entry_for_each_example_is_split")),
    Mutant("all seeds are one", "draw_torch_seed", 'int(torch.randint(_MASK, (), generator=generator, device="cpu"))',
           "torch.initial_seed() & _MASK", among("test_pass_randomness", "test_torch_seeds_are_reproducible_and_differ")),
]  # fmt: skip


GRADIENTS = among(
    "test_held_tensors",
    "test_gradients_that_were_there_are_neither_seen_nor_written[add-loop]",
    "test_gradients_that_were_there_are_neither_seen_nor_written[zero-auto]",
)

RECORDED = [
    Mutant("parts of a parameter are not followed", "Recorder.view",
           "if self.follows(parameter) and tensor is not parameter:", "if False:", tape("attention with three inputs")),
    Mutant("tensors of others are not noted", "Recorder.follow", "self.foreign += others", "pass", FOREIGN),
    Mutant("in-batch losses are not seen", "refuse_in_batch_loss", "if losses_differ(program, alone, join_examples(examples)):",
           "if False:", among("test_joint", "test_losses_that_examples_share_are_refused")),
    Mutant("tensors of examples may be kept", "refuse_survivors",
           "if not new:", "if True:", PROBE("test_what_is_wrong_is_refused_by_name[keeps a tensor]")),
    Mutant("a buffer that is bound anew is not named", "restored._read", "(id(value), value._version)", "value._version",
           among("test_restored", "test_what_a_model_changes_is_named_and_stays_as_it_was")),
    Mutant("norms are not compared with the loop's", "_matches_loop",
           "float(norms[position]) < least", "False", PROBE("test_norms_that_are_too_small_are_not_used")),
    Mutant("real rows are looked at", "make_synthetic", "maker.fill(leaf, (count, *leaf.shape[1:]))",
           "leaf[:1].expand(count, *leaf.shape[1:])", PROBE("test_synthetic_batches_keep_structure_and_types_only")),
    Mutant("real text and numbers are looked at", "_Maker.make",
           "return _CONSTANTS[own] if own in _CONSTANTS", "return leaf if own in _CONSTANTS", MADE_UP),
    Mutant("real items are looked at", "_Maker.make", "return self.fill(leaf, tuple(leaf.shape))", "return leaf",
           PROBE("test_synthetic_items_keep_structure_and_types_only")),
    Mutant("low precision is not noticed", "Recorder.promote",
           "self.low_precision = True", "pass", PROBE("test_a_model_in_low_precision_is_compared_loosely")),
    Mutant("products may round what is measured", "_disable_rounding", 'backend.fp32_precision = "ieee"', "pass",
           among("test_norms", "test_norms_and_sums_are_measured_without_rounded_products")),
    Mutant("what was allowed to round stays forbidden", "_disable_rounding", "backend.fp32_precision = kept", "pass",
           among("test_norms", "test_norms_and_sums_are_measured_without_rounded_products")),
    Mutant("losses of any shape are taken", "check_losses",
           "losses.shape != (examples,)", "losses.shape[1:] != ()", ENGINE("test_a_loss_that_is_not_one_per_example_is_refused")),
]  # fmt: skip

CAUGHT = partial(among, "test_caught_errors")
CALLBACKS = partial(among, "test_called_back")

PRIVATE = partial(among, "test_private")
GENERATORS = partial(among, "test_generators")

READING = [
    Mutant("signals do not wait", "sum_gradients", "with hold_signals():", "if True:",
           among("test_interrupts", "test_an_interrupt_leaves_no_example_in_the_model_or_the_checkpoint")),
    Mutant("two threads take a step at once", "Loop._between_steps",
           "if not self._stepping.acquire(blocking=False):", "if not self._stepping.acquire(blocking=False) and False:",
           among("test_hosts", "test_no_state_is_saved_or_restored_while_a_step_is_taken")),
    Mutant("generators of users go on from example to example", "read_each",
           "seed_held(generators, number)", "pass", GENERATORS("test_an_examples_numbers_depend_on_its_seed_alone")),
    Mutant("generators of a kind draw the same", "seed_held",
           "place * _ODD", "0", GENERATORS("test_two_generators_of_a_kind_do_not_draw_the_same")),
    Mutant("generators that functions name are not found", "generators._list_held",
           "return *named,", "return", GENERATORS("test_an_examples_numbers_depend_on_its_seed_alone")),
    Mutant("generators are looked for once", "ExampleReader._read_each", "self._reads & (self._reads - 1) == 0",
           "self._reads == 1", GENERATORS("test_a_generator_that_an_earlier_read_created_is_found")),
]  # fmt: skip

CALLS = [
    Mutant("errors that user code catches are forgotten", "SharedCalls.__exit__",
           "raise failure from None", "pass", CAUGHT("test_a_caught_error_of_one_example_leaves_the_others_on_their_path")),
    Mutant("errors of torch concern one example", "SharedCalls.note_failure",
           "self._examples > 1 and", "False and", CAUGHT("test_a_caught_error_of_one_example_leaves_the_others_on_their_path")),
    Mutant("what is given up for one example can be caught", "SharedCalls.note_failure",
           "isinstance(error, SplitError | UntraceableError)", "False",
           CAUGHT("test_what_is_given_up_for_one_example_is_not_caught_either")),
    Mutant("text is that of all examples", "SharedCalls.copy_or_refuse", "raise UntraceableError(",
           "return str(args[0]) and str(", CAUGHT("test_text_of_a_tensor_is_not_that_of_all_examples")),
    Mutant("text is that of all clients", "SharedCalls.call", "if name in EXPOSING and args and is_wrapped(args[0]):",
           "if False:", among("test_client_isolation", "test_an_error_that_a_loss_catches_for_one_client_changes_no_other")),
    Mutant("errors that a client causes are forgotten", "Simulation._together",
           "SharedCalls(self._guard, None, len(clients[1]))", "GuardedCalls(self._guard, None)",
           among("test_client_isolation", "test_an_error_that_a_loss_catches_for_one_client_changes_no_other")),
    Mutant("functions that torch calls are not watched", "GuardedCalls._replace",
           "return watch(self, x) if is_called_back(x) else x", "return x", CALLBACKS("test_no_parameter_is_written_to")),
    Mutant("classes that torch calls are not watched", "GuardedCalls.call_class",
           "with self:", "if True:", CALLBACKS("test_no_parameter_is_written_to")),
    Mutant("user code runs for one example after another", "ExampleCalls._one_by_one", "if any(map(is_called_back, leaves)):",
           "if False:", CALLBACKS("test_a_function_is_not_called_for_one_example_after_another[auto]")),
    Mutant("memory is handed out for writing", "_memory_rule.rule", "found.flags.writeable = False", "pass",
           among("test_indexing", "test_the_memory_of_a_tensor_is_handed_out_for_reading_only")),
    Mutant("what cannot be summed ends the run", "Engine.clip", "if not self.skip_errors:", "if True:",
           among("test_clipped_sums", "test_gradients_that_cannot_be_summed_together_are_summed_in_halves")),
    Mutant("what cannot be summed sends all others through the loop", "Engine.clip", "min(2, len(chosen))", "len(chosen)",
           among("test_clipped_sums", "test_gradients_that_cannot_be_summed_together_are_summed_in_halves")),
    Mutant("what cannot be summed alone is tried for ever", "Engine.clip", "if not alone:", "if True:",
           among("test_clipped_sums", "test_gradients_that_cannot_be_summed_together_are_summed_in_halves[True]")),
    Mutant("functions that write are not watched", "calls._is_watched", "or is_write(name)", "", WRITES),
    Mutant("hooks are not watched", "_is_watched",
           "or name in HOOKS", "", among("test_calls", "test_taking_gradients_in_a_pass_is_refused")),
    Mutant("writes are not looked at", "calls._find_written", "if is_write(name) or", "if", WRITES),
    Mutant("results are written anywhere", "calls._find_written", 'if options.get("out") is not None:', "if False:", WRITES),
    Mutant("lists of parameters are written to", "calls._find_written", "list_leaves(targets)", "targets", WRITES),
    Mutant("initialisers write", "calls._find_written", "targets += args[:1] or [options]", "targets += args[:1]", WRITES),
    Mutant("generators of users are drawn from", "GuardedCalls._replace",
           "if type(x) is torch.Generator:", "if False:", among("test_random", "test_generators_of_users_are_not_drawn_from")),
    Mutant("texts and memory of all examples are shown", "ExampleCalls.call",
           "if name in EXPOSING and args and is_wrapped(args[0]):", "if False:",
           among("test_calls", "test_the_memory_behind_an_example_is_not_shown")),
    Mutant("functions without a batching rule draw from one stream", "ExampleCalls._one_by_one.below",
           "if not torch.equal(state, torch.get_rng_state()):", "if False:",
           among("test_random", "test_numbers_under_a_seed_of_the_users_are_each_examples_own")),
    Mutant("gradients are written to parameters", "GuardedCalls._access_attribute",
           "if func == _GRAD_SET and args[1] is not None:", "if False:",
           among("test_calls", "test_taking_gradients_in_a_pass_is_refused")),
    Mutant("hooks are left on parameters", "GuardedCalls._check_call",
           "if name in HOOKS and", "if name in () and", among("test_calls", "test_taking_gradients_in_a_pass_is_refused")),
    Mutant("operators of others are believed", "ExampleCalls.call",
           "if is_foreign(func):", "if False:", among("test_calls", "test_custom_operators_use_the_loop")),
    Mutant("tensors that are made inside are shared", "ExampleCalls._call_shared", "if not self._fresh or name not in _FACTORIES",
           "if name not in ()", among("test_ghost", "test_examples_may_be_written_into_what_was_a_constant")),
    Mutant("copies of a parameter have no gradient", "ExampleCalls._copy_parameter", "self._recorder.per_example_copy(x)",
           "x.detach()", among("test_ghost", "test_functions_without_a_rule_use_per_example_copies")),
]  # fmt: skip

PASSES = [
    Mutant("examples write into the batch", "Examples.copy_leaves", "copy(leaf) if own else leaf", "leaf",
           among("test_loop", "test_writes_to_an_input_are_discarded")),
    Mutant("what a mode returns is kept as positions", "passes._positions", "if has_modes", "if False",
           among("test_passes", "test_positions_that_a_mode_changes_are_not_kept")),
    Mutant("examples that were read are written to", "examples._copy_on_write", "_lazy_clone(tensor)", "tensor",
           among("test_loop", "test_writes_to_examples_that_privet_read_are_discarded")),
    Mutant("a batch of the user leaves its memory", "Examples.copy_leaves", " if self.owns_memory else Tensor.clone", "",
           among("test_examples", "test_a_batch_of_the_user_keeps_the_memory_that_its_array_has")),
    Mutant("what runs again leaves what it changed", "_make_rerun.again.inside",
           "program.guard.isolate(), calls", "calls", CHECKPOINTED),
    Mutant("what runs again drops other numbers", "_make_rerun.again",
           "with recorder.draws.replay_from(mark)", "if mark", CHECKPOINTED),
    Mutant("checkpointed parts run again outside of the pass", "_watch_parts.generator.once_more",
           "again(lambda: function(*args, **kwargs))", "function(*args, **kwargs)", CHECKPOINTED),
    Mutant("parts belong to the pass that began last", "_watch_parts.generator",
           "if thread == own]", "]", among("test_patches", "test_a_part_belongs_to_the_pass_of_its_thread")),
    Mutant("tensors of others are forgotten", "ghost.record", "list(map(weakref.ref, recorder.foreign))", "[]", FOREIGN),
    Mutant("gradients that were put aside are lost", "_set_aside_gradients", "tensor.grad = gradient", "pass", GRADS),
    Mutant("gradients of others stay", "_set_aside_gradients", "reached |= {id(node.variable)", "_ = {id(node.variable)", GRADS),
    Mutant("losses count twice", "losses.backpropagate", "ones = torch.ones_like(losses)", "ones = 2 * torch.ones_like(losses)",
           among("test_losses", "test_gradients_are_those_of_the_sum_and_what_is_not_used_has_none")),
    Mutant("examples that go alone draw anew", "Passes.tapes", "else:\n    yield from self._one_by_one(examples, index, draws)",
           "else:\n    yield from self._one_by_one(examples, index, _restart(draws, torch.arange(examples.count)))", SAME_DRAWS),
    Mutant("groups draw the numbers of others", "Passes.tapes",
           "_restart(draws, group)", "_restart(draws, torch.arange(len(group)))", SAME_DRAWS),
    Mutant("what a second try drew is drawn anew", "Passes.tapes", "tape, groups, draws = self._try_together",
           "tape, groups, _ = self._try_together", among("test_passes", "test_an_example_draws_the_same_in_every_pass")),
    Mutant("a second try draws new numbers", "Passes._try_together",
           "_restart(draws, _positions(examples.count))", "draws", SAME_DRAWS),
    Mutant("hooks of parameters see the gradients of all examples", "_has_backward_hooks",
           "return any(map(_HOOKS_OF_TENSOR, program.parameters.values()))", "return False",
           among("test_passes", "test_hooks_on_gradients_and_on_parameters_see_one_example")),
    Mutant("parameters that are kept elsewhere are not those of the past", "Passes._add_past",
           "if any(known() is p for known in program.foreign for p in self.program.parameters.values()):", "if False:",
           among("test_past_iterates", "test_a_parameter_that_is_kept_elsewhere_is_found")),
]  # fmt: skip

REFUSED = [
    Mutant("layers that normalise over the batch pass", "refuse_batch_statistics",
           "isinstance(module, nn.modules.batchnorm._BatchNorm)", "not name",
           PROBE("test_what_is_wrong_is_refused_by_name[batch norm]")),
    Mutant("layers without running statistics pass", "refuse_batch_statistics",
           "(module.training or module.running_mean is None)", "module.training",
           PROBE("test_what_is_wrong_is_refused_by_name[batch norm without statistics in eval mode]")),
    Mutant("a criterion's parameters pass", "refuse_foreign_parameters", "if names:", "if False:", FOREIGN),
    Mutant("what is made in a pass passes", "_refuse_what_outlives_a_pass",
           "if program.guard.created:", "if False:", PROBE("test_what_is_wrong_is_refused_by_name[creates a module]")),
    Mutant("foreign tensors pass", "_refuse_what_outlives_a_pass", "if foreign:", "if False:", FOREIGN),
    Mutant("vectors of spectral norm are named", "_is_advanced_between_steps", '"parametrizations" in path.split(".") or ', "",
           among("test_restored", "test_nothing_is_said_of_caches_and_of_what_is_advanced_between_steps")),
    Mutant("the example before may change the next", "probe._check",
           "if not all(_is_close(one, other) for one, other in zip(alone, backwards, strict=False)):", "if False:",
           PROBE("test_what_is_wrong_is_refused_by_name[remembers the one before]")),
    Mutant("nothing need be learned", "_refuse_hopeless",
           "if not any(alone):", "if False:", PROBE("test_what_is_wrong_is_refused_by_name[without the model]")),
    Mutant("gradients need not be finite", "_refuse_hopeless",
           "if not bool(value.isfinite().all()):", "if False:", PROBE("test_a_public_batch_is_used_as_it_is")),
    Mutant("a pass is not compared with the loop", "_is_ghost_right",
           "if not _matches_loop(program, tape, examples.select(index), passes.draws):", "if False:",
           PROBE("test_a_method_that_is_wrong_is_not_used")),
    Mutant("objects of single examples are looked at", "common_objects", "frozenset.intersection(", "frozenset.union(", OBJECTS),
    Mutant("the objects of an only example are looked at", "common_objects", "< 2", "< 1", OBJECTS),
    Mutant("contexts of real containers are looked at", "make_synthetic", "if id(value) not in kept:", "if False:", OBJECTS),
    Mutant("errors tell of objects that are not made up", "_loop_gradients",
           "type(error).__name__ if quiet else", "", PROBE("test_what_an_error_says_is_left_out_if_examples_hold_real_objects")),
    Mutant("rounding hides what a loss compares", "losses_differ", "_ROUNDING * tolerance", "0.0",
           among("test_joint", "test_random_numbers_that_only_change_rounding_do_not_hide_the_dependence")),
    Mutant("the first parameters are not compared", "losses_differ",
           "for values in (dict(program.parameters), moved)", "for values in (moved,)",
           among("test_joint", "test_what_only_the_first_parameters_show_is_found")),
    Mutant("a mean may be of another loss", "_differ_at",
           "if reduced:", "if False:",
           among("test_joint", "test_a_mean_weighted_by_classes_is_refused_and_a_plain_mean_or_sum_is_not")),
    Mutant("parameters of zero hide what a loss compares", "_STEP",
           "_STEP = 0.1", "_STEP = 0.0", among("test_joint", "test_what_parameters_of_zero_hide_is_found")),
    Mutant("examples are mixed with themselves", "_ConstantCalls.__torch_function__",
           "(args[0]).flip(0)", "(args[0])", among("test_joint", "test_chances_decide_coins_and_examples_are_mixed_up")),
    Mutant("dropout within a call stays on", "disable_inner_dropout", "layer.dropout = 0.0", "pass",
           among("test_joint", "test_dropout_within_one_call_is_off_inside_and_as_it_was_outside")),
    Mutant("dropout within a call stays off", "disable_inner_dropout", "layer.dropout = value", "pass",
           among("test_joint", "test_dropout_within_one_call_is_off_inside_and_as_it_was_outside")),
]  # fmt: skip

MUTANTS = [*EXAMPLES, *READING, *RANDOMNESS, *RECORDED, *CALLS, *PASSES, *REFUSED]
