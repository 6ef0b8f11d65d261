"""Faults in noise that is correlated over the steps: its matrix, its sensitivity, its state, and the draws that it relies on."""

from functools import partial

from mutant import Mutant, among

PAST = partial(among, "test_past_noise")
STRATEGIES = partial(among, "test_strategies")
MADE = PAST("test_noise_is_what_the_matrix_makes_of_fresh_noise")

MUTANTS = [
    Mutant("past noise is not taken back", "PastBands._step", "alpha=weight", "alpha=0.5 * weight", MADE),
    Mutant("buffers forget too fast", "PastBuffers._step", "mul_(decay)", "mul_(decay**2)", MADE),
    Mutant("children count fully in a tree", "tree._combine", "((1 << level) - 1) * children", "(1 << level) * children", MADE),
    Mutant("noise goes on over a gap", "PastNoise.noise",
           "known != step or setting", "setting", PAST("test_noise_starts_afresh_where_the_mechanism_ends")),
    Mutant("noise goes on with new draws", "PastNoise.noise",
           "_Setting(first, ", "_Setting(1, ", PAST("test_noise_starts_afresh_where_the_mechanism_ends")),
    Mutant("an interrupted step leaves its state", "PastNoise.noise", "known, self._next = self._next, 0",
           "known, self._next = self._next, step + 1", PAST("test_an_interrupted_step_leaves_no_state_of_half_a_step")),
    Mutant("several participations cost one", "squared_sensitivity", "pattern_sums(majorant, separation, times)",
           "pattern_sums(majorant, separation, 1)", STRATEGIES("test_the_sensitivity_is_that_of_the_worst_pattern")),
    Mutant("columns that grow cost what they do at the first step", "squared_sensitivity",
           "np.maximum.accumulate(np.abs(column)[::-1])[::-1]", "column",
           STRATEGIES("test_no_gradients_of_an_example_move_the_mechanism_further")),
    Mutant("groups are drawn anew in every cycle", "CyclicPoisson.draws",
           "while True:", "while True:\n    groups = below(self.cycle, examples, words)",
           among("test_cyclic", "test_an_example_takes_part_at_the_same_place_of_every_cycle")),
    Mutant("a run resumes within a cycle", "CyclicPoisson.resumes_at",
           "step + (1 - step) % self.cycle", "step", among("test_cyclic", "test_a_run_resumes_at_a_new_cycle")),
    Mutant("an order is drawn anew in every epoch", "FixedOrder.draws",
           "cycle(self.partition(examples, words))", "super().draws(examples, words)",
           among("test_cyclic", "test_a_fixed_order_is_the_same_in_every_epoch_and_another_in_every_run")),
    Mutant("a tree counts one level", "Tree.gain", "math.sqrt(levels(min(self._length, planned.steps)))", "1.0",
           among("test_correlated_plans", "test_a_tree_is_one_release_per_epoch")),
    Mutant("more bands than a cycle has steps", "Banded.check_participation", "self.bands > planned.separation", "False",
           among("test_correlated_plans", "test_combinations_without_a_proof_are_refused")),
]  # fmt: skip
