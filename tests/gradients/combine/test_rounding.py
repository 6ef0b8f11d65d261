"""Terms that nearly cancel: the weighted sum in float32 stays within the bound despite rounding."""

import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from privet.clipping import Automatic, Flat, Normalize
from privet.gradients import clipped_sum
from privet.gradients.combine.sums import Derivation, GroupedGrad, pull_back, sum_grads
from privet.gradients.core import per_example
from privet.gradients.core.per_example import DenseGrad
from privet.gradients.layers import linear
from privet.gradients.layers.convolution import gradient as convolution
from privet.gradients.layers.convolution import norms as convolution_norms
from privet.gradients.layers.convolution.geometry import Geometry
from privet.gradients.layers.convolution.gradient import ConvGrad
from privet.gradients.layers.convolution.norms import NORM_METHODS
from privet.gradients.layers.embedding import embedding
from privet.gradients.layers.embedding.embedding import EmbeddingGrad
from privet.gradients.layers.embedding.kernels import IN_TORCH, load_kernels
from privet.gradients.layers.linear import LinearGrad
from privet.gradients.masking.masked_gradients import MaskedGrad
from privet.gradients.masking.masks import Mask
from privet.gradients.methods.tape import Tape, clip

T, D = 40, 6
GEOMETRY = Geometry((D, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1)
GROUPED = Geometry((D, 1, 3, 3), (1, 1), (0, 0), (2, 2), 3)


def cancelling(shape, dim, left, seed):
    """Return numbers whose sum along a dimension is about `left` times their size."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x = x - x.mean(dim, keepdim=True) * (1 - left)
    return x.float()


def squeezed(x):
    """Return numbers that differ little from each other, so that the sum over positions cancels."""
    return 1 + 1e-3 * x


def scaled_weight(seed):
    """Return the derivation of a weight whose entries are scaled before use."""
    weight = torch.ones(D, D, requires_grad=True)
    return Derivation(weight * torch.rand(D, D, generator=torch.Generator().manual_seed(seed)), weight)


def grads(size, left, seed):
    """Return functions that make gradients of every kind."""
    a, g = size * torch.ones(1, T, D), cancelling((1, T, D), 1, left, seed)
    table = EmbeddingGrad(torch.zeros(1, T, dtype=torch.long), size * g, 2)
    images, out = size * torch.ones(1, 3, 8, 8), cancelling((1, D, 64), 2, left, seed).view(1, D, 8, 8)
    squeezed_images = size * squeezed(torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(seed)))
    narrow = cancelling((1, D, 16), 2, left, seed).view(1, D, 4, 4)
    return {
        "linear": lambda: LinearGrad(a, g),
        "embedding": lambda: table,
        "embedding and a mean": lambda: EmbeddingGrad(table.indices, table.gradients[:, :1].expand(1, T, D), 2),
        "two tables": lambda: sum_grads([table, EmbeddingGrad(table.indices, -table.gradients.flip(1), 2)]),
        "table and head": lambda: sum_grads([EmbeddingGrad(table.indices, size * g[..., :2], D), LinearGrad(a[..., :2], -g)]),
        "two linear maps": lambda: sum_grads([LinearGrad(a, g), LinearGrad(a, -g.flip(1))]),
        "direct": lambda: sum_grads([DenseGrad(size * g[:, 0]), DenseGrad(-size * g[:, 0] * (1 - left))]),
        "convolution": lambda: ConvGrad(images, out, GEOMETRY),
        "kept convolution": lambda: ConvGrad(images, out, GEOMETRY).to_dense(),
        "two convolutions": lambda: sum_grads([ConvGrad(squeezed_images, x, GROUPED) for x in (narrow, -narrow.flip(2))]),
        "derived": lambda: pull_back(LinearGrad(a, g), scaled_weight(seed)),
        "masked": lambda: MaskedGrad(LinearGrad(a, g), Mask(torch.ones(D, D, dtype=torch.bool))),
    }


def contribution(grad):
    """Return the norm of the contribution of a single example clipped to 0.7."""
    parameters = {"w": torch.zeros(grad.materialize().shape[1:])}
    sums, _ = clip(Tape(1, parameters, {"w": grad}), Flat(0.7), (("w",),))
    return float(sums["w"].double().norm())


EVERY = [*itertools.product([1.0, 1e4, 1e9], [1.0, 1e-3, 1e-6, 1e-8], range(5))]  # size, what is left, seed


@pytest.mark.parametrize("name", list(grads(1.0, 1.0, 0)))
def test_no_contribution_exceeds_the_bound(name, monkeypatch):
    monkeypatch.setattr(per_example, "_OTHERS", 0)  # the allowance for other examples would hide that another one is missing
    for module in (per_example, convolution):
        monkeypatch.setattr(module, "KEEP", 0)
    assert not [each for each in EVERY if not contribution(grads(*each)[name]()) <= 0.7]


@pytest.mark.parametrize("name", ["embedding", "embedding and a mean", "two tables", "table and head"])
def test_no_contribution_exceeds_the_bound_without_compiled_kernels(name, monkeypatch):
    monkeypatch.setattr(embedding, "load_kernels", lambda: IN_TORCH)
    assert not [each for each in EVERY if not contribution(grads(*each)[name]()) <= 0.7]


@pytest.mark.parametrize("form", [IN_TORCH, load_kernels()], ids=["torch", "here"])
@pytest.mark.parametrize("positions", [40, 400, 4000])
def test_equal_terms_that_are_all_rounded_the_same_way_stay_within_the_bound(form, positions, monkeypatch):
    monkeypatch.setattr(embedding, "load_kernels", lambda: form)
    for seed, shared in itertools.product(range(50), (True, False)):
        g = torch.rand(1, 1, 6, generator=torch.Generator().manual_seed(seed)).expand(1, positions, 6)
        # Mostly one token, such as padding, and a few others.
        indices = torch.where(torch.arange(positions) % 50 == 7, 1 + seed % 3, 0)[None]
        assert contribution(EmbeddingGrad(indices, g if shared else g.contiguous(), 5)) <= 0.7


def equal_positions(seed, positions, width):
    """Return one vector repeated at all positions, (1, T, width)."""
    return torch.rand(1, 1, width, generator=torch.Generator().manual_seed(seed)).expand(1, positions, width).contiguous()


@pytest.mark.parametrize("positions", [40, 400, 4000])
def test_equal_terms_of_a_weight_that_are_all_rounded_the_same_way_stay_within_the_bound(positions, monkeypatch):
    monkeypatch.setattr(linear, "KEEP", 0)
    monkeypatch.setattr(convolution, "KEEP", 0)
    for seed in range(8 if positions < 4000 else 2):
        a, g = equal_positions(seed, positions, 5), equal_positions(seed + 50, positions, D)
        some = LinearGrad(a[:, : positions // 4], g[:, : positions // 4])
        table = EmbeddingGrad(torch.zeros(1, positions, dtype=torch.long), a, D)
        image, out = (x.mT.reshape(1, -1, positions // 8, 8) for x in (equal_positions(seed, positions, 3), g))
        mask = Mask(torch.ones(D, 5, dtype=torch.bool))
        for grad in (
            LinearGrad(a, g),
            sum_grads([some, LinearGrad(a, g)]),
            sum_grads([table, LinearGrad(a, g)]),
            MaskedGrad(LinearGrad(a, g), mask),
            GroupedGrad(LinearGrad(a.view(4, -1, 5), g.view(4, -1, D)), 4),
            ConvGrad(image, out, GEOMETRY),
        ):
            assert contribution(grad) <= 0.7


@pytest.mark.parametrize("part", [0.25, 0.5, 0.75])
@pytest.mark.parametrize(("d", "p"), [(6, 6), (256, 128)])
def test_equal_terms_that_are_taken_back_do_not_leave_more_than_was_measured(part, d, p, monkeypatch):
    """Up to 2.6 times the bound without a margin per term and without recomputing what Gram matrices do not resolve."""
    monkeypatch.setattr(linear, "KEEP", 0)
    for seed, size in itertools.product(range(5), (1.0, 1e4, 1e6)):
        a, g = size * equal_positions(seed, 64, d), equal_positions(seed + 50, 64, p)
        up = int(64 * part)
        g[:, up:] *= -up / (64 - up)
        assert contribution(LinearGrad(a, g)) <= 0.7


@pytest.mark.parametrize("way", [name for name in NORM_METHODS if name != "product of norms"])
@pytest.mark.parametrize("geometry", [GEOMETRY, GROUPED], ids=["plain", "grouped"])
def test_no_way_to_measure_a_convolution_misses_a_long_gradient(geometry, way, monkeypatch):
    monkeypatch.setattr(convolution_norms, "cheapest_method", lambda shape: NORM_METHODS[way])
    positions = geometry.positions((8, 8))
    for size, left, seed in EVERY:
        images = size * squeezed(torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(seed)))
        out = cancelling((1, D, math.prod(positions)), 2, left, seed).view(1, D, *positions)
        assert contribution(ConvGrad(images, out, geometry)) <= 0.7, (size, left, seed)


@pytest.mark.parametrize(("rule", "scale"), [
    (Flat(1e-3), 1e10), (Flat(1e-3), 1e18), (Flat(1e-3), 1e19), (Normalize(1.0), 1e15), (Automatic(1.0, 1e-12), 1e19),
], ids=str)  # fmt: skip
@pytest.mark.parametrize(("layer", "shape"), [
    (lambda: nn.Linear(1000, 2, bias=False), (1, 1000)),  # one position: a product of norms
    (lambda: nn.Linear(300, 300, bias=False), (40, 300)),  # few positions: Gram matrices
    (lambda: nn.Conv1d(300, 300, 3, bias=False), (300, 12)),
    (lambda: nn.Conv1d(300, 2, 3, bias=False), (300, 3)),
], ids=["product", "gram", "convolution", "convolution, one position"])  # fmt: skip
def test_inputs_whose_squares_underflow_stay_within_the_bound_of_large_output_gradients(layer, shape, rule, scale):
    torch.manual_seed(0)
    x = torch.full((1, *shape), 2.5e-23)
    x.flatten(1)[:, 0] = 4e-23
    clipped = clipped_sum(layer(), lambda model, batch: scale * model(batch).flatten(1).sum(1), x, rule, method="ghost")
    assert float(torch.stack([t.double().norm() for t in clipped.tensors.values()]).norm()) <= clipped.sensitivity * (1 + 1e-6)


@pytest.mark.parametrize("groups", [1, 3])
def test_the_terms_of_a_convolution_are_those_of_its_positions(groups):
    torch.manual_seed(0)
    x, gradients = torch.randn(2, 3, 6, 6), torch.randn(2, 6, 4, 4)
    grad = ConvGrad(x, gradients, Geometry((6, 3 // groups, 3, 3), (1, 1), (0, 0), (1, 1), groups))
    patches = F.unfold(x, 3).view(2, groups, -1, 16).norm(dim=2)
    lengths = gradients.view(2, groups, -1, 16).norm(dim=2)
    torch.testing.assert_close(grad.abs_norm_bound(), (patches * lengths).sum((1, 2)).double(), rtol=1e-5, atol=0)
    assert (grad.abs_norm_bound() >= grad.materialize().flatten(1).norm(dim=1)).all()
