"""Batches of any structure are taken apart into examples, and put together again, as torch's tree functions do."""

from collections import OrderedDict, namedtuple

import pytest
import torch
from torch.utils import _pytree as pytree

from privet.gradients.core.examples import flat_signature, flatten, split_batch, unflatten

Pair = namedtuple("Pair", "x y")
X, Y = torch.arange(6.0).view(3, 2), torch.arange(3)
STRUCTURES = {
    "tensor": X,
    "tuple": (X, Y),
    "list": [X, Y],
    "one": (X,),
    "empty": (),
    "nested": ((X, Y), X),
    "lists": [[X], [Y]],
    "empty inside": (X, ()),
    "numbers": (X, 1, None),
    "dict": {"x": X, "y": Y},
    "ordered": OrderedDict(x=X),
    "pair": Pair(X, Y),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_are_those_of_torch(name):
    given = STRUCTURES[name]
    leaves, tree = flatten(given)
    expected, structure = pytree.tree_flatten(given)
    assert tree == structure
    assert all(one is other for one, other in zip(leaves, expected, strict=True))
    for made in (unflatten(leaves, tree), unflatten(tuple(expected), structure)):
        assert type(made) is type(given)
        again, same = pytree.tree_flatten(made)
        assert same == structure
        assert all(one is other for one, other in zip(again, expected, strict=True))
    assert hash(flat_signature((leaves, tree))) == hash(flat_signature((leaves, structure)))


@pytest.mark.parametrize("name", [name for name in STRUCTURES if name != "empty"])
def test_an_example_has_the_structure_of_its_batch(name):
    given = STRUCTURES[name]
    example = split_batch(given).get(1)
    assert pytree.tree_structure(example) == pytree.tree_structure(given)
    first = pytree.tree_leaves(example)[0]
    assert torch.equal(first, X[1:2])
