"""Nodes of a graph are told from those of earlier graphs, whether or not torch shows the number of the next node."""

import cases
import oracle
import pytest
import torch
from recording import record

from privet.gradients import per_example_gradients
from privet.gradients.core import losses
from privet.gradients.core.derivation import Derivation
from privet.gradients.core.losses import begin_graph, create_node, is_older
from rounding import assert_equal_up_to_rounding


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


def test_leaves_are_never_older():
    x = torch.ones(2, requires_grad=True)
    (leaf, _), *_ = (x * 2).grad_fn.next_functions
    assert not is_older(leaf, begin_graph())


@pytest.mark.parametrize("examples", [1, 3])
def test_functions_whose_backward_pass_torch_cannot_batch_are_differentiated_one_example_at_a_time(examples):
    """A product with a sparse matrix, such as a graph's."""
    torch.manual_seed(0)
    graph = torch.tensor([[0.0, 2, 0], [1, 0, 3], [0, 0, 1]]).to_sparse()
    model = cases.Bare(lambda m, x: (x @ torch.sparse.mm(graph.to(x), m.weight)).sin(), weight=(3, 4)).double()
    x = torch.randn(examples, 3, dtype=torch.float64)
    tape, expected = record(model, cases.energy, (x,)), oracle.plain_gradients(model, cases.energy, (x,))
    assert oracle.relative_error_per_example(tape.gradients(), expected) <= 1e-10
    assert_equal_up_to_rounding(tape.group_norms((("weight",),))[0], oracle.norms_of(expected))


@pytest.mark.parametrize("view", [
    lambda w: torch.view_as_complex(w).conj().imag, lambda w: torch.view_as_complex(w).conj(),
], ids=["negative", "conjugate"])  # fmt: skip
def test_views_with_other_signs_are_no_views(view):
    weight = torch.nn.Parameter(torch.randn(4, 3, 2))
    assert Derivation(view(weight), weight).span is None


def test_a_view_and_its_negative_are_told_apart():
    """An encoder with a complex weight and a decoder with its conjugate, by their imaginary parts."""

    class Pair(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(4, 3, 2))

        def forward(self, x):
            w = torch.view_as_complex(self.w)
            return (x @ w.imag.t()).tanh() @ w.conj().imag

    torch.manual_seed(0)
    model, x = Pair(), torch.randn(5, 3)
    loss = lambda model, x: model(x).square().sum(1)  # noqa: E731
    found = per_example_gradients(model, loss, x, method="ghost")["w"]
    assert_equal_up_to_rounding(found, per_example_gradients(model, loss, x, method="loop")["w"])
