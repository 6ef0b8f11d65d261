"""Faults in accounting: each makes an ε, or the noise for one, too small or unstable."""

from functools import partial

from mutant import Mutant, among

REFERENCE = partial(among, "test_reference_values")
RELEASES = partial(among, "test_event_losses")
PAIRS = partial(among, "test_sampled_gaussian")
LOSSES = partial(among, "test_discrete_loss")
APART = partial(among, "test_composition")
SINGLE = partial(among, "test_single_release")
OTHERS = partial(among, "test_mechanism_losses")
BEYOND = partial(among, "test_decay")
REPLACED = REFERENCE("test_replacing_one_example_costs_more")

ONE_RELEASE = [
    Mutant("what lies above all nodes is forgotten", "_connect",
           "return masses, p", "return masses, 0 * p", PAIRS("test_what_lies_above_all_nodes_is_an_infinite_loss")),
    Mutant("masses move down", "connect_dots",
           "masses[..., 1:]", "masses[..., :-1]", LOSSES("test_connected_masses_keep_p_and_q_and_dominate")),
    Mutant("masses out of range move down", "connect_dots", "np.where(usable, np.clip(higher, 0.0, p), p)",
           "np.where(usable, np.clip(higher, 0.0, p), 0 * p)", LOSSES("test_masses_out_of_floating_point_range_move_up")),
    Mutant("what rounding hides is not counted", "connect_dots",
           "q + hidden_p + ratio * hidden_q", "q", LOSSES("test_what_rounding_may_have_hidden_moves_up")),
    Mutant("1 − q is taken for q", "_mix", "(1 - rates) * without.between + rates", "rates * without.between + (1 - rates)",
           PAIRS("test_one_release_is_never_too_small_and_close")),
    Mutant("who is replaced only disappears", "sampled_gaussian.poisson",
           "for centre in (1.0, -1.0))", "for centre in (1.0, 0.0))", REPLACED),
    Mutant("replacing without sampling moves the sum once", "single_release._mu",
           '2.0 if adjacency == "replace-one" else 1', "1", REPLACED),
    Mutant("a single release is amplified twice", "single_release.amplify", "return math.log1p(rate * math.expm1",
           "return rate * math.log1p(rate * math.expm1", SINGLE("test_gaussian_releases_are_exact_at_any_delta")),
    Mutant("δ of a single sampled release is that of the sample", "single_release._gaussian_epsilon",
           "(event.noise_multiplier, adjacency), delta / rate", "(event.noise_multiplier, adjacency), delta",
           SINGLE("test_gaussian_releases_are_exact_at_any_delta")),
    Mutant("only one of two replaced neighbours is a mixture", "single_release.replacement_log_delta",
           "lost = math.exp(min(epsilon + other - one, 0.0)) +", "lost = 0 * other +",
           SINGLE("test_gaussian_releases_are_exact_at_any_delta")),
    Mutant("Laplace noise of half the scale suffices", "single_release._laplace_epsilon",
           "reach + 2 * math", "reach / 2 + 2 * math", SINGLE("test_laplace_noise_is_exact")),
    Mutant("numbers beyond both centres lose nothing", "mechanism_losses.laplace",
           "(high, 0.5, 0.5 * math.exp(-reach))", "(high, 0.5 * math.exp(-reach), 0.5 * math.exp(-reach))",
           OTHERS("test_dp_accounting_agrees_on_laplace_noise_from_both_sides")),
    Mutant("replacing under Laplace noise moves a number once", "mechanism_losses._scale",
           '2 if adjacency == "replace-one" else 1', "1", OTHERS("test_replacing_moves_a_number_by_twice_the_bound")),
    Mutant("what an (ε, δ)-DP release reveals is forgotten", "mechanism_losses.bounded",
           "delta) * shares, delta, grid", "delta) * shares, 0.0, grid", OTHERS("test_deltas_of_releases_add_up")),
    Mutant("in a sample of fixed size replacing moves the sum once", "sampled_gaussian.without_replacement", "(deviations) / 2",
           "(deviations)", RELEASES("test_fixed_size_is_between_what_one_neighbour_costs_and_the_published_bound")),
    Mutant("samples of fixed size are hidden in one direction only", "sampled_gaussian.without_replacement",
           "= (positive * np.exp(-grid.values[middle + 1 :]))[:, ::-1]", "*= 1.0",
           RELEASES("test_fixed_size_is_between_what_one_neighbour_costs_and_the_published_bound")),
    Mutant("no example is cut from a truncated batch", "truncated_poisson", "truncated_batch_size=event.largest_batch",
           "truncated_batch_size=event.examples", RELEASES("test_truncation_costs_little_well_above_the_mean[1100-6.785-6.8]")),
    Mutant("estimates that are too small are taken for too large", "estimated_norms.poisson",
           "edges / projections", "projections / edges", RELEASES("test_estimated_norms_against_simulated_sensitivities")),
    Mutant("an epoch has twice the steps to hide in", "random_allocation.losses",
           "bin(steps)[3:]", "bin(steps)[2:]", RELEASES("test_no_sample_of_random_allocation_shows_more_loss_than_is_counted")),
]  # fmt: skip

TOGETHER = [
    Mutant("one release of each kind is forgotten", "_Sum.change",
           "self.fixed + self._to_quanta(logs, part.count)", "self.fixed + self._to_quanta(logs, part.count - 1)",
           among("test_composition", "test_no_tail_is_lost_and_hardly_any_added")),
    Mutant("a phase replaces the one before", "events.merge",
           "counts.get(key, 0) + event", "event", among("test_properties", "test_a_release_n_times_is_n_releases")),
    Mutant("only the first phase counts", "rdp.curve",
           "for event in events), np.zeros_like(ORDERS))", "for event in events[:1]), np.zeros_like(ORDERS))",
           among("test_properties", "test_composition_does_not_depend_on_order")),
    Mutant("all shuffled epochs cost one", "events.merge", "event.noise_multiplier, event.count", "event.noise_multiplier, 1",
           RELEASES("test_an_epoch_of_a_partition_costs_one_full_batch")),
    Mutant("an epoch has its largest multiplier", "events.epochs",
           "kind(min(values[first", "kind(max(values[first", RELEASES("test_epochs_take_the_smallest_multiplier_of_their_steps")),
    Mutant("deviations are added for variances", "events.combined", "sqrt(math.fsum(value**-2 for value in values))",
           "fsum(value**-1 for value in values) ** 0.5", RELEASES("test_releases_from_one_subsample_are_one_release")),
    Mutant("similar noise is rounded up", "_floor_to_ladder",
           "power = math.floor(math.log2(value) * per_octave)\n"
           "rung = 2.0 ** (power / per_octave)\nreturn float(rung if rung <= value else 2.0 ** ((power - 1",
           "return float(2.0 ** (math.ceil(math.log2(value) * per_octave",
           among("test_events", "test_rounding_down_is_never_more_noise_and_keeps_every_release")),
    Mutant("of two directions the better hidden one decides", "_max_delta",
           "decisive = max(", "decisive = min(", among("test_pld", "test_delta_covers_simulated_losses")),
    Mutant("far losses are forgotten", "composition._compose",
           "zip(sums, grids, strict=True)), reserve", "zip(sums[:1], grids[:1], strict=True)), reserve",
           APART("test_where_everything_is_rare_no_tail_is_lost_and_hardly_any_added")),
    Mutant("whole numbers may be too large for their type", "composition._compose",
           "infinite = 1.0", "infinite = 0.0", APART("test_wherever_far_losses_begin_nothing_is_lost")),
    Mutant("the dearest part is not what all cost", "parallel_epsilon", "return max(spent)", "return min(spent)",
           among("test_accounting_queries", "test_all_parts_cost_as_much_as_the_most_expensive_one")),
]  # fmt: skip

ANSWERS = [
    Mutant("a block holds as much as its largest mass says", "decay.uniform_masses",
           "np.minimum.reduceat", "np.maximum.reduceat", BEYOND("test_bounds_hold_for_any_masses")),
    Mutant("a block's spacing never repeats", "decay._gains", "ends[1:, None, None] * distances <= math.pi",
           "ends[1:, None, None] * distances >= 0", BEYOND("test_bounds_hold_for_any_masses")),
    Mutant("frequencies that are not summed are nothing", "composition._make_series",
           "float(sums_beyond(", "0 * float(sums_beyond(", APART("test_frequencies_that_are_not_summed_are_bounded")),
    Mutant("a search that starts too low stops there", "ComposedLoss.epsilon", "low >= high * (1 - _PRECISION)",
           "high - low <= _PRECISION * high", APART("test_epsilon_does_not_depend_on_where_the_search_starts")),
    Mutant("the distance to an expansion counts on one side", "edgeworth._claimed", "survival(points, False) + by[0]",
           "survival(points, False) + min(by[0], 0.0)", among("test_edgeworth", "test_distances_count_on_both_sides")),
    Mutant("ρ forgets that replacing moves twice as far", "zcdp._of_release",
           '2.0 if adjacency == "replace-one" else 1.0', "1.0", among("test_zcdp", "test_rho_adds_up_and_ignores_sampling")),
    Mutant("the conversion forgets how many orders there are to a test", "to_epsilon",
           "(orders - 1)", "orders", REFERENCE("test_rdp_is_what_its_best_order_gives")),
    Mutant("the classic conversion is taken for the improved one", "to_epsilon",
           "divergence + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders))", "divergence - math.log(delta)",
           REFERENCE("test_rdp_is_what_its_best_order_gives")),
    Mutant("σ is taken for σ²", "divergences",
           "(reach / s) ** 2 / 2", "(reach / s) / 2", REFERENCE("test_without_sampling_pld_and_gdp_are_the_analytic_gaussian")),
    Mutant("every release has the whole of δ", "composition_theorems._epsilons_and_counts",
           "_amplified_epsilon(event, delta / total, adjacency)", "_amplified_epsilon(event, delta, adjacency)",
           among("test_composition_theorems", "test_different_releases_share_delta_equally")),
    Mutant("noise is just too little", "smallest_multiplier",
           "return high", "return low", among("test_root_finding", "test_the_root_is_met_from_above_in_few_questions")),
    Mutant("there is a step too many", "largest_count",
           "return low", "return high", among("test_root_finding", "test_the_largest_count_is_found_in_few_questions")),
    Mutant("an attacker has less than a curve leaves", "false_negative_rate", "steep = 1 - privacy.deltas - np.where",
           "steep = 1 + privacy.deltas - np.where", among("test_tradeoff", "test_the_gaussians_curve_is_met_from_the_safe_side")),
]  # fmt: skip

FAR_BELOW = among("test_monotone", "test_an_epsilon_far_below_its_guess_is_refined")
UNSTEADY = [
    Mutant("what is expected of moments is asked once", "accountant._ROUNDS", "= 8, 1e-6", "= 1, 1e-6", FAR_BELOW),
    Mutant("what others have gained far losses have, too", "_Sum._to_quanta", "many[2] - (magnitudes - many[0])", "many[2]",
           APART("test_where_the_others_are_too_small_to_count_far_losses_make_up_for_it")),
    Mutant("far losses are never apart", "pld.accountant.epsilon", "if rounded else (closer", "if False else (closer",
           APART("test_far_losses_of_many_releases_are_those_of_a_plain_convolution")),
    Mutant("nothing is reserved for the rounding of few releases", "composition._RESERVED",
           "_RESERVED_ONCE = 128, 2**19", "_RESERVED_ONCE = 128, 0", APART("test_the_tilt_does_not_matter")),
    Mutant("similar releases share a range of losses", "event_losses.losses", "(type(event), grid)", "(type(event), grid.width)",
           RELEASES("test_losses_of_a_release_do_not_depend_on_what_is_asked_with_it")),
]  # fmt: skip

MUTANTS = [*ONE_RELEASE, *TOGETHER, *ANSWERS, *UNSTEADY]
