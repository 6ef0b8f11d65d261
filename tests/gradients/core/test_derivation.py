"""Nodes of a graph are told from those of earlier graphs, whether or not torch shows the number of the next node."""

import pytest
import torch

from privet.gradients.core import derivation
from privet.gradients.core.derivation import begin_graph, create_node, is_older


@pytest.mark.parametrize("read", [create_node, derivation._read_sequence_number])
def test_nodes_created_before_are_older(read, monkeypatch):
    monkeypatch.setattr(derivation, "_read_sequence_number", read)
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
