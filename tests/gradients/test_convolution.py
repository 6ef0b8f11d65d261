"""Convolutions: patches as torch's own unfold sees them, gradients that are kept or formed again."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from privet.gradients import convolution, norms
from privet.gradients.convolution import ConvolutionUse, KernelUse
from privet.gradients.geometry import Geometry
from privet.gradients.interception import UntraceableError, record

GEOMETRIES = [
    Geometry((4, 3, 3, 2), (1, 1), (0, 0), (1, 1), 1),
    Geometry((4, 3, 3, 2), (2, 3), (1, 2), (1, 1), 1),
    Geometry((4, 3, 3, 2), (1, 2), (2, 1), (2, 3), 1),
]
GROUPED = Geometry((6, 2, 3, 2), (2, 1), (1, 0), (1, 2), 3)


def use(geometry, examples=4):
    torch.manual_seed(0)
    g = geometry
    x = torch.randn(examples, g.shape[1] * g.groups, 9, 8)
    out = F.conv2d(x, torch.randn(g.shape), None, g.stride, g.padding, g.dilation, g.groups)
    return ConvolutionUse(x, torch.randn_like(out), geometry)


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_patches_are_what_unfold_gives(geometry):
    some = use(geometry)
    columns = F.unfold(some.inputs, geometry.shape[2:], geometry.dilation, geometry.padding, geometry.stride)
    expected = columns.view(4, 3, 6, -1).permute(0, 3, 2, 1).flatten(2)  # taps, then channels
    assert torch.equal(geometry.patches(some.inputs), expected)


@pytest.mark.parametrize("cache", [1, 2000, 1 << 18])
@pytest.mark.parametrize("geometry", [*GEOMETRIES, GROUPED], ids=str)
def test_norms_gradients_and_sums_are_those_of_torch(geometry, cache, monkeypatch):
    monkeypatch.setattr(norms, "CACHE", cache)
    some = use(geometry).double()
    expected = torch.stack([
        geometry.weight_gradient(x[None], g[None])
        for x, g in zip(some.inputs, some.gradients, strict=True)
    ])  # fmt: skip
    weights = torch.rand(4, dtype=torch.float64)
    assert torch.allclose(some.per_example(), expected, rtol=1e-12, atol=1e-12)
    assert torch.allclose(some.squared_norms(), expected.flatten(1).square().sum(1), rtol=1e-12)
    assert torch.allclose(some.weighted_sum(weights), torch.einsum("b,b...->...", weights, expected), rtol=1e-12, atol=1e-12)
    index = torch.tensor([2, 0])
    assert torch.allclose(some.rows(index).per_example(), expected[index], rtol=1e-12, atol=1e-12)


def test_gradients_are_kept_while_they_are_few(monkeypatch):
    model, x = nn.Conv2d(2, 3, 3), torch.randn(4, 2, 14, 14)

    def kept():
        tape = record(model, lambda m, x: m(x).square().sum((1, 2, 3)), x, dict(model.named_parameters()))
        return isinstance(tape.uses["weight"], KernelUse)

    assert kept()
    monkeypatch.setattr(convolution, "KEEP", 54 / (2 * 196 + 3 * 144) - 0.01)
    assert not kept()


@pytest.mark.parametrize("options", [
    {"kernel_size": (3, 2), "padding": "same"}, {"kernel_size": 4, "padding": "same", "dilation": 2},
    {"kernel_size": 3, "padding": "valid"},
], ids=str)  # fmt: skip
def test_the_forward_pass_is_torchs_own(options):
    model, x, seen = nn.Conv2d(2, 3, **options), torch.randn(4, 2, 9, 8), []

    def loss(m, x):
        seen.append(m(x))
        return seen[-1].square().sum((1, 2, 3))

    record(model, loss, x, dict(model.named_parameters()))
    assert torch.allclose(seen[0], model(x), atol=1e-6)


def test_an_image_without_a_batch_dimension_is_not_followed():
    model, x = nn.Conv2d(1, 3, 3), torch.randn(2, 1, 6, 6)
    with pytest.raises(UntraceableError):
        record(model, lambda m, x: torch.stack([m(image).sum() for image in x]), x, dict(model.named_parameters()))
