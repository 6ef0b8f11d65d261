from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field

import pytest
import torch
from torch.utils import _pytree as pytree

from privet.errors import InvalidArgumentError
from privet.gradients.core import examples
from privet.gradients.core.examples import flat_signature, flatten, signature, split_batch, split_rows, stack, unflatten

Pair = namedtuple("Pair", "x y")
X, Y = torch.arange(6.0).view(3, 2), torch.arange(3)
STRUCTURES = {
    "tensor": X, "tuple": (X, Y), "list": [X, Y], "one": (X,), "empty": (), "nested": ((X, Y), X), "lists": [[X], [Y]],
    "empty inside": (X, ()), "numbers": (X, 1, None), "dict": {"x": X, "y": Y}, "ordered": OrderedDict(x=X), "pair": Pair(X, Y),
}  # fmt: skip


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
    if name != "empty":
        example = split_batch(given).get(1)
        assert pytree.tree_structure(example) == structure
        assert torch.equal(pytree.tree_leaves(example)[0], X[1:2])


class Key(str):
    """Text with attributes of its own."""


@dataclass(frozen=True)
class Meta:
    """Two of them are equal whatever they weigh."""

    source: str
    weight: float = field(default=1.0, compare=False)


@dataclass(frozen=True)
class Registered(Meta):
    """Torch knows it as a constant."""


class Sample:
    def __init__(self, x, meta):
        self.x, self.meta = x, meta


def make_class():
    class Same(Sample):
        pass

    pytree.register_pytree_node(Same, lambda s: ([s.x], s.meta), lambda x, meta: Same(*x, meta))
    return Same


pytree.register_constant(Registered)
First, Second = make_class(), make_class()
META, CONSTANT = Meta("clinic"), Registered("clinic")
UNLIKE = {
    "attributes of a key": ({Key("x"): X}, {Key("x"): X}), "text and its subclass": ({"x": X}, {Key("x"): X}),
    "signs of zero": ({0.0: X}, {-0.0: X}), "true and one": ({True: X}, {1: X}), "one as a float": ({1.0: X}, {1: X}),
    "keys inside": ((X, {0.0: (X, {"y": Y})}), (X, {-0.0: (X, {"y": Y})})), "tuples of keys": ({(0.0, "x"): X}, {(-0.0, "x"): X}),
    "contexts": (First(X, Meta("clinic", 1.0)), First(X, Meta("clinic", -1.0))),
    "constants": ((X, Registered("clinic", 1.0)), (X, Registered("clinic", -1.0))),
    "classes of one name": (First(X, None), Second(X, None)), "factories": (defaultdict(int, x=X), defaultdict(float, x=X)),
    "kinds of container": ((X,), [X]), "depth": (((X,), X), ((X, X),)), "order of keys": ({"x": X, "y": X}, {"y": X, "x": X}),
    "empty containers": (((), X), (X, ())),
}  # fmt: skip


@pytest.mark.parametrize("name", UNLIKE)
def test_containers_that_are_merely_equal_are_not_stacked(name):
    """All examples of a group are handed the first one's container."""
    one, other = UNLIKE[name]
    assert signature(one) != signature(other)
    assert signature(one) == signature(one)


@pytest.mark.parametrize("make", [
    lambda: {"x": X, "y": (X, [Y])}, lambda: {1: X, 2.5: Y, None: X, ("a", 1): Y}, lambda: OrderedDict(x=X),
    lambda: defaultdict(list, x=X), lambda: Pair(X, Y), lambda: First(X, ["clinic", 1.5]), lambda: First(X, META),
    lambda: (X, CONSTANT),
])  # fmt: skip
def test_containers_of_plain_keys_and_shared_constants_are_stacked(make):
    assert signature(make()) == signature(make())
    assert hash(signature(make())) == hash(signature(make()))


def targets(sizes, **more):
    return [{"boxes": torch.full((size, 4), float(i)), "image": torch.tensor(i), **more} for i, size in enumerate(sizes)]


def test_a_list_with_an_entry_for_each_example_is_split():
    batch = {"x": torch.arange(12.0).view(4, 3), "targets": targets([2, 2, 2, 2]), "scale": 2}
    examples = split_batch(batch)
    assert examples.count == 4
    for i in range(4):
        one = examples.get(i)
        assert torch.equal(one["x"], batch["x"][i : i + 1])
        assert one["scale"] == 2
        assert len(one["targets"]) == 1
        for name, tensor in batch["targets"][i].items():
            assert torch.equal(one["targets"][0][name], tensor)
    boxes = [torch.full((2, 4), float(i)) for i in range(3)]
    assert torch.equal(split_batch((torch.zeros(3, 1), boxes)).get(2)[1][0], boxes[2])


def test_entries_of_several_shapes_are_split_but_are_no_batch():
    batch = torch.zeros(3, 2), targets([2, 1, 5])
    rows = split_rows(batch)
    assert [len(row[1][0]["boxes"]) for row in rows] == [2, 1, 5]
    with pytest.raises(InvalidArgumentError, match="list of 3 entries that differ"):
        split_batch(batch)
    with pytest.raises(InvalidArgumentError, match="list of 3 entries in which some tensors have 3 rows"):
        split_batch((torch.zeros(3, 2), targets([2, 3, 5])))


@pytest.mark.parametrize("batch", [
    (torch.zeros(2, 3), (torch.zeros(4), torch.zeros(5))), (torch.zeros(2, 3), [224, 224]), (torch.zeros(2, 3), ["a", "b"]),
    (torch.zeros(2, 3), [torch.zeros(4)] * 3), (torch.zeros(2, 3), [(torch.zeros(2, 5), torch.zeros(2, 5))] * 2),
    [torch.zeros(2, 3), {"y": torch.zeros(2), "table": torch.zeros(5)}],
    (torch.zeros(1, 3), [{"boxes": torch.zeros(1, 4), "image": torch.zeros(())}]),
], ids=["tuple", "numbers", "text", "other length", "layers", "inputs and labels", "one example"])  # fmt: skip
def test_other_containers_are_no_lists_of_examples(batch):
    assert split_rows(batch) is None
    assert pytree.tree_structure(split_batch(batch).get(0)) == pytree.tree_structure(batch)


WRITES = {
    "in place": lambda x: x.add_(1), "an entry": lambda x: x[0, 0].fill_(7), "data": lambda x: x.data.mul_(3),
    "detached": lambda x: x.detach().zero_(), "view": lambda x: x.view(-1).sub_(2), "out": lambda x: torch.add(x, 1, out=x),
    "copied into": lambda x: x.copy_(torch.ones(3, 1, 2)), "array": lambda x: x.numpy().fill(5),
}  # fmt: skip


@pytest.mark.parametrize("lazy", [True, False])
@pytest.mark.parametrize("name", WRITES)
def test_writes_to_copies_of_examples_stay_there(name, lazy, monkeypatch):
    """With the copies on write of torch, which need memory only when a program writes, and where it has none."""
    if not lazy:
        monkeypatch.setattr(examples, "_lazy_clone", torch.Tensor.clone)
    elif hasattr(torch, "_lazy_clone"):
        assert torch._C._is_cow_tensor(stack([torch.ones(1, 2)] * 3).copy_leaves()[0])
    stacked = stack([torch.full((1, 2), float(number)) for number in range(1, 4)])
    before, (one,), (other,) = stacked.leaves[0].clone(), stacked.copy_leaves(), stacked.copy_leaves()
    WRITES[name](one)
    assert not torch.equal(one, before)
    assert torch.equal(stacked.leaves[0], before)
    assert torch.equal(other, before)


def test_a_batch_of_the_user_keeps_the_memory_that_its_array_has():
    """A copy on write would move the tensor away from the array at the next write, and free the array's memory later."""
    batch = torch.zeros(3, 2)
    array = batch.numpy()
    copied = split_batch(batch).copy_leaves()
    batch.add_(1)
    assert (array == 1).all()
    assert torch.equal(copied[0], torch.zeros(3, 1, 2))


def test_leaves_are_appended_without_a_container_that_holds_all_examples():
    @dataclass
    class Single:
        """Refuses several examples, and one that is not a tensor."""

        x: torch.Tensor

        def __post_init__(self):
            assert self.x.shape == (1, 3)

    pytree.register_pytree_node(Single, lambda single: ([single.x], None), lambda leaves, _: Single(*leaves))
    examples = stack([Single(torch.full((1, 3), float(number))) for number in range(4)])
    found = examples.append_leaves(torch.arange(4).view(4, 1), torch.zeros(4, 1))
    single, number, zero = found.get(2)
    assert (single.x.tolist(), number.tolist(), zero.tolist()) == ([[2.0] * 3], [2], [0.0])
    assert found.tree == pytree.tree_structure((single, number, zero))
