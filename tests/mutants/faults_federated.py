"""Faults in federated learning: each lets a client move a sum further than stated, or tells of a client."""

from functools import partial

from mutant import Mutant, among

ROUNDS = partial(among, "test_rounds")
MESSAGES = partial(among, "test_messages")
CLIENTS = partial(among, "test_simulation")
ISOLATED = partial(among, "test_client_isolation")
ONE_BY_ONE = "test_code_that_would_share_random_numbers_trains_clients_one_by_one"
RUNS = partial(among, "test_federated")
AUDIT = partial(among, "test_federated_rounds")
SAME = AUDIT("test_both_ways_give_the_same_sums_without_noise")

MUTANTS = [
    Mutant("weights may exceed one", "contribution", ".nan_to_num(0.0).clamp(0.0, 1.0)", ".nan_to_num(0.0)",
           ROUNDS("test_weights_scale_clipped_updates_and_are_at_most_one")),
    Mutant("updates are weighted by what was not clipped", "_Weighted.squared_norms", "self.inner.squared_norms()",
           "self.inner.squared_norms() * 0", ROUNDS("test_weights_scale_clipped_updates_and_are_at_most_one")),
    Mutant("long messages stay long", "messages.checked", "if length > template.sensitivity else 1.0", "if length < 0 else 1.0",
           MESSAGES("test_a_forged_update_is_no_longer_than_the_sensitivity[flat-dense0]")),
    Mutant("messages are measured without noise scales", "messages.checked", "template.noise_scales.get(name, 1.0) for",
           "1.0 for", MESSAGES("test_an_update_where_there_is_least_noise_is_cut_to_the_sensitivity_there")),
    Mutant("counts may be forged", "messages.checked", "(found[COUNTS].abs() != 0.5)", "(found[COUNTS].abs() > 1e9)",
           MESSAGES("test_forged_statistics_count_as_nothing[0.0-adaptive]")),
    Mutant("numbers may be infinite", "messages.checked", "numbers.isfinite().all()", "numbers.isfinite().any()",
           MESSAGES("test_what_is_no_message_counts_as_nothing[flat-dense0]")),
    Mutant("a client counts as often as it sends", "sum_messages",
           "waiting.discard(client)", "pass", MESSAGES("test_only_clients_that_were_asked_count_and_each_once")),
    Mutant("whoever sends counts", "sum_messages",
           "if client not in waiting:", "if client < 0:", MESSAGES("test_only_clients_that_were_asked_count_and_each_once")),
    Mutant("a population may loosen the sensitivity", "_check_sum", "found.sensitivity > expected.sensitivity",
           "found.sensitivity < 0", RUNS("test_a_population_cannot_loosen_the_sensitivity_nor_show_its_errors")),
    Mutant("errors tell of the cohort", "Federated._sum", 'raise_hidden(error, "the', 'raise_hidden(error, f"{error}: the',
           RUNS("test_a_population_cannot_loosen_the_sensitivity_nor_show_its_errors")),
    Mutant("coordinates that are dropped get what a population returns", "_check_sum", "expected.noise_scales, expected.support",
           "expected.noise_scales, None", RUNS("test_coordinates_outside_a_mask_stay_zero_whatever_the_population_returns")),
    Mutant("what a model remembers of clients together stays", "Simulation._together", "self._guard.isolate(), ", "",
           CLIENTS("test_what_a_model_remembers_of_a_client_reaches_no_other[Remembering-1-True]")),
    Mutant("buffers begin anew in each local step of clients together", "Simulation._transformed", "buffers.update(after)",
           "pass", CLIENTS("test_buffers_live_through_the_local_steps_of_a_client_together_and_one_by_one")),
    Mutant("clients write to the server's parameters", "Simulation._gradient",
           ", GuardedCalls(self._guard, None):", ":", ISOLATED("test_writing_to_parameters_is_refused")),
    Mutant("a client that raises changes the program of others", "Simulation._train",
           "if number > 1:", "if False:", CLIENTS("test_a_client_that_raises_runs_alone[3]")),
    Mutant("clients may depend on those before them", "Simulation._try", "if not _is_close(expected, again):", "if False:",
           ISOLATED("test_updates_that_depend_on_earlier_clients_are_refused")),
    Mutant("clients share Python's numbers", "watch_generators",
           " or random.random() != _OF_PYTHON", "", ISOLATED(f"{ONE_BY_ONE}[Python's generator]")),
    Mutant("clients that differ together are trained together", "Simulation._try", "vectorise and not (same or is_random)",
           "False", ISOLATED("test_clients_that_would_differ_together_are_not_trained_together")),
    Mutant("a list of clients is that of its owner", "_Sequence.__init__", "tuple(clients) if type(clients) is list else clients",
           "clients", CLIENTS("test_a_list_of_clients_that_changes_between_rounds_changes_no_client")),
    Mutant("one client has several entries", "Simulation.__init__",
           "check_distinct(data)", "", ISOLATED("test_a_client_belongs_to_one_entry")),
    Mutant("parameters outside the modules are passed over", "Simulation._gradient",
           "each is not None for each in found[len(leaves) :]", "False for each in found[len(leaves) :]",
           ISOLATED("test_parameters_that_copies_would_not_replace_are_refused")),
    Mutant("padding counts", "train_locally", "% examples.clamp(min=1)", "% size", CLIENTS("test_padding_does_not_count")),
    Mutant("messages are cut to twice the sensitivity", "messages.checked", "template.sensitivity * _MARGIN / length",
           "2 * template.sensitivity / length", MESSAGES("test_a_forged_update_is_no_longer_than_the_sensitivity[flat-dense0]")),
    Mutant("masks are told of the first block", "server.tell",
           "times.block(number)", "times.block(1)", RUNS("test_masks_travel_as_the_numbers_that_they_are_drawn_from")),
    Mutant("a population writes to the model", "server.tell", "parameter.detach().clone()", "parameter.detach()",
           RUNS("test_what_a_population_does_to_the_parameters_that_it_is_told_reaches_nobody")),
    Mutant("clients are pushed away from the server", "train_locally", "(value - parameters[name])", "(parameters[name] - value)",
           CLIENTS("test_updates_are_those_of_plain_sgd[FedProx-False]")),
    Mutant("no messages are audited", "_Canaries.gather",
           ">= _BY_MESSAGES", ">= 0", AUDIT("test_clients_are_summed_by_messages_and_by_simulation")),
    Mutant("canaries of messages are silent", "_Canaries.gather",
           "if row.any() else nothing", "if not row.any() else nothing", SAME),
    Mutant("canaries of simulations are the first client", "_Rows.__getitem__", "np.array([client])", "np.array([0])", SAME),
]  # fmt: skip
