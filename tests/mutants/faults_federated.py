"""Faults in federated learning: each lets a client move a sum further than stated, or tells of a client."""

from functools import partial

from mutant import Mutant, among

ROUNDS = partial(among, "test_rounds")
MESSAGES = partial(among, "test_messages")
CLIENTS = partial(among, "test_simulation")
RUNS = partial(among, "test_federated")

MUTANTS = [
    Mutant("weights may exceed one", "contribution",
           ".nan_to_num(0.0).clamp(0.0, 1.0)", ".nan_to_num(0.0)",
           ROUNDS("test_weights_scale_clipped_updates_and_are_at_most_one")),
    Mutant("updates are weighted by what was not clipped", "_Weighted.squared_norms",
           "self.inner.squared_norms()", "self.inner.squared_norms() * 0",
           ROUNDS("test_weights_scale_clipped_updates_and_are_at_most_one")),
    Mutant("long messages stay long", "messages.checked",
           "if length > template.sensitivity else 1.0", "if length < 0 else 1.0",
           MESSAGES("test_a_forged_update_is_no_longer_than_the_sensitivity[flat-dense-1000000.0]")),
    Mutant("messages are measured without noise scales", "messages.checked",
           "template.noise_scales.get(name, 1.0) for", "1.0 for",
           MESSAGES("test_an_update_where_there_is_least_noise_is_cut_to_the_sensitivity_there")),
    Mutant("counts may be forged", "messages.checked",
           "(found[COUNTS].abs() != 0.5)", "(found[COUNTS].abs() > 1e9)",
           MESSAGES("test_forged_statistics_count_as_nothing[0.0-adaptive]")),
    Mutant("numbers may be infinite", "messages.checked",
           "numbers.isfinite().all()", "numbers.isfinite().any()",
           MESSAGES("test_what_is_no_message_counts_as_nothing[flat-dense]")),
    Mutant("a client counts as often as it sends", "sum_messages",
           "waiting.discard(client)", "pass",
           MESSAGES("test_only_clients_that_were_asked_count_and_each_once")),
    Mutant("whoever sends counts", "sum_messages",
           "if client not in waiting:", "if client < 0:",
           MESSAGES("test_only_clients_that_were_asked_count_and_each_once")),
    Mutant("a population may loosen the sensitivity", "_check_sum",
           "found.sensitivity > expected.sensitivity", "found.sensitivity < 0",
           RUNS("test_a_population_cannot_loosen_the_sensitivity_nor_show_its_errors")),
    Mutant("errors tell of the cohort", "CohortSummer.sum_draw",
           "({type(error).__name__})", "({error})",
           RUNS("test_a_population_cannot_loosen_the_sensitivity_nor_show_its_errors")),
    Mutant("coordinates that are dropped get what a population returns", "_check_sum",
           "expected.noise_scales, expected.support", "expected.noise_scales, None",
           RUNS("test_coordinates_outside_a_mask_stay_zero_whatever_the_population_returns")),
    Mutant("what a model remembers of a client stays", "Simulation._one_by_one",
           "with self._guard.isolate():", "if True:",
           CLIENTS("test_what_a_model_remembers_of_a_client_reaches_no_other")),
    Mutant("what a model remembers of clients together stays", "Simulation._together",
           "with self._guard.isolate():", "if True:",
           CLIENTS("test_what_a_model_remembers_of_a_client_reaches_no_other")),
    Mutant("clients hand buffers on", "Simulation._copy_buffers",
           "each.clone()", "each",
           CLIENTS("test_large_buffers_reach_no_other_client_either")),
    Mutant("padding counts", "train_locally",
           "% examples.clamp(min=1)", "% size",
           CLIENTS("test_padding_does_not_count")),
]  # fmt: skip
