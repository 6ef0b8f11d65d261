"""Norms from random projections: distribution of the estimate at any scale, and refusals."""

import cases
import oracle
import pytest
import torch
from scipy import stats
from torch import nn

from privet.errors import InvalidArgumentError
from privet.gradients import estimated_norms, per_example_norms

ALPHA = 1e-6


@pytest.mark.parametrize("case", cases.by_name("mlp", "tanh-cnn", "transformer", "tied head", "group norm"), ids=str)
def test_squares_follow_a_chi_square_law(case):
    model, batch = case.model(torch.float64), case.batch(4, torch.float64)
    exact = oracle.norms_of(oracle.plain_gradients(model, case.loss, batch))
    draws = 150

    def p_values():
        found = torch.stack([estimated_norms(model, case.loss, batch, 3) for _ in range(draws)])
        return [stats.kstest((3 * (found[:, i] / exact[i]).square()).numpy(), stats.chi2(3).cdf).pvalue for i in range(4)]

    assert min(p_values()) > ALPHA / 4 or min(p_values()) > ALPHA / 4


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_many_projections_come_close(scale):
    (case,) = cases.by_name("mlp")
    model, batch = case.model(torch.float64), case.batch(5, torch.float64)
    exact = oracle.norms_of(oracle.plain_gradients(model, case.loss, batch)) * scale
    found = estimated_norms(model, lambda m, b: scale * case.loss(m, b), batch, 400)
    assert found.dtype == torch.float64
    assert ((found / exact - 1).abs() < 6 / 800**0.5).all()


def test_a_generator_makes_it_repeatable():
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    one, other = (
        estimated_norms(model, lambda m, b: m(b).sum(1), x, 2, generator=torch.Generator().manual_seed(5)) for _ in "12"
    )
    assert torch.equal(one, other)


def test_nothing_is_written_to_the_model():
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    before = model.weight.detach().clone()
    estimated_norms(model, lambda m, b: m(b).sum(1), x, 2)
    assert model.weight.grad is None
    assert torch.equal(model.weight, before)


@pytest.mark.parametrize("projections", [0, -1, 2.5, True])
def test_an_invalid_number_of_projections_is_refused(projections):
    with pytest.raises(InvalidArgumentError, match="projections"):
        estimated_norms(nn.Linear(3, 2), lambda m, b: m(b).sum(1), torch.randn(4, 3), projections)


def test_attention_is_measured_although_its_fused_kernels_have_no_forward_mode():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    x = torch.randn(5, 3, 8)

    def losses(model, batch):
        return model(batch).square().mean((1, 2))

    exact = per_example_norms(layer, losses, x)
    assert torch.allclose(estimated_norms(layer, losses, x, 300), exact, rtol=0.4)  # 10 standard deviations
