import cases
import pytest
import torch
from recording import assert_agrees

from privet.gradients.core import losses
from privet.gradients.core.derivation import Derivation
from privet.gradients.core.losses import begin_graph, create_node, is_older


@pytest.mark.parametrize("read", [create_node, losses._read_sequence_number])
def test_nodes_created_before_are_older(read, monkeypatch):
    monkeypatch.setattr(losses, "_read_sequence_number", read)
    x = torch.ones(2, requires_grad=True)
    before = x * 2
    began = begin_graph()
    with torch.no_grad():
        again = begin_graph()
    after = x * 2
    assert is_older(before.grad_fn, began)
    assert is_older(before.grad_fn, again)
    assert not is_older(after.grad_fn, began)
    assert not is_older(after.grad_fn, again)
    (leaf, _), *_ = before.grad_fn.next_functions
    assert not is_older(leaf, began)


@pytest.mark.parametrize("examples", [1, 3])
def test_functions_whose_backward_pass_torch_cannot_batch_are_differentiated_one_example_at_a_time(examples):
    """A product with a sparse matrix, such as a graph's."""
    torch.manual_seed(0)
    graph = torch.tensor([[0.0, 2, 0], [1, 0, 3], [0, 0, 1]]).to_sparse()
    model = cases.With(lambda m, x: (x @ torch.sparse.mm(graph.to(x), m.weight)).sin(), weight=(3, 4)).double()
    x = torch.randn(examples, 3, dtype=torch.float64)
    assert_agrees(model, cases.energy, (x,), 1e-10)


@pytest.mark.parametrize("view", [
    lambda w: torch.view_as_complex(w).conj().imag, lambda w: torch.view_as_complex(w).conj(),
], ids=["negative", "conjugate"])  # fmt: skip
def test_views_with_other_signs_are_no_views(view):
    weight = torch.nn.Parameter(torch.randn(4, 3, 2))
    assert Derivation(view(weight), weight).span is None


def test_a_view_and_its_negative_are_told_apart():
    """An encoder with a complex weight and a decoder with its conjugate, by their imaginary parts."""

    def pair(m, x):
        w = torch.view_as_complex(m.w)
        return (x @ w.imag.t()).tanh() @ w.conj().imag

    assert_agrees(cases.With(pair, w=(4, 3, 2)), lambda m, x: m(x).square().sum(1), torch.randn(5, 3))
