"""Faults in what happens to a sum on its way to the parameters: sampling, clipping, masks, noise, and the values between."""

from functools import partial

from mutant import Mutant


def among(file: str, *tests: str) -> tuple[str, ...]:
    """Tests of one file."""
    return tuple(f"tests/{file}.py::{test}" for test in tests)


GAUSSIAN = partial(among, "noise/test_gaussian")
LAW = GAUSSIAN("test_noise_is_normal_with_deviation_multiplier_times_sensitivity_and_independent")

NOISE = [
    Mutant("the variance is taken for the deviation", "gaussian.py",
           "deviation = multiplier * sensitivity", "deviation = multiplier**2 * sensitivity",
           LAW, "noise"),
    Mutant("the deviation does not follow the sensitivity", "gaussian.py",
           "deviation = multiplier * sensitivity", "deviation = multiplier",
           LAW, "noise"),
    Mutant("three per cent of the noise are missing", "gaussian.py",
           "cells = scales[which] * deviation / grids[which]", "cells = 0.97 * scales[which] * deviation / grids[which]",
           LAW, "noise"),
    Mutant("a group's noise scale is forgotten", "gaussian.py",
           "cells = scales[which] * deviation / grids[which]", "cells = deviation / grids[which]",
           GAUSSIAN("test_tensors_with_very_different_noise_levels_lie_on_separate_grids")
           + among("clipping/test_step_by_step", "test_training_is_the_papers_loop"), "noise"),
    Mutant("rounding costs nothing", "gaussian.py",
           "sensitivity = clipped.sensitivity + rounding", "sensitivity = clipped.sensitivity",
           GAUSSIAN("test_the_grid_costs_next_to_nothing"), "noise"),
    Mutant("the first tensor has no noise", "gaussian.py",
           "add_noise(sums[which][part], normals, cells", "add_noise(sums[which][part], normals * (which > 0), cells",
           LAW, "noise"),
    Mutant("all tensors share their noise", "gaussian.py",
           "piece, start = piece[part.stop - start :], part.stop", "piece, start = piece, part.stop",
           LAW, "noise"),
    Mutant("one number is noise for all", "gaussian.py",
           "add_noise(sums[which][part], normals, cells", "add_noise(sums[which][part], normals[:1].repeat(len(normals)), cells",
           LAW, "noise"),
    Mutant("a token is never used up", "gaussian.py",
           "multiplier = token.spend()", "multiplier = token.multiplier",
           GAUSSIAN("test_a_token_is_good_for_one_release"), "noise"),
    Mutant("anything can be noised", "gaussian.py",
           "if not isinstance(clipped, ClippedSum):", "if not hasattr(clipped, 'tensors'):",
           GAUSSIAN("test_only_a_clipped_sum_is_noised_and_a_refusal_spends_nothing"), "noise"),
    Mutant("data outside the mask is released", "gaussian.py",
           "own.new_zeros(total.numel()).index_copy_", "total.flatten().clone().index_copy_",
           GAUSSIAN("test_what_a_sum_holds_outside_its_support_is_not_released"), "noise"),
    Mutant("the sum is not rounded to the grid", "reference.py",
           ".div_(grid).round_().add_(noise)", ".div_(grid).add_(noise)",
           among("noise/test_kernels", "test_a_release_is_what_the_definition_says"), "noise"),
    Mutant("radii are too short", "reference.py",
           "radius.log_().mul_(-2.0).sqrt_()", "radius.log_().mul_(-1.9).sqrt_()",
           among("noise/test_kernels", "test_radii_span_the_whole_range_of_a_52_bit_uniform"), "noise"),
    Mutant("noise is never negative", "reference.py",
           "cosine = angle.mul_(2 * math.pi).cos()", "cosine = angle.mul_(2 * math.pi).cos().abs_()",
           LAW, "noise"),
    Mutant("a fork goes on with its parent's stream", "keystream.py",
           "if self._process != os.getpid():", "if self._process == -1:",
           among("noise/test_keystream", "test_a_fork_gets_a_new_stream"), "noise"),
    Mutant("the key is always the same", "keystream.py",
           "Cipher(algorithms.AES(os.urandom(32)), modes.CTR(os.urandom(16)))",
           "Cipher(algorithms.AES(bytes(32)), modes.CTR(bytes(16)))",
           among("noise/test_keystream", "test_instances_have_separate_streams"), "noise"),
    Mutant("words repeat in every piece", "keystream.py",
           "self._cipher.update_into(_ZEROS[: stop - start], content[start : stop + room])",
           "self._cipher.update_into(_ZEROS[: stop - start], content[: stop - start + room])",
           among("noise/test_keystream", "test_asking_twice_or_once_never_repeats_a_word"), "noise"),
    Mutant("a token is good for ever", "token.py",
           "self._spent = True", "self._spent = False",
           GAUSSIAN("test_a_token_is_good_for_one_release"), "noise"),
    Mutant("a fork spends its parent's token", "token.py",
           "if self._process != os.getpid():", "if self._process < 0:",
           GAUSSIAN("test_a_token_of_another_process_is_refused"), "noise"),
]  # fmt: skip

SUMS = [
    Mutant("parts that overlap join", "clipped_sum.py",
           "mine.draw != theirs.draw or mine.stop != theirs.start", "mine.draw != theirs.draw",
           among("clipping/test_clipped_sum", "test_parts_that_may_share_an_example_do_not_join"), "clipping"),
    Mutant("parts of different draws join", "clipped_sum.py",
           "mine.draw != theirs.draw or mine.stop != theirs.start", "mine.stop != theirs.start",
           among("clipping/test_clipped_sum", "test_parts_that_may_share_an_example_do_not_join"), "clipping"),
    Mutant("a sum joins with the smaller sensitivity", "clipped_sum.py",
           "max(self.sensitivity, other.sensitivity)", "min(self.sensitivity, other.sensitivity)",
           among("clipping/test_clipped_sum", "test_adjacent_parts_of_a_draw_join"), "clipping"),
    Mutant("a scaled sum keeps its sensitivity", "clipped_sum.py",
           "tensors=scale_tensors(self.tensors, number), sensitivity=self.sensitivity * abs(number))",
           "tensors=scale_tensors(self.tensors, number), sensitivity=self.sensitivity)",
           among("clipping/test_clipped_sum", "test_scaling_a_clipped_sum_scales_its_sensitivity"), "clipping"),
    Mutant("parts with different masks join", "clipped_sum.py",
           "if not _same_support(self.support, other.support):", "if False:",
           among("clipping/test_clipped_sum", "test_parts_with_different_masks_do_not_join"), "clipping"),
]  # fmt: skip

CLIPPING = [
    Mutant("long gradients are left as they are", "rules.py",
           "(self.bound / norms).clamp(max=1.0)", "(self.bound / norms).clamp(min=1.0)",
           among("clipping/test_rules", "test_no_contribution_exceeds_the_sensitivity"), "clipping"),
    Mutant("the indicator keeps what is too long", "rules.py",
           "(norms <= self.threshold)", "(norms <= 2 * self.threshold)",
           among("clipping/test_rules", "test_no_contribution_exceeds_the_sensitivity"), "clipping"),
    Mutant("the scale does not reach the noise", "psac.py",
           "return self.bound / self.scale", "return self.bound",
           among("clipping/test_rules", "test_no_contribution_exceeds_the_sensitivity"), "clipping"),
    Mutant("groups are clipped each to the whole bound", "layerwise.py",
           "(rules[0].scale_bound(1 / math.sqrt(count)),) * count", "(rules[0],) * count",
           among("clipping/test_layerwise", "test_no_contribution_exceeds_the_sensitivity_whatever_the_noise"), "clipping"),
    Mutant("groups with their own noise share one budget each", "layerwise.py",
           "common = math.hypot(*(bound / a for bound, a in zip(bounds, deviations, strict=True))) / self.sensitivity",
           "common = max(bound / a for bound, a in zip(bounds, deviations, strict=True)) / self.sensitivity",
           among("clipping/test_layerwise", "test_no_contribution_exceeds_the_sensitivity_whatever_the_noise"), "clipping"),
    Mutant("counts are not centred", "adaptive.py",
           "to(norms.dtype) - 0.5).sum(1)", "to(norms.dtype)).sum(1)",
           among("clipping/test_adaptive", "test_an_example_moves_the_counts_by_half_in_every_group_whatever_its_norms"),
           "clipping"),
    Mutant("counts are for nothing", "adaptive.py",
           "return self.rule.sensitivity / math.sqrt(1 - self.share)", "return self.rule.sensitivity",
           among("clipping/test_adaptive", "test_gradients_and_counts_share_one_mechanism"), "clipping"),
    Mutant("counts of many groups are noised as one", "adaptive.py",
           "bits = math.sqrt(len(self.groups(names))) / 2", "bits = 1 / 2",
           among("clipping/test_adaptive", "test_gradients_and_counts_share_one_mechanism"), "clipping"),
    Mutant("the schedule is a step behind", "state/clipping.py",
           "factor = self._factors[step - 1]", "factor = self._factors[max(step - 2, 0)]",
           among("training/test_step_sums", "test_every_step_clips_to_its_own_bound"), "training"),
]  # fmt: skip

SAMPLING = [
    Mutant("every step has the first step's sample", "poisson.py",
           "while True:\n            yield self.draw(examples, words)",
           "drawn = self.draw(examples, words)\n        while True:\n            yield drawn",
           among("sampling/test_poisson", "test_inclusion_is_an_independent_coin_for_every_example_and_step"), "sampling"),
    Mutant("every sample has the expected size", "poisson.py",
           "return distinct(binomial(examples, self.rate(examples), uniform(words)), examples, words)",
           "return distinct(round(self.batch_size), examples, words)",
           among("sampling/test_poisson", "test_inclusion_is_an_independent_coin_for_every_example_and_step"), "sampling"),
    Mutant("the cap cuts off those who come last", "poisson.py",
           "yield distinct(min(number, self.cap), examples, words)", "yield distinct(number, examples, words)[: self.cap]",
           among("sampling/test_schemes", "test_the_members_of_a_full_batch_are_a_uniform_subset"), "sampling"),
    Mutant("small numbers are favoured", "draws.py",
           "accepted = drawn if limit == 2**64 else drawn[drawn < np.uint64(limit)]", "accepted = drawn",
           among("sampling/test_draws", "test_words_that_would_favour_small_numbers_are_drawn_again"), "sampling"),
    Mutant("every epoch has the same partition", "scheme.py",
           "while True:\n            yield from self.partition(examples, words)",
           "drawn = self.partition(examples, words)\n        while True:\n            yield from drawn",
           among("sampling/test_schemes", "test_epochs_are_partitioned_anew"), "sampling"),
    Mutant("a broken epoch is gone on with", "scheme.py",
           "return step + (1 - step) % length", "return step",
           among("sampling/test_schemes", "test_an_interrupted_epoch_is_not_resumed"), "sampling"),
    Mutant("a begun epoch is not counted", "scheme.py",
           "return epochs(multipliers.tolist(), self.epoch_length(examples), self.accounted_as)",
           "length = self.epoch_length(examples)\n"
           "        return epochs(multipliers[: len(multipliers) // length * length].tolist(), length, self.accounted_as)",
           among("sampling/test_schemes", "test_an_epoch_of_a_partition_is_one_release_with_its_least_noise"), "sampling"),
]  # fmt: skip

MASKS = [
    Mutant("the mask changes at every step", "state/masks.py",
           "block = self._times.block(step)", "block = step - 1",
           among("sparsification/test_masked_training", "test_every_step_is_that_of_the_papers_listing"), "training"),
    Mutant("the ranking looks at what the step before released only", "state/masks.py",
           "total.add_(released[name])", "released[name].clone()",
           among("sparsification/test_kinds", "test_ranked_masks_leave_out_what_was_small_on_average_in_the_last_block"),
           "training"),
]  # fmt: skip

MOMENTUM = [
    Mutant("the outer momentum forgets nothing", "momentum.py",
           "(1 - self.outer) * before + released", "before + released",
           among("test_momentum", "test_steps_are_those_of_the_paper", "test_momentum_has_the_noise_of_a_geometric_sum"), ""),
    Mutant("the past is weighted alike", "momentum.py",
           "self.inner**age for age in", "self.inner for age in",
           among("test_momentum", "test_steps_are_those_of_the_paper"), ""),
]  # fmt: skip

TRAINING = [
    Mutant("sums are divided by how many were drawn", "loop.py",
           "divide_(self.plan.divisor)", "divide_(max(1.0, float(clipped.norms.shape[-1])))",
           among("sampling/test_planned_draws", "test_training_takes_each_draw_whole_and_divides_by_the_public_size"),
           "training"),
    Mutant("ranked masks leave coordinates without noise", "loop.py",
           "clipped = clipped.with_dense_noise()", "pass",
           among("sparsification/test_masked_training", "test_ranked_noise_is_everywhere"), "training"),
    Mutant("noise is for the last physical batch alone", "clipped_sums.py",
           "total = summed if total is None else total.join(summed)", "total = summed",
           among("training/test_step_sums", "test_the_release_does_not_depend_on_the_physical_batch_size"), "training"),
    Mutant("parameters may change", "loop.py",
           "check_same_parameters(self.model, self._parameters)", "pass",
           among("training/test_refusals", "test_a_parameter_that_is_frozen_or_added_mid_run_is_refused"), "training"),
    Mutant("more examples than the plan has are taken", "batches.py",
           "if entries != examples:", "if entries < examples:",
           among("training/test_refusals", "test_a_data_set_of_another_size_is_refused"), "reading"),
]  # fmt: skip

MUTANTS = [*TRAINING, *NOISE, *SUMS, *CLIPPING, *SAMPLING, *MASKS, *MOMENTUM]
