"""Faults in convex training: each makes what is released depend more on one example, or cost less, than is stated."""

from functools import partial

from mutant import Mutant, among

LOSSES = partial(among, "test_convex_losses")
PROFILE = partial(among, "test_privacy_loss")
FIT = partial(among, "test_convex_training")

MUTANTS = [
    Mutant("long rows stay long", "bound_rows", "norms.clamp_min(1.0)", "norms.clamp(1.0, 1.0)",
           among("test_bounded_rows", "test_no_row_is_longer_than_one[0.0-1.0]")),
    Mutant("rows that are not finite stay", "bound_rows", "bounded, torch.zeros_like(bounded))",
           "bounded, torch.ones_like(bounded))", among("test_bounded_rows", "test_what_is_not_finite_contributes_nothing")),
    Mutant("examples without a label contribute", "minimiser.read_rows",
           "torch.where(usable[part, None], bounded, torch.zeros_like(bounded))", "bounded",
           among("test_bounded_rows", "test_what_is_not_finite_contributes_nothing")),
    Mutant("one class less pushes", "Logistic.tails",
           "self.classes - 1", "1", LOSSES("test_gradients_push_in_as_many_directions_as_declared")),
    Mutant("gradients are as long as the row", "Logistic.lipschitz",
           "math.sqrt(2)", "1.0", LOSSES("test_no_gradient_is_longer_and_no_curvature_larger_than_declared")),
    Mutant("the determinant grows as for one class", "Logistic.log_determinant",
           "(self.classes - 1) * math", "1 * math", LOSSES("test_no_example_adds_more_to_the_log_determinant_than_declared")),
    Mutant("residuals are not clipped", "Huber.evaluate", "residuals.clamp(-self.threshold, self.threshold)", "residuals",
           LOSSES("test_no_gradient_is_longer_and_no_curvature_larger_than_declared")),
    Mutant("the gradient's own length is forgotten", "privacy_loss.composed_delta",
           "- mu**2 / 2", "+ mu**2 / 2", PROFILE("test_the_profile_of_two_tails_is_the_published_one")),
    Mutant("one direction is counted for all", "privacy_loss.composed_delta",
           "tails * (float", "1 * (float", PROFILE("test_the_profile_of_two_tails_is_the_published_one")),
    Mutant("cells are taken at their lower ends", "privacy_loss.composed_delta", "mu * _EDGES[1:], output_mu)",
           "mu * _EDGES[:-1], output_mu)", PROFILE("test_the_profile_of_two_tails_is_the_published_one")),
    Mutant("the noise on the minimiser is free", "ObjectivePerturbation.epsilon", 'output_mu=1 / self.queries["solution"]',
           "output_mu=0.0", among("test_convex_plan", "test_epsilon_of_objective_perturbation_is_that_of_its_theorem")),
    Mutant("replacing costs as much as removing", "OutputPerturbation._mu", '2.0 if adjacency == "replace-one" else 1', "1",
           among("test_convex_plan", "test_epsilon_of_output_perturbation_is_that_of_the_gaussian_mechanism")),
    Mutant("minimisers move half as far", "OutputPerturbation.sensitivity",
           "(loss.lipschitz + 2 * tolerance)", "(loss.lipschitz / 8 + 2 * tolerance)",
           FIT("test_no_example_moves_the_minimiser_further_than_the_sensitivity_of_output_perturbation")),
    Mutant("a computed minimiser counts as exact", "ObjectivePerturbation.sensitivity", "2 * tolerance / regularisation",
           "1e-3 * tolerance / regularisation", FIT("test_computed_minimisers_are_within_the_distance_that_output_noise_hides")),
    Mutant("gradients are taken for shorter than they are", "minimiser._norm", "gradient.norm()", "gradient.norm() / 100",
           among("test_minimiser", "test_the_gradient_is_as_short_as_promised_for_any_data[Logistic(classes=4)-1.0-0.0-random]")),
    Mutant("the objective is not perturbed", "convex_training.fit",
           'linear = release(nothing, record.reserve_query("objective"), source).tensors["weights"]',
           'release(nothing, record.reserve_query("objective"), source).tensors["weights"]',
           FIT("test_without_data_the_release_is_the_declared_noise")),
    Mutant("the noise on the objective has no length", "convex_training.fit",
           "plan.loss.lipschitz)", "0.5 * plan.loss.lipschitz)", FIT("test_without_data_the_release_is_the_declared_noise")),
    Mutant("noise on the objective is drawn before it is paid for", "convex_training.fit",
           'linear = release(nothing, record.reserve_query("objective"), source).tensors["weights"]',
           'found = source.normal(nothing.tensors["weights"].numel()).view(plan.shape) * plan.queries["objective"]\n'
           'record.reserve_query("objective")\n'
           "linear = found * plan.loss.lipschitz",
           FIT("test_every_draw_of_noise_is_in_the_ledger_before_it_is_drawn")),
]  # fmt: skip
