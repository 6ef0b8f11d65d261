import cases
import pytest
import torch
from recording import assert_agrees, record
from torch import nn

from privet.gradients.core import norms, per_example
from privet.gradients.core.per_example import DenseGrad
from privet.gradients.layers import linear
from privet.gradients.layers.linear import LinearGrad


def make_grad(positions, d, p, examples=6):
    torch.manual_seed(0)
    return LinearGrad(torch.randn(examples, positions, d), torch.randn(examples, positions, p))


def recorded(positions, d, p, examples=3):
    model, x = nn.Linear(d, p, bias=False), torch.randn(examples, positions, d)
    return record(model, lambda m, x: m(x).square().sum((1, 2)), x).grads["weight"]


@pytest.mark.parametrize("cache", [1, 1000, 1 << 18])
@pytest.mark.parametrize(("positions", "d", "p"), [(1, 8, 9), (3, 30, 20), (40, 5, 6), (3, 30, 1)])
def test_norms_are_those_of_the_materialised_gradients(positions, d, p, cache, monkeypatch):
    monkeypatch.setattr(norms, "CACHE", cache)
    some = make_grad(positions, d, p)
    gradients = torch.einsum("btp,btd->bpd", some.gradients.double(), some.inputs.double())
    assert torch.allclose(some.squared_norms(), gradients.square().sum((1, 2)), rtol=5e-5)
    assert torch.allclose(some.double().squared_norms(), gradients.square().sum((1, 2)), rtol=1e-12)
    assert torch.allclose(some.materialize().double(), gradients, rtol=1e-5, atol=1e-5)


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


@pytest.mark.parametrize("loss", [
    lambda m, x: m(x.flatten(0, 1)[torch.arange(x[..., 0].numel()).flip(0)]).reshape(len(x), -1).sum(1),
    lambda m, x: m(x.transpose(0, 1)).transpose(0, 1).reshape(len(x), -1).square().sum(1),
    lambda m, x: m(x[None]).square().sum((0, 2, 3)),
    lambda m, x: m(x.sum(0).expand(len(x), -1, -1)).square().sum((1, 2)),
    lambda m, x: torch.stack([m(position) for position in x.unbind(1)]).square().sum((0, 2)),
], ids=[
    "flattened and turned round", "positions first", "one more dimension", "examples added up", "one position at a time",
])  # fmt: skip
def test_positions_belong_to_their_example_wherever_they_lie(loss):
    """As many positions, inputs and outputs as examples: no size identifies the example dimension."""
    torch.manual_seed(0)
    model, x = nn.Linear(5, 5), torch.randn(5, 5, 5)
    assert_agrees(model, loss, x)


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
