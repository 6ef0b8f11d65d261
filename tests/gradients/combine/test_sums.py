"""Sums of gradients of one parameter: terms that cancel are recomputed in sufficient precision."""

import pytest
import torch

from privet.clipping import Flat
from privet.gradients.combine.sums import SummedGrads, TiedEmbeddingGrads, sum_grads
from privet.gradients.core import norms, per_example
from privet.gradients.core.per_example import DenseGrad
from privet.gradients.layers.embedding.embedding import EmbeddingGrad
from privet.gradients.layers.linear import LinearGrad
from privet.gradients.methods.tape import Tape, clip
from rounding import assert_equal_up_to_rounding

V, D = 5, 3


@pytest.mark.parametrize("left", [0.5, 1e-3, 1e-5])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
def test_a_table_and_a_head_that_nearly_cancel_are_measured_again(size, left):
    row = size * torch.randn(1, 1, D, generator=torch.Generator().manual_seed(0))
    token = torch.zeros(1, 1, V)
    token[..., 2] = 1
    tied = sum_grads([EmbeddingGrad(torch.tensor([[2]]), row, V), LinearGrad(-(1 - left) * row, token)])
    assert isinstance(tied, TiedEmbeddingGrads)
    exact = float(tied.double().materialize().norm())
    sums, norms = clip(Tape(1, {"w": torch.zeros(V, D)}, {"w": tied}), Flat(exact / 3), (("w",),))
    assert exact * (1 - 1e-6) <= float(norms) <= exact * (1 + 1e-2)
    assert exact / 3 * (1 - 1e-2) <= float(sums["w"].double().norm()) <= exact / 3


def test_a_table_and_a_head_that_cancel_in_part_are_not_measured_too_short(monkeypatch):
    """The remainder is 6 % of either term, so rounding of the three squares is relatively a thousand times larger."""
    monkeypatch.setattr(per_example, "_OTHERS", 0)  # what is added for other examples would hide it
    torch.manual_seed(0)
    examples, width = 400, 50
    looked_up = torch.randn(examples, 1, width)
    indices = torch.randint(3, (examples, 1))
    inputs, one_hot = -looked_up + 0.06 * torch.randn(examples, 1, width), torch.nn.functional.one_hot(indices, 3).float()
    tied = sum_grads([EmbeddingGrad(indices, looked_up, 3), LinearGrad(inputs, one_hot)])
    assert isinstance(tied, TiedEmbeddingGrads)
    exact = tied.double().materialize().flatten(1).square().sum(1)
    found = tied.squared_norms()
    assert found.isfinite().all()
    assert (found >= exact * (1 - 1e-9)).all()
    assert (found <= exact * (1 + 2e-2)).all()


@pytest.mark.parametrize("working_set", [1, 40, 1 << 20])
def test_formed_sums_of_several_blocks(working_set, monkeypatch):
    monkeypatch.setattr(norms, "CACHE", working_set)
    monkeypatch.setattr(per_example, "KEEP", 0)
    torch.manual_seed(0)
    terms = [LinearGrad(torch.randn(7, 2, 4), torch.randn(7, 2, 3)), DenseGrad(torch.randn(7, 3, 4))]
    weights = torch.rand(7)
    expected = sum(torch.einsum("b,bij->ij", weights, each.materialize()) for each in terms)
    assert_equal_up_to_rounding(sum_grads(terms).weighted_sum(weights), expected)


@pytest.mark.parametrize(("room", "kind"), [(7 * 12, DenseGrad), (7 * 12 - 1, SummedGrads)])
def test_sums_that_have_to_be_formed_are_stored_where_they_are_small(room, kind, monkeypatch):
    monkeypatch.setattr(per_example, "KEEP", room)
    torch.manual_seed(0)
    terms = [LinearGrad(torch.randn(7, 2, 4), torch.randn(7, 2, 3)), DenseGrad(torch.randn(7, 3, 4))]
    grad = sum_grads(terms)
    assert type(grad) is kind
    assert_equal_up_to_rounding(grad.materialize(), sum(each.materialize() for each in terms))


@pytest.mark.parametrize("uses", [300, 1000])
def test_terms_of_an_example_are_not_rounded_to_the_precision_of_the_sum(uses):
    """One weight is used many times: added up use after use, one example moved the sum by up to 1.006 bounds."""

    def total(examples, bound):
        inputs, gradients = torch.ones(examples, 1, 4), torch.full((examples, 1, 4), 1 / uses)
        grad = sum_grads([LinearGrad(inputs, gradients) for _ in range(uses)])
        return grad.weighted_sum((bound / grad.squared_norms().sqrt()).float())

    for bound in torch.linspace(1, 2, 17 if uses == 300 else 5).tolist():
        assert float((total(513, bound) - total(512, bound)).double().norm()) <= bound * (1 + 1e-3)


def test_two_lookups_of_one_example_are_not_combined_otherwise_because_of_another():
    """Both have the same indices for the first example; those of the second decide nothing for it."""
    indices, gradients = torch.zeros(2, 4000, dtype=torch.long), torch.full((2, 4000, 3), 1e-3)

    def first_norm(others):
        return sum_grads([EmbeddingGrad(each, gradients, 5) for each in (indices, others)]).squared_norms()[0]

    differing = indices.clone()
    differing[1] = 1
    assert float(first_norm(differing)) == float(first_norm(indices.clone()))
