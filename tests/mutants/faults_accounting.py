"""Faults in what is told to accountants and in what they answer: each makes some ε, or noise for one, too small, or unsteady."""

from functools import partial

from faults_mechanism import among
from mutant import Mutant

REFERENCE = partial(among, "accounting/test_reference_values")
RELEASES = partial(among, "accounting/pld/test_event_losses")
PAIRS = partial(among, "accounting/pld/test_sampled_gaussian")
LOSSES = partial(among, "accounting/pld/test_discrete_loss")
APART = partial(among, "accounting/pld/test_composition")
REPLACED = REFERENCE("test_replacing_one_example_costs_more")

ONE_RELEASE = [
    Mutant("what lies above all nodes is forgotten", "pld/sampled_gaussian.py",
           "return masses, p.above", "return masses, 0 * p.above",
           PAIRS("test_what_lies_above_all_nodes_is_an_infinite_loss"), "accounting"),
    Mutant("masses move down", "pld/discrete_loss.py",
           "masses[..., 1:] += higher", "masses[..., :-1] += higher",
           LOSSES("test_connected_masses_keep_p_and_q_and_dominate"), "accounting"),
    Mutant("masses out of range move down", "pld/discrete_loss.py",
           "np.where(usable, np.clip(higher, 0.0, p), p)", "np.where(usable, np.clip(higher, 0.0, p), 0 * p)",
           LOSSES("test_masses_out_of_floating_point_range_move_up"), "accounting"),
    Mutant("what rounding hides is not counted", "pld/discrete_loss.py",
           "higher = (p - ratio * q + hidden_p + ratio * hidden_q)", "higher = (p - ratio * q)",
           LOSSES("test_what_rounding_may_have_hidden_moves_up"), "accounting"),
    Mutant("1 − q is taken for q", "pld/sampled_gaussian.py",
           "(1 - rates) * without.between + rates * sampled.between",
           "rates * without.between + (1 - rates) * sampled.between",
           PAIRS("test_one_release_is_never_too_small_and_close"), "accounting"),
    Mutant("who is replaced only disappears", "pld/sampled_gaussian.py",
           "for centre in (1.0, -1.0))", "for centre in (1.0, 0.0))", REPLACED, "accounting"),
    Mutant("replacing without sampling moves the sum once", "pld/accountant.py",
           'sensitivity = 2.0 if adjacency == "replace-one" else 1.0', "sensitivity = 1.0", REPLACED, "accounting"),
    Mutant("in a sample of fixed size replacing moves the sum once", "pld/sampled_gaussian.py",
           'poisson(rates, np.asarray(deviations) / 2, "add-remove", grid)[0]',
           'poisson(rates, np.asarray(deviations), "add-remove", grid)[0]',
           RELEASES("test_fixed_size_is_between_what_one_neighbour_costs_and_the_published_bound"), "accounting"),
    Mutant("samples of fixed size are hidden in one direction only", "pld/sampled_gaussian.py",
           "masses[:, :middle] = (positive * np.exp(-grid.values[middle + 1 :]))[:, ::-1]", "masses[:, :middle] *= 1.0",
           RELEASES("test_fixed_size_is_between_what_one_neighbour_costs_and_the_published_bound"), "accounting"),
    Mutant("nobody is pushed out of a truncated batch", "pld/interop.py",
           "truncated_batch_size=event.largest_batch", "truncated_batch_size=event.examples",
           RELEASES("test_truncation_costs_little_well_above_the_mean[1100-6.785-6.8]"), "accounting"),
    Mutant("estimates that are too small are taken for too large", "pld/estimated_norms.py",
           "deviation * np.sqrt(edges / projections), adjacency", "deviation * np.sqrt(projections / edges), adjacency",
           RELEASES("test_estimated_norms_against_simulated_sensitivities"), "accounting"),
    Mutant("an epoch has twice the steps to hide in", "pld/random_allocation.py",
           "for bit in bin(steps)[3:]:", "for bit in bin(steps)[2:]:",
           RELEASES("test_no_sample_of_random_allocation_shows_more_loss_than_is_counted"), "accounting"),
]  # fmt: skip

TOGETHER = [
    Mutant("one release of each kind is forgotten", "pld/composition.py",
           "self.fixed + self._to_quanta(logs, part.count)", "self.fixed + self._to_quanta(logs, part.count - 1)",
           among("accounting/pld/test_composition", "test_no_tail_is_lost_and_hardly_any_added"), "accounting"),
    Mutant("a phase replaces the one before", "events.py",
           "counts[key] = counts.get(key, 0) + event.count", "counts[key] = event.count",
           among("accounting/test_properties", "test_a_release_n_times_is_n_releases"), "accounting"),
    Mutant("only the first phase counts", "rdp/accountant.py",
           "for event in events), np.zeros_like(ORDERS))", "for event in events[:1]), np.zeros_like(ORDERS))",
           among("accounting/test_properties", "test_composition_does_not_depend_on_order"), "accounting"),
    Mutant("all shuffled epochs cost one", "events.py",
           "Event(1.0, event.noise_multiplier, event.count) if _is_whole_epoch",
           "Event(1.0, event.noise_multiplier, 1) if _is_whole_epoch",
           RELEASES("test_an_epoch_of_a_partition_costs_one_full_batch"), "accounting"),
    Mutant("an epoch has its largest multiplier", "events.py",
           "kind(min(values[first", "kind(max(values[first",
           RELEASES("test_epochs_take_the_smallest_multiplier_of_their_steps"), "accounting"),
    Mutant("deviations are added for variances", "events.py",
           "1 / math.sqrt(math.fsum(value**-2 for value in values))", "1 / math.fsum(value**-1 for value in values) ** 0.5",
           RELEASES("test_releases_from_one_subsample_are_one_release"), "accounting"),
    Mutant("similar noise is rounded up", "events.py",
           "power = math.floor(math.log2(value) * per_octave)\n    rung = 2.0 ** (power / per_octave)\n"
           "    return float(rung if rung <= value else 2.0 ** ((power - 1) / per_octave))",
           "return float(2.0 ** (math.ceil(math.log2(value) * per_octave) / per_octave))",
           among("accounting/test_events", "test_rounding_down_is_never_more_noise_and_keeps_every_release"), "accounting"),
    Mutant("of two directions the better hidden one decides", "pld/accountant.py",
           "decisive = max(", "decisive = min(",
           among("accounting/pld/test_pld", "test_delta_covers_simulated_losses"), "accounting"),
    Mutant("far losses are forgotten", "pld/composition.py",
           "zip(sums, grids, strict=True)), reserve", "zip(sums[:1], grids[:1], strict=True)), reserve",
           APART("test_where_everything_is_rare_no_tail_is_lost_and_hardly_any_added"), "accounting"),
    Mutant("only far losses count", "pld/composition.py",
           "zip(sums, grids, strict=True)), reserve", "zip(sums[-1:], grids[-1:], strict=True)), reserve",
           APART("test_wherever_far_losses_begin_nothing_is_lost"), "accounting"),
    Mutant("whole numbers may be too large for their type", "pld/composition.py",
           "infinite = 1.0", "infinite = 0.0",
           APART("test_wherever_far_losses_begin_nothing_is_lost"), "accounting"),
    Mutant("the dearest part is not what all cost", "composition/parallel.py",
           "return max(spent)", "return min(spent)",
           among("accounting/composition/test_parallel", "test_all_parts_cost_as_much_as_the_most_expensive_one"), "accounting"),
]  # fmt: skip

ANSWERS = [
    Mutant("the conversion forgets how many orders there are to a test", "rdp/accountant.py",
           "np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)",
           "np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / orders",
           REFERENCE("test_rdp_is_what_its_best_order_gives"), "accounting"),
    Mutant("the classic conversion is taken for the improved one", "rdp/accountant.py",
           "divergence + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)",
           "divergence - math.log(delta) / (orders - 1)",
           REFERENCE("test_rdp_is_what_its_best_order_gives"), "accounting"),
    Mutant("σ is taken for σ²", "rdp/accountant.py",
           "return ORDERS * (reach / s) ** 2 / 2", "return ORDERS * (reach / s) / 2",
           REFERENCE("test_without_sampling_pld_and_gdp_are_the_analytic_gaussian"), "accounting"),
    Mutant("every release has the whole of δ", "classic/composition_theorems.py",
           "_amplified_epsilon(event, delta / total, adjacency)", "_amplified_epsilon(event, delta, adjacency)",
           among("accounting/classic/test_composition_theorems", "test_different_releases_share_delta_equally"), "accounting"),
    Mutant("noise is just too little", "root_finding.py",
           "return high\n", "return low\n",
           among("accounting/test_root_finding", "test_the_root_is_met_from_above_in_few_questions"), "accounting"),
    Mutant("there is a step too many", "root_finding.py",
           "return low\n", "return high\n",
           among("accounting/test_root_finding", "test_the_largest_count_is_found_in_few_questions"), "accounting"),
    Mutant("an attacker has less than a curve leaves", "guarantee/tradeoff.py",
           "steep = 1 - privacy.deltas - np.where", "steep = 1 + privacy.deltas - np.where",
           among("accounting/guarantee/test_tradeoff", "test_the_gaussians_curve_is_met_from_the_safe_side"), "accounting"),
]  # fmt: skip

FAR_BELOW = among("accounting/test_monotone", "test_an_epsilon_far_below_its_guess_is_refined")
UNSTEADY = [
    Mutant("nothing is reserved for rounding", "pld/composition.py",
           "_RESERVED, _RESERVED_ONCE = 128, 2**19", "_RESERVED, _RESERVED_ONCE = 0, 0",
           among("accounting/pld/test_composition", "test_the_tilt_does_not_matter"), "accounting"),
    Mutant("what is expected of moments is asked once", "pld/accountant.py",
           "= 8, 1e-6", "= 1, 1e-6", FAR_BELOW, "accounting"),
    Mutant("what others have gained far losses have, too", "pld/composition.py",
           "many[2] - (magnitudes - many[0])", "many[2]",
           APART("test_where_the_others_are_too_small_to_count_far_losses_make_up_for_it"), "accounting"),
    Mutant("far losses are never apart", "pld/accountant.py",
           "if rounded else (closer", "if False else (closer",
           APART("test_far_losses_of_many_releases_are_those_of_a_plain_convolution"), "accounting"),
    Mutant("nothing is reserved for the rounding of few releases", "pld/composition.py",
           "_RESERVED_ONCE = 128, 2**19", "_RESERVED_ONCE = 128, 0",
           APART("test_the_tilt_does_not_matter"), "accounting"),
    Mutant("similar releases share a range of losses", "pld/event_losses.py",
           "(type(event), grid)", "(type(event), grid.width)",
           RELEASES("test_losses_of_a_release_do_not_depend_on_what_is_asked_with_it"), "accounting"),
]  # fmt: skip

MUTANTS = [*ONE_RELEASE, *TOGETHER, *ANSWERS, *UNSTEADY]
