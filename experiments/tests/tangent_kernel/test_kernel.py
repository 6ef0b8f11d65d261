"""The tangent kernel: that of autograd, its slope that of the loss, and the linear algebra of the paper's appendix."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from privet.clipping import PSAC, Automatic, Flat, Layerwise
from privet_experiments.tangent_kernel import TangentKernel, loss_slope, tangent_kernel
from privet_experiments.tangent_kernel.batch_clipping import BatchClipping

RULES = [
    None,
    Flat(0.7),
    Automatic(0.5, stability=0.1),
    BatchClipping(0.9),
    Layerwise(Flat(0.6)),
    Layerwise({"0.*": Flat(0.2), "2.*": PSAC(0.8, stability=0.05)}),
    Layerwise(PSAC(0.4, stability=0.05), by="parameter"),
]


def cross_entropy(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="none")


@pytest.fixture
def problem():
    generator = torch.Generator().manual_seed(1)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()
    inputs = torch.randn(6, 5, generator=generator, dtype=torch.float64) * torch.logspace(-1, 0.5, 6)[:, None]
    return model, cross_entropy, inputs, torch.randint(0, 3, (6,), generator=generator)


def jacobian(model, inputs, name):
    """Return (B·K, d) by plain autograd."""
    parameter = dict(model.named_parameters())[name]
    rows = [torch.autograd.grad(one, parameter, retain_graph=True)[0].flatten() for one in model(inputs).flatten()]
    return torch.stack(rows)


def test_kernel_is_that_of_plain_autograd(problem):
    model, criterion, inputs, targets = problem
    parts = [jacobian(model, inputs, name) for name, _ in model.named_parameters()]
    kernel = tangent_kernel(model, criterion, inputs, targets)
    assert torch.allclose(kernel.matrix, sum(part @ part.T for part in parts), rtol=1e-10)
    assert kernel.symmetric
    assert kernel.positive_in_quadratic_form
    assert kernel.positive_in_eigenvalues


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_clipping_multiplies_the_kernel_of_every_group_by_its_weights(problem, rule):
    model, criterion, inputs, targets = problem
    rule = rule or Flat(1e9)
    gradients = {}
    for name, parameter in model.named_parameters():
        losses = criterion(model(inputs), targets)
        gradients[name] = torch.stack([torch.autograd.grad(one, parameter, retain_graph=True)[0].flatten() for one in losses])
    groups = rule.groups(tuple(gradients))
    norms = torch.stack([torch.cat([gradients[name] for name in names], dim=1).norm(dim=1) for names in groups])
    expected = 0
    for names, row in zip(groups, rule.weights(norms), strict=True):
        part = torch.cat([jacobian(model, inputs, name) for name in names], dim=1)
        expected = expected + part @ part.T @ torch.diag(row.repeat_interleave(3))
    assert torch.allclose(tangent_kernel(model, criterion, inputs, targets, rule).matrix, expected, rtol=1e-9)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_predicted_slope_of_the_loss_is_the_measured_one(problem, rule):
    slope = loss_slope(*problem, rule)
    assert slope.predicted == pytest.approx(slope.measured, rel=1e-5)
    assert slope.predicted != 0


def test_any_module_has_a_kernel():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.GroupNorm(1, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2)).double()
    inputs, targets = torch.randn(4, 1, 6, 6).double(), torch.tensor([0, 1, 1, 0])
    slope = loss_slope(model, cross_entropy, inputs, targets, Layerwise(Flat(0.3)))
    assert slope.predicted == pytest.approx(slope.measured, rel=1e-4)
    assert tangent_kernel(model, cross_entropy, inputs, targets).matrix.shape == (8, 8)


def test_model_and_random_numbers_are_left_alone(problem):
    model, *rest = problem
    before, state = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    loss_slope(model, *rest, Flat(0.5))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in model.parameters())


def kernel(*rows):
    return TangentKernel(torch.tensor(rows, dtype=torch.float64))


@pytest.mark.parametrize(("rows", "smallest_real", "smallest_quadratic"), [
    (((1, 0.1), (1, 0.2)), 0.6 - 0.26**0.5, None),  # Fact A.1: a positive definite matrix times a positive diagonal one
    (((-1, 3), (-3, 8)), (7 - 3 * 5**0.5) / 2, -1),  # Fact A.2
    (((1, 1), (-1, 1)), 1, 1),  # Fact A.3: the eigenvalues are 1 ± i
])  # fmt: skip
def test_quadratic_form_and_eigenvalues_may_differ_in_sign(rows, smallest_real, smallest_quadratic):
    matrix = kernel(*rows)
    assert not matrix.symmetric
    assert matrix.smallest_real == pytest.approx(smallest_real)
    assert matrix.positive_in_eigenvalues
    if smallest_quadratic is not None:
        assert matrix.smallest_quadratic == pytest.approx(smallest_quadratic)
    assert matrix.positive_in_quadratic_form == (smallest_quadratic == 1)


@pytest.mark.parametrize(("corner", "positive"), [(7 / 9, True), (0.7, False), (8 / 9, True)])
def test_layerwise_clipping_may_lose_the_eigenvalues_too(corner, positive):
    # Fact A.4. The eigenvalue is zero for a corner of 7/9 (8/9 in print, which leaves a determinant of 0.4), negative below.
    first = kernel((corner, 2), (2, 7)).matrix @ torch.diag(torch.tensor([0.9, 0.4]).double())
    second = kernel((3, 2), (2, 2)).matrix @ torch.diag(torch.tensor([0.1, 0.6]).double())
    matrix = TangentKernel(first + second)
    assert matrix.positive_in_eigenvalues is positive
    assert (abs(matrix.smallest_real) < 1e-9) is (corner == 7 / 9)
