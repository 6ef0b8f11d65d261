"""Masks scale the noise by √(1−r) and leave more of the bound to kept coordinates; symmetric clouds have no asymmetry."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from privet.clipping import Flat, Unclipped
from privet.errors import InvalidArgumentError
from privet_experiments.studies import Deviations, deviations, sparsification_effect
from rounding import assert_equal_up_to_rounding


def test_noise_follows_the_law_and_the_signal_recovers_from_clipping():
    wide = nn.Linear(300, 40, bias=False)
    with torch.no_grad():
        wide.weight.normal_(generator=torch.Generator().manual_seed(0))
    inputs = torch.randn(4, 300, generator=torch.Generator().manual_seed(1))
    effect = sparsification_effect(
        wide, lambda model, batch: model(batch).square().sum(1), inputs, Flat(1e-3), rates=(0.0, 0.5, 0.9)
    )
    for ratios, law in zip(effect.noise, effect.law, strict=True):
        assert ratios == pytest.approx([law] * 5, abs=0.03)
    # All examples are clipped and all coordinates alike: the kept ones share the whole bound, 1/√(1−r) times as much each.
    for ratios, law in zip(effect.signal, effect.law, strict=True):
        assert ratios == pytest.approx([1 / law] * 5, rel=0.1)


def test_without_clipping_masks_do_not_change_kept_coordinates(model, loss_fn, batch):
    effect = sparsification_effect(model, loss_fn, batch, Unclipped(1.0, non_private=True), rates=(0.4,), masks=3)
    assert effect.signal[0] == pytest.approx([1.0] * 3)


def test_effect_is_marked_as_not_private(model, loss_fn, batch):
    effect = sparsification_effect(model, loss_fn, batch, Flat(0.2), rates=(0.5,), masks=2)
    assert str(effect).startswith("NOT PRIVATE")
    assert "√(1−r) = 0.7071" in str(effect)
    assert effect.to_dict()["private"] is False


@pytest.mark.parametrize("options", [{"rates": (1.0,)}, {"rates": (-0.1,)}, {"masks": 0}])
def test_rates_and_masks_out_of_range_are_refused(model, loss_fn, batch, options):
    with pytest.raises(InvalidArgumentError):
        sparsification_effect(model, loss_fn, batch, Flat(0.2), **options)


def test_symmetric_points_have_no_asymmetry_and_skewed_ones_do():
    generator = torch.Generator().manual_seed(3)
    normal = torch.randn(1500, 2, generator=generator)
    skewed = torch.empty(1500, 2).exponential_(generator=generator) - 1

    def asymmetry(points):
        return Deviations(tuple(map(tuple, points.tolist()))).asymmetry

    assert asymmetry(torch.cat([skewed, -skewed])) == pytest.approx(0.0, abs=5e-3)
    assert abs(asymmetry(normal)) < 0.01
    assert asymmetry(skewed) > 0.05


def test_deviations_are_projections_of_the_gradients_around_their_mean(model, loss_fn, batch):
    found = deviations(model, loss_fn, batch, seed=4)
    points = torch.tensor(found.points, dtype=torch.float64)
    assert points.shape == (24, 2)
    assert points.sum(0).abs().max() < 1e-9
    doubled = deviations(model, lambda net, some: 2 * loss_fn(net, some), batch, seed=4)
    assert_equal_up_to_rounding(torch.tensor(doubled.points, dtype=torch.float64), 2 * points)
    assert not torch.allclose(
        torch.tensor(deviations(model, loss_fn, batch, seed=5).points, dtype=torch.float64), points, rtol=1e-3
    )
    assert "NOT PRIVATE" in str(found)


def test_large_batches_are_projected_in_chunks(model, loss_fn, batch):
    inputs, labels = batch[0].repeat(6, 1), batch[1].repeat(6)
    points = torch.tensor(deviations(model, loss_fn, (inputs, labels)).points, dtype=torch.float64)
    assert torch.allclose(points[:24], points[120:], atol=1e-12)


def test_a_single_example_is_refused(model, loss_fn, batch):
    with pytest.raises(InvalidArgumentError, match="two"):
        deviations(model, loss_fn, (batch[0][:1], batch[1][:1]))
    assert math.isnan(Deviations(((0.0, 0.0), (0.0, 0.0))).asymmetry)
