import dataclasses
import math

import pytest
import torch
from recording import Seen, assert_agrees, physical, record
from torch import nn
from torch.nn import functional as F

import privet.gradients.layers.convolution.geometry
from privet.gradients.core import norms
from privet.gradients.layers.convolution import gradient as convolution
from privet.gradients.layers.convolution import norms as convolution_norms
from privet.gradients.layers.convolution.geometry import Geometry
from privet.gradients.layers.convolution.gradient import ConvDenseGrad, ConvGrad
from privet.gradients.layers.convolution.norms import NORM_METHODS

GEOMETRIES = [
    Geometry((4, 3, 3, 2), (1, 1), (0, 0), (1, 1), 1), Geometry((4, 3, 3, 2), (1, 1), (4, 1), (2, 3), 1),
    Geometry((4, 3, 3, 2), (2, 3), (1, 2), (1, 1), 1), Geometry((4, 3, 3, 2), (1, 2), (2, 1), (2, 3), 1),
    Geometry((4, 3, 1, 1), (2, 1), (0, 0), (1, 1), 1),
]  # fmt: skip
GROUPED = [
    Geometry((6, 2, 3, 2), (2, 1), (1, 0), (1, 2), 3), Geometry((6, 2, 3, 2), (1, 1), (1, 2), (2, 1), 3),
    Geometry((6, 1, 3, 3), (1, 1), (1, 1), (1, 1), 6), Geometry((6, 1, 3, 3), (1, 1), (1, 2), (1, 1), 6),
    Geometry((6, 1, 3, 2), (2, 3), (2, 1), (2, 3), 6), Geometry((6, 1, 3, 2), (1, 1), (1, 0), (1, 1), 3),
    Geometry((6, 2, 1, 1), (1, 2), (0, 0), (1, 1), 3),
]  # fmt: skip
OTHER_DIMENSIONS = [
    Geometry((4, 3, 3), (1,), (2,), (2,), 1), Geometry((4, 2, 2, 3, 1), (1, 1, 1), (1, 1, 0), (1, 2, 1), 2),
    Geometry((4, 2, 2, 3, 1), (2, 1, 2), (1, 0, 0), (1, 1, 1), 2), Geometry((3, 1, 3), (2,), (1,), (1,), 3),
    Geometry((4, 1, 2, 3, 2), (2, 1, 1), (1, 0, 1), (1, 1, 2), 4),
]  # fmt: skip
# Whole vectors of outputs, but not of inputs.
FIRST_LAYERS = [Geometry((16, 3, 3, 2), (2, 1), (1, 0), (1, 1), 1), Geometry((32, 1, 3, 3), (1, 1), (1, 1), (1, 1), 2)]
ONE_POSITION = Geometry((4, 3, 9, 8), (1, 1), (0, 0), (1, 1), 1)
SPACES = {1: (9,), 2: (9, 8), 3: (4, 5, 3)}


def make_grad(geometry, examples=4):
    torch.manual_seed(0)
    g = geometry
    space = SPACES[len(g.kernel)]
    x = torch.randn(examples, g.shape[1] * g.groups, *space)
    return ConvGrad(x, torch.randn(examples, g.shape[0], *g.positions(space)), geometry)


def gradients_of(some):
    """Return gradients by torch's own kernel, one example at a time, in float64."""
    pairs = zip(some.inputs.double(), some.gradients.double(), strict=True)
    return torch.stack([some.geometry.weight_gradient(x[None], g[None]) for x, g in pairs])


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_patches_are_what_unfold_gives(geometry):
    some = make_grad(geometry)
    columns = F.unfold(some.inputs, geometry.kernel, geometry.dilation, geometry.padding, geometry.stride)
    expected = columns.view(4, 3, math.prod(geometry.kernel), -1).permute(0, 3, 2, 1).flatten(2)  # taps, then channels
    assert torch.equal(geometry.patches(some.inputs), expected)
    last = some.inputs.contiguous(memory_format=torch.channels_last)
    assert torch.equal(geometry.patches(last), expected)


@pytest.mark.parametrize("geometry", [*GEOMETRIES, *GROUPED, *OTHER_DIMENSIONS], ids=str)
def test_inner_products_of_patches_follow_from_those_of_pixels(geometry):
    still = dataclasses.replace(geometry, stride=(1,) * len(geometry.kernel))
    x = make_grad(still).inputs.double()
    patches = still.patches(x)
    assert torch.allclose(still.patch_gram(x), patches @ patches.transpose(1, 2), rtol=1e-12, atol=1e-12)


def patches_follow_taps(geometry, x):
    """Return whether elements of one patch are contiguous, rather than those of neighbouring positions."""
    return geometry.patches(x).stride(2) == 1


@pytest.mark.parametrize(("geometry", "side", "taps"), [
    (Geometry((64, 64, 3, 3), (1, 1), (1, 1), (1, 1), 1), 32, True),
    (Geometry((16, 1, 8, 8), (2, 2), (3, 3), (1, 1), 1), 28, True),
    (Geometry((16, 1, 5, 5), (1, 1), (2, 2), (1, 1), 1), 28, False),
    (Geometry((64, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1), 32, False),
    (Geometry((64, 3, 3, 3), (2, 2), (1, 1), (1, 1), 1), 40, False),
    (Geometry((64, 3, 3, 3), (2, 2), (1, 1), (1, 1), 1), 32, True),
    (Geometry((32, 1, 3, 3), (1, 1), (1, 1), (1, 1), 32), 8, False),
    (Geometry((8, 8, 3, 3), (1, 1), (2, 2), (2, 2), 1), 20, False),
], ids=str)  # fmt: skip
def test_patches_are_copied_in_the_longer_runs(geometry, side, taps):
    x = torch.randn(2, geometry.shape[1] * geometry.groups, side, side)
    assert patches_follow_taps(geometry, x) == taps


def test_large_examples_are_put_channels_last_one_at_a_time(monkeypatch):
    some, geometry = make_grad(GEOMETRIES[2]), GEOMETRIES[2]
    assert patches_follow_taps(geometry, some.inputs)
    expected = geometry.patches(some.inputs)
    monkeypatch.setattr(privet.gradients.layers.convolution.geometry, "_LARGE", 1)
    assert torch.equal(geometry.patches(some.inputs), expected)


@pytest.mark.parametrize("cache", [1, 2000])
@pytest.mark.parametrize("geometry", [*GEOMETRIES, *GROUPED, *OTHER_DIMENSIONS, *FIRST_LAYERS, ONE_POSITION], ids=str)
def test_norms_gradients_and_sums_are_those_of_torch(geometry, cache, monkeypatch):
    monkeypatch.setattr(norms, "CACHE", cache)
    some = make_grad(geometry).double()
    expected = gradients_of(some)
    weights, index = torch.rand(4, dtype=torch.float64), torch.tensor([2, 0])
    for form in (some, some.to_dense()):
        assert torch.allclose(form.materialize(), expected, rtol=1e-12, atol=1e-12)
        assert torch.allclose(form.squared_norms(), expected.flatten(1).square().sum(1), rtol=1e-12)
        assert torch.allclose(form.weighted_sum(weights), torch.einsum("b,b...->...", weights, expected), rtol=1e-12, atol=1e-12)
        part, wanted = form.index_select(index), expected[index]
        assert torch.allclose(part.materialize(), wanted, rtol=1e-12, atol=1e-12)
        assert torch.allclose(part.squared_norms(), wanted.flatten(1).square().sum(1), rtol=1e-12)


@pytest.mark.parametrize(("geometry", "way"), [
    (geometry, way) for geometry in (*GEOMETRIES, *GROUPED, *OTHER_DIMENSIONS, ONE_POSITION) for way in NORM_METHODS
    if NORM_METHODS[way].cost(make_grad(geometry).shape) < math.inf
], ids=str)  # fmt: skip
def test_every_way_to_measure_gives_the_same_norms(geometry, way, monkeypatch):
    some = make_grad(geometry)
    monkeypatch.setattr(convolution_norms, "cheapest_method", lambda shape: NORM_METHODS[way])
    expected = gradients_of(some).flatten(1).square().sum(1)
    for cache in (1, 1 << 18):
        monkeypatch.setattr(norms, "CACHE", cache)
        found = some.squared_norms()
        assert torch.allclose(found, expected, rtol=5e-4)  # includes the rounding error of 64 terms
        assert torch.allclose(some.double().squared_norms(), expected, rtol=1e-12)
        assert (found >= expected * (1 - 1e-6)).all()


@pytest.mark.parametrize(("geometry", "side", "way", "kept"), [
    (Geometry((64, 64, 3, 3), (1, 1), (1, 1), (1, 1), 1), 32, "formed", True),
    (Geometry((128, 64, 3, 3), (2, 2), (1, 1), (1, 1), 1), 32, "formed", True),
    (Geometry((32, 32, 3, 3), (1, 1), (1, 1), (1, 1), 1), 7, "Gram of pixels", True),
    (Geometry((16, 81, 3, 3), (2, 2), (1, 1), (1, 1), 1), 7, "Gram of patches", True),
    (Geometry((256, 128, 3, 3), (2, 2), (1, 1), (1, 1), 1), 16, "Gram of patches", False),
    (Geometry((256, 256, 3, 3), (1, 1), (1, 1), (1, 1), 1), 8, "Gram of pixels", False),
    (Geometry((512, 512, 3, 3), (1, 1), (1, 1), (1, 1), 1), 4, "Gram of pixels", False),
    (Geometry((512, 512, 4, 4), (1, 1), (0, 0), (1, 1), 1), 4, "product of norms", False),
], ids=str)  # fmt: skip
def test_the_cheapest_way_follows_from_the_sizes(geometry, side, way, kept):
    x = torch.empty(2, geometry.shape[1], side, side, device="meta")
    grad = torch.empty(2, geometry.shape[0], *geometry.positions((side, side)), device="meta")
    shape = ConvGrad(x, grad, geometry).shape
    assert convolution_norms.cheapest_method(shape) is NORM_METHODS[way]
    assert convolution_norms.is_keeping_cheaper(shape) == kept


def test_gradients_are_kept_while_they_are_few(monkeypatch):
    model, x = nn.Conv2d(2, 3, 3), torch.randn(4, 2, 14, 14)

    def kept():
        tape = record(model, lambda m, x: m(x).square().sum((1, 2, 3)), x)
        return isinstance(tape.grads["weight"], ConvDenseGrad)

    assert kept()
    monkeypatch.setattr(convolution, "KEEP", 54 / (2 * 196 + 3 * 144) - 0.01)
    assert not kept()


@pytest.mark.parametrize("options", [
    {"kernel_size": (3, 2), "padding": "same"}, {"kernel_size": 4, "padding": "same", "dilation": 2},
    {"kernel_size": 3, "padding": "valid"}, {"kernel_size": 3, "padding": "same", "padding_mode": "reflect"},
], ids=str)  # fmt: skip
def test_the_forward_pass_is_torchs_own(options):
    model, x, seen = nn.Conv2d(2, 3, **options), torch.randn(4, 2, 9, 8), Seen()

    def loss(m, x):
        out = m(x)
        seen(physical(out))
        return out.square().sum((1, 2, 3))

    record(model, loss, x)
    assert torch.allclose(seen.items[0], model(x), atol=1e-6)


@pytest.mark.parametrize(("layer", "shape", "loss"), [
    (lambda: nn.Conv2d(1, 3, 3), (1, 6, 6), lambda m, x: torch.stack([m(image).square().sum() for image in x])),
    (lambda: nn.Conv1d(1, 3, 2), (4,), lambda m, x: m(x.reshape(-1, 1, 2)).view(len(x), -1).square().sum(1)),
    (lambda: nn.Conv1d(5, 3, 5), (5, 5, 5), lambda m, x: m(x.flatten(0, 1)).view(len(x), -1).square().sum(1)),
    (lambda: nn.Conv1d(5, 3, 5), (5, 5, 5), lambda m, x: m(x.movedim(1, 0)[:, 0]).view(len(x), -1).square().sum(1)),
], ids=[
    "no batch dimension", "several images in an example", "as many as there are channels", "images along the second dimension",
])  # fmt: skip
def test_images_belong_to_their_example_wherever_they_lie(layer, shape, loss):
    torch.manual_seed(0)
    model, x = layer(), torch.randn(5, *shape)
    assert_agrees(model, loss, x)
