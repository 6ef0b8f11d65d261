"""How often masks drop coordinates: counts of a training's masks, and the law of random ones."""

import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import privet
from privet.clipping import Flat
from privet.noise import Gaussian
from privet.sparsification import Random, Ranked
from privet_experiments.studies.mask_counts import MaskCounts


def trained(kind, sigma, steps=60, loss_of=lambda outputs, y: (outputs[:, 0] - y).square()):
    """Return the counts of a training of 400 coordinates, of which the first 20 have gradients."""
    torch.manual_seed(0)
    x = torch.zeros(40, 400)
    x[:, :20] = torch.randn(40, 20)
    plan = privet.Plan(
        examples=40, sampling=privet.sampling.Poisson(20), steps=steps, delta=1e-3, clipping=Flat(1.0), noise=Gaussian(sigma),
        sparsification=kind,
    )  # fmt: skip
    model = nn.Linear(400, 1, bias=False)
    counts = MaskCounts(plan, model)
    training = privet.Training(
        plan, model, lambda m, b: loss_of(m(b[0]), b[1]), torch.optim.SGD(model.parameters(), lr=1e-6),
        TensorDataset(x, 3 * x[:, :20].sum(1)),
    )  # fmt: skip
    for step in training:
        counts.add(step.number, training.masks)
    return counts


def test_random_masks_have_the_spread_of_chance():
    counts = trained(Random(0.5, seed=4), 1.0)
    blocks = 30
    rates = [0.5 * n / (blocks - 1) for n in range(blocks)]
    assert counts.counts.mean() == pytest.approx(sum(rates), rel=0.01)
    assert counts.expected_deviation == pytest.approx(math.sqrt(sum(r * (1 - r) for r in rates)), rel=0.01)
    assert counts.spread == pytest.approx(1.0, abs=0.2)


def test_ranking_by_noise_alone_is_chance_and_ranking_by_signal_is_not():
    noise, signal = trained(Ranked(0.5), 50.0), trained(Ranked(0.5), 0.01)
    assert noise.spread == pytest.approx(1.0, abs=0.3)
    assert signal.counts[:20].mean() < 0.5 * signal.counts[20:].mean()


def test_a_mask_of_several_steps_counts_once_and_no_mask_not_at_all():
    plan = privet.Plan(
        examples=40, sampling=privet.sampling.Poisson(20), steps=6, delta=1e-3, clipping=Flat(1.0), noise=Gaussian(1.0),
        sparsification=Random(0.5),
    )  # fmt: skip
    counts, mask = MaskCounts(plan, nn.Linear(2, 1, bias=False)), {"weight": torch.tensor([[True, False]])}
    for step, masks in enumerate((None, None, mask, mask, mask, mask), 1):
        counts.add(step, masks)
    assert counts.counts.tolist() == [0, 2]
    assert counts.deviation == 1.0
    unmasked = MaskCounts(dataclasses.replace(plan, sparsification=None), nn.Linear(2, 1))
    unmasked.add(1, None)
    assert math.isnan(unmasked.spread)
