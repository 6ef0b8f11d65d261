import math

import pytest
import torch
from torch import nn

from privet.errors import InvalidArgumentError
from privet.optim import NAG, UncorrectedAdam


def follow(make, gradients):
    weight = nn.Parameter(torch.tensor([0.4], dtype=torch.float64))
    optimizer, found = make([weight]), []
    for gradient in gradients:
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
        found.append(weight.item())
    return found


def test_adam_without_correction_is_the_listing_of_the_calibration_paper():
    gradients = (torch.randn(30) + 0.3).tolist()
    w, m, u, expected = 0.4, 0.0, 0.0, []
    for g in gradients:
        m, u = 0.8 * m + 0.2 * g, 0.95 * u + 0.05 * g * g
        w -= 0.07 * m / (math.sqrt(u) + 1e-3)
        expected.append(w)
    assert follow(lambda p: UncorrectedAdam(p, 0.07, betas=(0.8, 0.95), eps=1e-3), gradients) == pytest.approx(expected, rel=1e-8)


def test_nag_is_the_published_recursion():
    gradients = torch.randn(30).tolist()
    x, y, expected = 0.4, 0.4, []
    for t, g in enumerate(gradients, start=1):
        x, before = y - 0.1 * g, x
        y = x + (t - 1) / (t + 2) * (x - before)
        expected.append(y)
    assert follow(lambda p: NAG(p, 0.1), gradients) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("kind", [UncorrectedAdam, NAG])
def test_parameters_without_gradient_stay(kind):
    weight = nn.Parameter(torch.ones(2))
    kind([weight], 0.1).step()
    assert weight.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda p: UncorrectedAdam(p, 0.0), "lr"),
        (lambda p: UncorrectedAdam(p, 0.1, eps=0.0), "eps"),
        (lambda p: UncorrectedAdam(p, 0.1, betas=(0.9, 1.0)), "betas"),
        (lambda p: NAG(p, -1.0), "lr"),
    ],
)
def test_arguments_out_of_range_are_refused(make, name):
    with pytest.raises(InvalidArgumentError, match=f"^{name} is"):
        make([nn.Parameter(torch.zeros(1))])
