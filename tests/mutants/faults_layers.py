"""Faults in embeddings, embedding bags, normalisation layers and elementwise parameters."""

from mutant import Mutant, among, tape

MOVED = "test_moving_every_gradient_gives_the_same"

EMBEDDING = [
    Mutant("duplicates of a shared gradient count once each", "_measure_shared", "((2 * rank + 1) * counts).sum(1)",
           "counts.sum(1)", among("test_embedding_kernels", "test_norms_and_sums_are_those_of_dense_gradients[torch]")),
    Mutant("every example's rows add to those of the first", "reference._add_up",
           "slots + positions * torch.arange(batch, device=gradients.device)[:, None]", "slots",
           among("test_embedding_kernels", MOVED)),
    Mutant("rows are merged in the order of the indices", "_find_slots",
           "torch.empty_like(slots).scatter_(1, order, slots)", "slots", among("test_embedding_kernels", MOVED)),
    Mutant("equal indices overwrite each other in the sum", "reference.weighted_sum",
           "total.index_add_", "total.index_copy_", tape("embedding")),
    Mutant("equal indices overwrite each other in gradients", "EmbeddingGrad.materialize",
           "dense.scatter_add_", "dense.scatter_", tape("embedding of repeated tokens")),
    Mutant("rounding is not allowed for", "EmbeddingGrad.squared_norms",
           'add_rounding_error(squares, rounding, self.dtype, in_order=True)', "squares",
           among("test_rounding", "test_no_contribution_exceeds_the_bound")),
    Mutant("a negative padding index is ignored", "look_up.record",
           "else padding_idx % size", "else padding_idx", tape("embedding, negative padding index in a call")),
    Mutant("indices out of range are wrapped", "embedding.index", "where + len(table) * (where < 0)", "where % len(table)",
           among("test_embedding", "test_indices_out_of_range_contribute_nothing")),
]  # fmt: skip

BAGS = [
    Mutant("a mean is a sum", "_REDUCTIONS", '"mean": _mean', '"mean": _sum', tape("embedding bag, mean")),
    Mutant("a negative padding index is ignored", "embedding.embedding_bag", "input != padding_idx % weight.shape[0]",
           "input != padding_idx", tape("embedding bag, negative padding index in a call")),
    Mutant("bags run on into the next example's", "_pad_bags", "places < ends[:, None]", "places < ends.max()",
           among("test_embedding", "test_bags_that_begin_at_the_same_places_in_every_example_are_kept_apart")),
]  # fmt: skip

NORMALISATION = [
    Mutant("shifts have no gradient", "_Affine.record",
           "in ((self.weight, scales), (self.bias, shifts)):", "in ((self.weight, scales),):", tape("layer norm", "group norm")),
    Mutant("the output gradient is missing from scales", "_Affine.record_products",
           "normalised(block) * g[block]", "normalised(block) * torch.ones_like(g[block])", tape("layer norm over positions")),
    Mutant("scales see inputs that are not divided by the deviation", "_LayerNorm.backward.normalised",
           "centred.mul_(scales)", "centred", tape("layer norm")),
    Mutant("scales see inputs that are not centred", "_LayerNorm.backward.normalised",
           "Tensor = inputs - means", "Tensor = inputs.clone()", tape("layer norm")),
    Mutant("positions are summed once too often", "_Affine.record_products.sums",
           "(len(g[block]), *shape)", "(len(g[block]), *shape).mul(1 + (product(block).dim() > 2))", tape("rms norm")),
    Mutant("layer norm: the bias is left out", "_LayerNorm.forward",
           "weight, bias, eps", "weight, None, eps", tape("layer norm")),
    Mutant("layer norm ignores eps", "layer_norm", "affine.apply(_LayerNorm, input, shape, eps)",
           "affine.apply(_LayerNorm, input, shape, 1e-5)", tape("layer norm with eps")),
    Mutant("rms norm ignores eps", "rms_norm",
           "F.rms_norm(input, shape, None, eps)", "F.rms_norm(input, shape, None, 1e-6)", tape("rms norm with eps")),
    Mutant("group norm: scales and shifts change places", "_GroupNorm.backward",
           "scales, lambda: shifts", "shifts, lambda: scales", tape("group norm")),
    Mutant("group norm: the scale is repeated number by number", "_GroupNorm.backward",
           "repeat(examples)", "repeat_interleave(examples)", tape("group norm in the middle")),
    Mutant("group norm: one group", "_GroupNorm.forward", "numel(), groups", "numel(), 1", tape("group norm")),
    Mutant("group norm, channels last: scales see inputs that are not divided by the deviation", "_group_normalised",
           "mul_(scales[block]).flatten", "flatten",
           among("test_normalisation", "test_inputs_and_output_gradients_may_come_in_any_memory_layout")),
    Mutant("group norm, channels last: every block has the first examples' means", "_group_normalised",
           "(inputs[block] - means[block])", "(inputs[block] - means[: len(inputs[block])])",
           among("test_normalisation", "test_inputs_and_output_gradients_may_come_in_any_memory_layout")),
    Mutant("group norm turns channels last into channels first", "_memory_format", "last if last is not None and kept else torch",
           "torch", among("test_normalisation", "test_group_norm_of_volumes_keeps_their_layout")),
    Mutant("scale and shift: the scale is missing from the input gradient", "_ScaleAndShift.backward",
           "grad if scale is None else grad * scale", "grad",
           among("test_normalisation", "test_outputs_and_input_gradients_are_torchs_own")),
]  # fmt: skip

ELEMENTWISE = [
]  # fmt: skip

MUTANTS = [*EMBEDDING, *BAGS, *NORMALISATION, *ELEMENTWISE]
