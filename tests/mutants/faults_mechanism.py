"""Faults between a clipped sum and the parameters: sampling, clipping, masks, noise, and the values in between."""

from functools import partial

from mutant import Mutant, among

GAUSSIAN = partial(among, "test_gaussian")
LAW = GAUSSIAN("test_noise_is_normal_with_deviation_multiplier_times_sensitivity_and_independent")

NOISE = [
    Mutant("the variance is taken for the deviation", "release", "deviation = multiplier", "deviation = multiplier**2", LAW),
    Mutant("three per cent of the noise are missing", "release", "cells = scales[which]", "cells = 0.97 * scales[which]", LAW),
    Mutant("rounding costs nothing", "release",
           "sensitivity + rounding", "sensitivity", GAUSSIAN("test_the_grid_costs_next_to_nothing")),
    Mutant("the first tensor has no noise", "release",
           "add_noise(sums[which][part], normals, cells", "add_noise(sums[which][part], normals * (which > 0), cells", LAW),
    Mutant("all tensors share their noise", "_distribute", "piece[part.stop - start :]", "piece", LAW),
    Mutant("a token is never used up", "release",
           "token.spend()", "token.multiplier", GAUSSIAN("test_a_token_is_good_for_one_release")),
    Mutant("anything can be noised", "release", "isinstance(clipped, ClippedSum)", "hasattr(clipped, 'tensors')",
           GAUSSIAN("test_only_a_clipped_sum_is_noised_and_a_refusal_spends_nothing")),
    Mutant("data outside the mask is released", "gaussian._scatter", "own.new_zeros(total.numel()).index_copy_",
           "total.flatten().clone().index_copy_", GAUSSIAN("test_what_a_sum_holds_outside_its_support_is_not_released")),
    Mutant("the sum is not rounded to the grid", "reference.add_noise", ".div_(grid).round_().add_(noise)",
           ".div_(grid).add_(noise)", among("test_compiled", "test_a_release_is_what_the_definition_says")),
    Mutant("radii are too short", "reference.box_muller",
           "mul_(-2.0).sqrt_", "mul_(-1.9).sqrt_", among("test_compiled", "test_radii_span_the_whole_range_of_a_52_bit_uniform")),
    Mutant("noise is never negative", "reference.box_muller", "mul_(2 * math.pi).cos()", "mul_(2 * math.pi).cos().abs_()", LAW),
    Mutant("a fork goes on with its parent's stream", "Keystream.fill",
           "_process != os.getpid()", "_process == -1", among("test_keystream", "test_a_fork_gets_a_new_stream")),
    Mutant("the key is always the same", "Keystream.fill",
           "AES(os.urandom(32)), modes.CTR(os.urandom(16))", "AES(bytes(32)), modes.CTR(bytes(16))",
           among("test_keystream", "test_asking_twice_or_once_never_repeats_a_word_and_neither_do_instances")),
    Mutant("words repeat in every piece", "Keystream.fill", "start : stop + room", ": stop - start + room",
           among("test_keystream", "test_asking_twice_or_once_never_repeats_a_word_and_neither_do_instances")),
    Mutant("a token is good for ever", "Token.spend",
           "self._spent = True", "self._spent = False", GAUSSIAN("test_a_token_is_good_for_one_release")),
    Mutant("a fork spends its parent's token", "Token.spend",
           "_process != os.getpid()", "_process < 0", GAUSSIAN("test_a_token_of_another_process_is_refused")),
]  # fmt: skip

SUMS = [
    Mutant("parts of different draws join", "ClippedSum.join", "draw != theirs.draw or mine.stop", "stop",
           among("test_clipped_sum", "test_parts_that_may_share_an_example_do_not_join")),
    Mutant("a sum joins with the smaller sensitivity", "ClippedSum.join", "max(self.sensitivity, other.sensitivity)",
           "min(self.sensitivity, other.sensitivity)", among("test_clipped_sum", "test_adjacent_parts_of_a_draw_join_once")),
    Mutant("a scaled sum keeps its sensitivity", "ClippedSum.__mul__", "sensitivity * abs(number)", "sensitivity",
           among("test_clipped_sum", "test_scaling_scales_sensitivity_and_deviation")),
    Mutant("parts with different masks join", "ClippedSum.join", "if not _same_support(self.support, other.support):",
           "if False:", among("test_clipped_sum", "test_parts_with_different_masks_do_not_join")),
]  # fmt: skip

CLIPPING = [
    Mutant("long gradients are left as they are", "Flat.factor", "(self.bound / norms).clamp(max=1.0)",
           "(self.bound / norms).clamp(min=1.0)", among("test_rules", "test_no_contribution_exceeds_the_sensitivity")),
    Mutant("the indicator keeps what is too long", "Global.factor", "(norms <= self.threshold)", "(norms <= 2 * self.threshold)",
           among("test_rules", "test_no_contribution_exceeds_the_sensitivity")),
    Mutant("the scale does not reach the noise", "PSASC.sensitivity",
           "bound / self.scale", "bound", among("test_rules", "test_no_contribution_exceeds_the_sensitivity")),
    Mutant("groups are clipped each to the whole bound", "Layerwise.group_rules",
           "(rules[0].scale_bound(1 / math.sqrt(count)),) * count", "(rules[0],) * count",
           among("test_layerwise", "test_no_contribution_exceeds_the_sensitivity_whatever_the_noise")),
    Mutant("groups with their own noise share one budget each", "Layerwise.noise_scales",
           "math.hypot(*(bound / a for bound, a in zip(bounds, deviations, strict=True)))",
           "max(bound / a for bound, a in zip(bounds, deviations, strict=True))",
           among("test_layerwise", "test_no_contribution_exceeds_the_sensitivity_whatever_the_noise")),
    Mutant("counts are not centred", "AdaptiveQuantile.statistics", "to(norms.dtype) - 0.5).sum(1)", "to(norms.dtype)).sum(1)",
           among("test_adaptive", "test_an_example_moves_the_counts_by_half_in_every_group_whatever_its_norms")),
    Mutant("counts are for nothing", "AdaptiveQuantile.sensitivity", "sensitivity / math.sqrt(1 - self.share)", "sensitivity",
           among("test_adaptive", "test_gradients_and_counts_share_one_mechanism")),
    Mutant("counts of many groups are noised as one", "AdaptiveQuantile.noise_scales",
           "math.sqrt(len(self.groups(names)))", "1", among("test_adaptive", "test_gradients_and_counts_share_one_mechanism")),
    Mutant("every rule weighs the batch at once", "weigh", "if is_own(rule):", "if True:",
           among("test_weighing", "test_whatever_a_rule_returns_an_example_moves_the_sums_by_at_most_the_sensitivity")),
    Mutant("a rule sees all norms", "weighing._ask",
           "weights, statistics = each(norms.clone())", "weights, statistics = rule.weights(norms).T, each(norms)[1]",
           among("test_weighing", "test_whatever_a_rule_returns_an_example_moves_the_sums_by_at_most_the_sensitivity")),
    Mutant("a rule that raises has no weights at all", "weighing._ask", "if alone:\n        return", "if True:\n        return",
           among("test_weighing", "test_a_rule_that_raises_is_refused_on_synthetic_norms_and_contributes_zero_on_others")),
    Mutant("weights that are not finite are kept", "weigh", ".all(0) & norms.isfinite()", ".all(0)",
           among("test_weighing", "test_a_rule_cannot_weigh_what_is_not_finite")),
    Mutant("a rule within a rule is not looked at", "foreign_kinds", "if is_dataclass(value) and not isinstance(value, type):",
           "if False:", among("test_weighing", "test_a_foreign_rule_within_a_style_is_clamped")),
    Mutant("weights that are too large are believed", "weighing._clamp",
           "torch.where(contributed <= limit, 1.0,", "torch.where(contributed == contributed, 1.0,",
           among("test_weighing", "test_whatever_a_rule_returns_an_example_moves_the_sums_by_at_most_the_sensitivity")),
    Mutant("statistics are for nothing", "weighing._clamp", "(values / scales.get(name, 1.0))", "(0 * values)",
           among("test_weighing", "test_statistics_and_gradients_share_the_sensitivity")),
    Mutant("statistics may be called like a parameter", "weighing._ask",
           "if \":\" not in name", "if False", among("test_weighing", "test_statistics_cannot_take_the_place_of_a_gradient")),
    Mutant("a rule is not checked before training", "check_rule", "if is_own(rule):", "if True:",
           among("test_weighing", "test_a_rule_that_looks_at_the_batch_or_weighs_too_much_is_refused_before_training")),
    Mutant("groups may forget a parameter", "weighing.split_groups",
           "sorted(name for group in groups for name in group) != sorted(names)", "False",
           among("test_weighing", "test_groups_that_are_no_partition_are_refused")),
    Mutant("an example counts as often as it is drawn", "DrawReader._check",
           "np.unique(found[(found >= 0) & (found < self._examples)])", "found[(found >= 0) & (found < self._examples)]",
           among("test_foreign_parts", "test_an_example_that_a_sampler_draws_twice_counts_once")),
    Mutant("the schedule is a step behind", "ClippingState.at",
           "_factors[step - 1]", "_factors[max(step - 2, 0)]", among("test_step_sums", "test_every_step_clips_to_its_own_bound")),
    Mutant("only the first bound of a schedule is checked", "Declaration._check_factors",
           "choose(self.bound_factors())) for choose in (np.min, np.max)", "self.bound_factors()[0]) for _ in range(1)",
           among("test_plan", "test_a_schedule_by_which_the_bound_leaves_its_range_is_refused[1e-11-schedule0-10-0.01]")),
]  # fmt: skip

SAMPLING = [
    Mutant("every step has the first step's sample", "Poisson.draws",
           "while True:\n    yield distinct(binomial(examples, rate, uniform(words)), examples, words)",
           "drawn = distinct(binomial(examples, rate, uniform(words)), examples, words)\nwhile True:\n    yield drawn",
           among("test_poisson", "test_inclusion_is_an_independent_coin_for_every_example_and_step")),
    Mutant("every sample has the expected size", "Poisson.draws", "binomial(examples, rate, uniform(words))",
           "round(self.batch_size)", among("test_poisson", "test_inclusion_is_an_independent_coin_for_every_example_and_step")),
    Mutant("the cap cuts off those who come last", "TruncatedPoisson.draws",
           "(min(number, self.cap), examples, words)", "(number, examples, words)[: self.cap]",
           among("test_schemes", "test_the_members_of_a_full_batch_are_a_uniform_subset")),
    Mutant("small numbers are favoured", "draws._accept", "drawn if limit == 2**64 else drawn[drawn < np.uint64(limit)]", "drawn",
           among("test_draws", "test_words_that_would_favour_small_numbers_are_drawn_again")),
    Mutant("every epoch has the same partition", "ByEpoch.draws", "while True:\n    yield from self.partition(examples, words)",
           "drawn = self.partition(examples, words)\nwhile True:\n    yield from drawn",
           among("test_schemes", "test_epochs_are_partitioned_anew")),
    Mutant("a broken epoch is continued", "ByEpoch.resumes_at",
           "step + (1 - step) % length", "step", among("test_schemes", "test_an_interrupted_epoch_is_not_resumed")),
    Mutant("a begun epoch is not counted", "ByEpoch.events",
           "return epochs(multipliers.tolist(), self.epoch_length(examples)",
           "length = self.epoch_length(examples)\n"
           "return epochs(multipliers[: len(multipliers) // length * length].tolist(), length",
           among("test_schemes", "test_an_epoch_of_a_partition_is_one_release_with_its_least_noise")),
]  # fmt: skip

MASKS = [
    Mutant("the mask changes at every step", "MaskState.at",
           "self._times.block(step)", "step - 1", among("test_masked_training", "test_every_step_is_that_of_the_papers_listing")),
    Mutant("the ranking looks at what the step before released only", "MaskState.apply",
           "total.add_(released[name])", "released[name].clone()",
           among("test_kinds", "test_ranked_masks_leave_out_what_was_small_on_average_in_the_last_block")),
]  # fmt: skip

MOMENTUM = [
    Mutant("the outer momentum forgets nothing", "InnerOuter.accumulate", "(1 - self.outer) * before", "before",
           among("test_momentum", "test_steps_are_those_of_the_paper", "test_momentum_has_the_noise_of_a_geometric_sum")),
    Mutant("the past is weighted alike", "InnerOuter.coefficients",
           "self.inner**age for age in", "self.inner for age in", among("test_momentum", "test_steps_are_those_of_the_paper")),
]  # fmt: skip

TRAINING = [
    Mutant("sums are divided by how many were drawn", "Loop._step",
           "self._noise, self._state.divisor,", "self._noise, max(1.0, float(clipped.norms.shape[-1])),",
           among("test_planned_draws", "test_training_takes_each_draw_whole_and_divides_by_the_public_size")),
    Mutant("ranked masks leave coordinates without noise", "Loop._step", "clipped = clipped.with_dense_noise()", "pass",
           among("test_masked_training", "test_ranked_noise_is_released_everywhere_and_moves_what_is_kept")),
    Mutant("dropped coordinates move by noise", "MaskState.apply", "masks = self._masks or {}", "masks = {}",
           among("test_masked_training", "test_ranked_noise_is_released_everywhere_and_moves_what_is_kept")),
    Mutant("noise is for the last physical batch alone", "RunningSum.add", "if not self.sums:", "if True:",
           among("test_step_sums", "test_the_release_does_not_depend_on_the_physical_batch_size")),
    Mutant("a host's gradients add up", "TrainingState.put",
           "self._parameters[name].grad = directions[name]",
           "old = self._parameters[name].grad\n"
           "self._parameters[name].grad = directions[name] if old is None else old + directions[name]",
           among("test_hosts", "test_gradients_are_replaced_and_never_added_up")),
    Mutant("a host gets sums before they are divided", "Loop._step",
           "self._state.put(released)",
           "factor = plan.divisor if update is None else 1\n"
           "self._state.put({name: tensor * factor for name, tensor in released.items()})",
           among("test_hosts", "test_a_release_is_the_gradient_that_a_step_would_have_used")),
    Mutant("parameters may change", "Loop._check_unchanged", "check_same_parameters(self.model, self._parameters, self._kinds)",
           "pass", among("test_refusals", "test_a_parameter_that_is_frozen_or_added_mid_run_is_refused")),
    Mutant("parameters may change their kind", "check_same_parameters", "if kind != kinds[name]:", "if False:",
           among("test_refusals", "test_a_parameter_of_another_kind_is_refused_before_anything_is_spent[shorter]")),
    Mutant("more examples than the plan has are taken", "check_dataset", "if entries != examples:", "if entries < examples:",
           among("test_refusals", "test_a_data_set_of_another_size_is_refused")),
]  # fmt: skip

KINDS = [
    Mutant("draws of another kind are accounted for as its base's", "check_declared",
           "definer.get(name, -1) > drawing", "definer.get(name, -1) > len(kinds)",
           among("test_derived_kinds", "test_a_scheme_that_draws_otherwise_is_not_accounted_for_as_the_one_that_it_extends")),
    Mutant("what extends the noise is taken for it", "mechanism.check_own",
           "PARTS.get(kind.__name__) is not kind", "not any(base in PARTS.values() for base in kind.__mro__)",
           among("test_derived_kinds", "test_a_noise_of_ones_own_is_refused")),
]  # fmt: skip

SCHEDULES = [
    Mutant("what extends the constant schedule is taken for it", "schedules.is_constant",
           "type(schedule) is Constant", "isinstance(schedule, Constant)",
           among("test_plan_schedules", "test_a_schedule_that_extends_the_constant_one_is_accounted_for_as_what_it_does")),
    Mutant("factors are asked for again", "PrivacyMechanism._factors", "kept is not None and len(kept) == total", "False",
           among("test_plan_schedules", "test_factors_are_those_of_when_the_plan_was_made")),
    Mutant("calibration forgets the factors it solved for", "PrivacyMechanism.with_multiplier",
           'object.__setattr__(changed, "_tables", self._tables)', "pass",
           among("test_plan_schedules", "test_a_calibrated_plan_has_the_factors_that_it_was_calibrated_for")),
    Mutant("a step may have no noise", "schedules.factors_of", "(found > 0)", "(found >= 0)",
           among("test_schedules", "test_factors_that_are_not_one_positive_number_for_every_step_are_refused")),
]  # fmt: skip

MUTANTS = [*TRAINING, *NOISE, *SUMS, *CLIPPING, *SAMPLING, *MASKS, *MOMENTUM, *KINDS, *SCHEDULES]
