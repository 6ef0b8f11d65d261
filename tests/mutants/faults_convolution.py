"""Faults in convolutions: geometry, norm methods, layers."""

from mutant import Mutant, among, tape

GEOMETRY = [
    Mutant("all padding comes after the image", "Geometry._inside",
           "dimension, pad, size", "dimension, 0, size", tape("conv1d padding", "conv2d padding")),
    Mutant("patches are not dilated", "geometry._find_window",
           "(taps, step * dilation) for", "(taps, step) for", tape("conv1d groups", "conv2d dilation")),
    Mutant("patches take every position whatever the stride", "geometry._find_window",
           "(number, step * stride) for", "(number, step) for", tape("conv1d stride", "conv3d stride and padding")),
    Mutant("every group sees the channels of the first", "geometry._find_window",
           "(geometry.groups, geometry.shape[1] * channel)", "(geometry.groups, 0)", tape("conv2d groups", "conv3d depthwise")),
    Mutant("a kernel of one tap forgets the stride of the last dimension", "Geometry.patches_of",
           "seen[block].reshape", "seen[block].flip(-1).reshape", tape("conv2d 1×1, stride")),
    Mutant("the Gram matrix of pixels ignores padding", "Geometry._diagonals", "[dimension] - self.padding[dimension]",
           "[dimension]", among("test_convolution", "test_inner_products_of_patches_follow_from_those_of_pixels")),
    Mutant("the Gram matrix of pixels stops one pixel early", "Geometry._diagonals",
           "min(positions, size - offset)", "min(positions, size - offset - 1)",
           among("test_convolution", "test_inner_products_of_patches_follow_from_those_of_pixels")),
    Mutant("channels and positions of output gradients are mixed up", "Geometry.split_groups",
           "self.outputs, -1", "-1, self.outputs).transpose(1, 2", tape("conv2d plain", "transposed conv1d plain")),
    Mutant("depthwise kernels are turned round", "_form_depthwise",
           "zip(taps, gradients, strict=True)", "zip(taps[::-1], gradients, strict=True)",
           among("test_convolution", "test_norms_gradients_and_sums_are_those_of_torch")),
    Mutant("large examples keep the colours of the first", "_to_channels_last", "copy_(example.t())",
           "copy_(x.flatten(2)[0].t())", among("test_convolution", "test_large_examples_are_put_channels_last_one_at_a_time")),
]  # fmt: skip

KERNELS = [
    Mutant("gradients of a first layer are not turned back", "ConvGrad._form", "grad.gradients).transpose(1, 2))",
           "grad.gradients).view_as(formed))", among("test_convolution", "test_norms_gradients_and_sums_are_those_of_torch")),
    Mutant("two dimensions of the kernel change places in gradients that are kept", "ConvDenseGrad.materialize",
           "gradients.movedim", "gradients.transpose", tape("conv2d plain")),
    Mutant("two dimensions of the kernel change places in sums of what is kept", "ConvDenseGrad.weighted_sum",
           ".movedim(-1, 1).contiguous()", ".transpose(-1, 1).contiguous()", tape("conv2d plain")),
    Mutant("what is kept is summed with the square of the weights", "ConvDenseGrad.weighted_sum",
           "total = weights.to(self.dtype) @ self.gradients", "total = weights.square().to(self.dtype) @ self.gradients",
           tape("conv1d plain")),
    Mutant("factors are summed without weights", "ConvGrad.weighted_sum", "scaled = self.gradients * weights.to(self.dtype)",
           "scaled = self.gradients * torch.ones_like(weights, dtype=self.dtype)",
           tape("conv2d plain", "transposed conv2d plain")),
    Mutant("rounding is not allowed for", "ConvGrad.abs_norm_bound", "grad.abs_norm_bound", "0 * grad.abs_norm_bound",
           among("test_rounding", "test_the_terms_of_a_convolution_are_those_of_its_positions")),
    Mutant("rows of inputs and output gradients belong to different examples", "ConvGrad._linear_grads",
           "gradients[block]", "gradients[block].flip(0)", tape("conv2d plain")),
    Mutant("gradients are kept whatever their size", "gradient.choose_grad", "shape.weight <= KEEP * shape.factors", "True",
           among("test_convolution", "test_gradients_are_kept_while_they_are_few")),
]  # fmt: skip

WAYS = "test_every_way_to_measure_gives_the_same_norms"
CHOICE = "test_the_cheapest_way_follows_from_the_sizes"
MISSED = "test_no_way_to_measure_a_convolution_misses_a_long_gradient"
NORMS = [
    Mutant("one position: the norm of the patch is missing", "norms._norms_of_product", "product_norms(geometry.patches(x), ",
           "product_norms(torch.ones_like(geometry.patches(x)), ", tape("conv1d one position")),
    Mutant("formed: twice the norm", "norms._norms_of_formed", "squared_norms", "4 * squared_norms", tape("conv2d plain")),
    Mutant("Gram of patches: output gradients are missing", "_norms_by_patch_gram",
           "bmm(g.transpose(1, 2), g)", "ones_like(torch.bmm(g.transpose(1, 2), g))", among("test_convolution", WAYS)),
    Mutant("Gram of patches: positions' norms add up instead of their gradients", "_norms_by_patch_gram",
           "gram_sums(torch.bmm(a, a.transpose(1, 2)),",
           "gram_sums(torch.diag_embed(torch.bmm(a, a.transpose(1, 2)).diagonal(dim1=1, dim2=2)),",
           among("test_convolution", WAYS)),
    Mutant("Gram of pixels: output gradients are missing", "_norms_by_pixel_gram",
           "bmm(g.transpose(1, 2), g), (geometry.inputs, g.shape[1])", "ones_like(torch.bmm(g.transpose(1, 2), g)), (1, 1)",
           among("test_convolution", WAYS)),
    Mutant("Gram of pixels for any stride", "find_shape",
           "all(stride == 1 for stride in geometry.stride)", "True", among("test_convolution", WAYS)),
    Mutant("the product of norms for any number of positions", "NORM_METHODS",
           "lambda s: 0 if s.positions == 1 else math.inf", "lambda s: 0", tape("conv1d plain", "conv2d few positions, wide")),
    Mutant("the largest group stands for all", "norms.measure",
           ".view(-1, geometry.groups).sum(1)", ".view(-1, geometry.groups).amax(1)", tape("conv2d depthwise", "conv3d groups")),
    Mutant("the dearest way is the cheapest", "norms.cheapest_method",
           "return min(NORM_METHODS.values()", "return max(NORM_METHODS.values()", among("test_convolution", CHOICE)),
    Mutant("gradients that are dear to keep are kept", "is_keeping_cheaper",
           "shape.keeping <= cheapest_method(shape).cost(shape) + shape.summing", "True", among("test_convolution", CHOICE)),
    Mutant("the Gram matrix of pixels is taken to be dear", "_DIAGONAL",
           "_DIAGONAL = 15", "_DIAGONAL = 1500", among("test_convolution", CHOICE)),
]  # fmt: skip

FORWARD = "test_the_forward_pass_is_torchs_own"
LAYERS = [
    Mutant("same: the odd zero comes first", "handlers._read_settings",
           "for side in (0, total % 2))", "for side in (total % 2, 0))", among("test_convolution", FORWARD)),
    Mutant("the bias is averaged over the positions", "_follow.record", "DenseGrad(grad.flatten(2).sum(2))",
           "DenseGrad(grad.flatten(2).mean(2))", tape("conv2d plain", "transposed conv2d plain")),
    Mutant("the bias has no gradient", "_follow.record",
           "follows(bias)", "follows(bias) and layer.output_padding is not None", tape("conv1d plain")),
    Mutant("input and output gradient do not change places in a transposed convolution", "_Layer.gradient",
           "*(x, grad) if self.output_padding is None else (grad, x)", "x, grad", tape("transposed conv2d square")),
    Mutant("the input gradient of a convolution is that of the transposed one", "_Layer.pull_back",
           "is not None, self", "is None, self", tape("conv2d called twice")),
]  # fmt: skip

MUTANTS = [*GEOMETRY, *KERNELS, *NORMS, *LAYERS]
