"""Faults of the split of gradients by public subspaces, and of norms estimated from projections."""

from functools import partial

from mutant import Mutant, among

PROJECTIONS = partial(among, "test_projections")

MUTANTS = [
    Mutant("norms are estimated from the last projections", "clipping.estimate_norms",
           "squares += sum(", "squares = sum(", PROJECTIONS("test_directions_of_a_large_model_are_drawn_in_blocks")),
    Mutant("projections of some parameters are left out", "clipping.estimate_norms", "for name, grad in tape.grads.items()",
           "for name, grad in list(tape.grads.items())[:1]", PROJECTIONS("test_contributions_of_a_network_follow_the_law")),
    Mutant("every batch has directions of its own", "Clipper.clip", "self.groups, self.directions))]",
           "self.groups, Directions()))]", PROJECTIONS("test_steps_are_those_of_the_paper_in_physical_batches_of_any_size")),
    Mutant("an estimate that is not finite is a weight", "clip_projected", "sum_precisely(formed, groups, weights)", "sums",
           PROJECTIONS("test_a_gradient_that_only_a_backward_pass_finds_infinite_contributes_nothing")),
    Mutant("the embedding has noise as if it were all", "GEP.noise_scales", "self.sensitivity * math.sqrt(self.share)",
           "self.sensitivity", among("test_gep", "test_both_parts_are_one_mechanism_with_the_plans_multiplier")),
    Mutant("the shares of the parts are more than one", "GEP.noise_scales", "math.sqrt(1 - self.share)",
           "math.sqrt(1 + self.share)", among("test_gep", "test_both_parts_are_one_mechanism_with_the_plans_multiplier")),
    Mutant("a part that is rounding is scaled up to its bound", "GEP.weight",
           "precise.maximum(_RESOLVED * torch.linalg.vector_norm(precise, dim=0))", "precise",
           among("test_subspace", "test_a_part_that_is_rounding_is_not_scaled_up_to_its_bound")),
    Mutant("embeddings without residuals are computed in float32", "Subspace._split_at_once",
           "torch.float64 if self.rule.residual is None else ", "",
           among("test_subspace", "test_an_embedding_without_a_residual_is_computed_precisely")),
    Mutant("a schedule forgets the residual", "GEP.scale_bound",
           "self.residual.scale_bound(factor)", "self.residual", among("test_gep", "test_a_schedule_scales_both_bounds")),
    Mutant("subspaces are all as large as the largest", "GEP.ranks", "self.dimensions * math.sqrt(size) / total",
           "self.dimensions", among("test_gep", "test_dimensions_go_by_roots_of_sizes_and_no_subspace_is_larger_than_it_can_be")),
    Mutant("the residual keeps the embedding", "Subspace._split_at_once",
           "alpha=-1", "alpha=0", among("test_subspace", "test_sums_are_those_of_explicit_gradients")),
    Mutant("embeddings are not added to the step", "Subspace.join",
           "value[0] + released[name]", "released[name]", among("test_gep_training", "test_training_is_the_papers_loop")),
    Mutant("a dropped coordinate comes back through the basis", "_orthonormal",
           "basis.masked_fill((finite == 0).all(1, keepdim=True), 0.0)", "(basis + 1e-9)",
           among("test_subspace", "test_masks_apply_to_anchors_embeddings_and_residuals")),
    Mutant("anchors that are not finite spoil the subspace", "find_subspace",
           "gradients.where((gradients.norm(dim=1) < LONG)[:, None], 0.0)", "gradients",
           among("test_subspace", "test_anchors_without_a_finite_gradient_are_left_out")),
    Mutant("only the last anchors count", "find_subspace",
           "image += gradients.t() @ (gradients @ basis)", "image.copy_(gradients.t() @ (gradients @ basis))",
           among("test_subspace", "test_more_iterations_find_more_of_the_gradients")),
    Mutant("anchors are not masked", "Anchors.at", "tape if known is None else tape.mask(known)", "tape",
           among("test_gep_training", "test_random_masks_apply_to_anchors_gradients_and_noise")),
    Mutant("the same anchors serve all steps", "Anchors.at",
           "torch.randperm(self._number, generator=generator, device=\"cpu\")[: rule.anchors]", "torch.arange(rule.anchors)",
           among("test_gep_training", "test_anchors_are_drawn_anew_where_there_are_more")),
]  # fmt: skip
