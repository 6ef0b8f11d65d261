import cases
import pytest
import torch
from recording import assert_agrees, record
from torch import nn

from privet.gradients.core import per_example
from privet.gradients.core.per_example import DenseGrad
from privet.gradients.layers import linear
from privet.gradients.layers.linear import LinearGrad


def make_grad(positions, d, p, examples=6):
    torch.manual_seed(0)
    return LinearGrad(torch.randn(examples, positions, d), torch.randn(examples, positions, p))


def recorded(positions, d, p, examples=3):
    model, x = nn.Linear(d, p, bias=False), torch.randn(examples, positions, d)
    return record(model, lambda m, x: m(x).square().sum((1, 2)), x).grads["weight"]


@pytest.mark.parametrize("rows", [63, 64, 192])
@pytest.mark.parametrize("examples", [1, 2, 8, 9])
def test_a_sum_of_few_terms_is_the_same_in_blocks_of_rows(examples, rows, monkeypatch):
    monkeypatch.setattr(linear, "_LARGE", 0)
    some, weights = make_grad(1, 7, rows, examples), torch.rand(examples, dtype=torch.float64)
    apart = LinearGrad(some.inputs, some.gradients.repeat_interleave(2, 2)[..., ::2])  # numbers that are not next to each other
    for grad in (some, apart, some.double()):
        summed = grad.weighted_sum(weights)
        expected = torch.einsum("b,btp,btd->pd", weights, some.gradients.double(), some.inputs.double())
        assert summed.is_contiguous()
        assert summed.dtype == grad.dtype
        assert torch.allclose(summed.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("examples", [1, 3, 10_000])
def test_gradients_are_kept_where_they_are_no_larger_than_their_factors_for_any_number_of_examples(examples, monkeypatch):
    assert isinstance(recorded(2, 30, 20, examples), LinearGrad)
    assert isinstance(recorded(40, 5, 6, examples), DenseGrad)
    monkeypatch.setattr(linear, "KEEP", 0)
    assert isinstance(recorded(40, 5, 6, examples), LinearGrad)


@pytest.mark.parametrize("size", [1e5, 40.0])
def test_gram_matrices_never_under_estimate_what_cancels(size, monkeypatch):
    monkeypatch.setattr(per_example, "_OTHERS", 0)  # what is added for other examples would hide it
    torch.manual_seed(0)
    a, g = size * torch.randn(20, 1, 40), torch.randn(20, 1, 30)
    some = LinearGrad(torch.cat([a, a + torch.randn(20, 1, 40)], 1), torch.cat([g, -g], 1))
    exact = some.double().materialize().square().sum((1, 2))
    found = some.squared_norms()
    assert (torch.isnan(found) | (found >= exact * (1 - 1e-6))).all()
    precise = some.double().squared_norms()
    assert (precise >= exact * (1 - 1e-12)).all()
    assert torch.allclose(precise, exact, rtol=1e-4)


def test_few_positions_are_measured_without_forming_a_gradient(monkeypatch):
    def never(self):
        raise AssertionError("a gradient was formed")

    some = make_grad(3, 30, 20)
    monkeypatch.setattr(LinearGrad, "materialize", never)
    some.squared_norms()
    make_grad(1, 30, 20).squared_norms()


@pytest.mark.parametrize("name", ["linear with a bias of shape (1, 5)", "addmm with a bias of shape (1, 5)"])
def test_biases_that_torch_broadcasts_need_no_loop(name):
    (case,) = cases.by_name(name)
    assert_agrees(case.model(), case.loss, case.batch(5))
