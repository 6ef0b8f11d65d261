import gc
import threading
import types
import weakref
from collections import OrderedDict, UserDict, defaultdict, deque, namedtuple
from types import MappingProxyType

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils import _pytree as pytree
from torch.utils.data import default_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from privet.collate import Padded, Tokens, batch_of_one, collate_one, copy_batch, find_floats
from privet.errors import InvalidArgumentError, UnsupportedModelError

Point = namedtuple("Point", ["x", "y"])


class Named(torch.Tensor):
    pass


ITEMS = {
    "tensor": torch.randn(2, 3),
    "scalar tensor": torch.tensor(3),
    "empty tensor": torch.zeros(0, 2),
    "parameter": torch.nn.Parameter(torch.randn(2)),
    "subclass": torch.randn(2).as_subclass(Named),
    "bool": True,
    "int": 2**40,
    "negative": -1,
    "float": 0.1,
    "text": "abc",
    "bytes": b"abc",
    "tuple": (torch.ones(2), 3),
    "list": [1.5, "a", [2, (3, torch.zeros(1))]],
    "empty tuple": (),
    "empty dict": {},
    "dict": {"a": torch.ones(2), "b": {"c": 1, 3: 2.0}},
    "named tuple": Point(1, {"a": np.zeros(3)}),
    "mapping": UserDict(a=1, b=UserDict(c=torch.ones(1))),
    "ordered": OrderedDict(b=1, a=2),
    "default dict": defaultdict(int, b=1),
    "read-only": MappingProxyType({"a": 1}),
    "range": range(3),
    "memmap": np.zeros(3).view(np.memmap),
    **{f"array {kind}": np.ones((2, 2), kind) for kind in ("f4", "f8", "f2", "i1", "i8", "u1", "u2", "?", "c8")},
    "array without dimensions": np.array(3.5, "f4"),
    "view of an array": np.arange(12.0).reshape(3, 4).T[1:],
    **{f"number {kind}": np.dtype(kind).type(1) for kind in ("f4", "f8", "f2", "i1", "i4", "i8", "u1", "?", "c8")},
}


def alike(one, other):
    leaves, tree = pytree.tree_flatten(one)
    others, other_tree = pytree.tree_flatten(other)
    assert tree == other_tree
    for mine, theirs in zip(leaves, others, strict=True):
        assert type(mine) is type(theirs)
        if isinstance(mine, torch.Tensor):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)
        else:
            assert mine == theirs


@pytest.mark.parametrize("name", ITEMS)
def test_one_item_is_converted_as_torch_does(name):
    alike(batch_of_one(ITEMS[name]), copy_batch(default_collate([ITEMS[name]])))


SINGLE = st.floats(width=32).map(np.float32)
LEAVES = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(), st.booleans(), st.text(max_size=3), st.binary(max_size=3),
    st.builds(torch.arange, st.integers(0, 3)), st.builds(np.arange, st.integers(0, 3)), SINGLE,
)  # fmt: skip
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.builds(Point, inner, inner),
        st.dictionaries(st.text(max_size=2), inner),
    ),
    max_leaves=6,
)


@given(TREES)
def test_nested_items_are_converted_as_torch_does(item):
    alike(batch_of_one(item), copy_batch(default_collate([item])))


@pytest.mark.parametrize(
    "item",
    [
        None, object(), np.array(["a"]), np.array([None]), 1j, {1, 2}, (1, None), torch.eye(2).to_sparse(),
        np.datetime64("2020-01-01"),
    ],
    ids=lambda item: type(item).__name__,
)  # fmt: skip
def test_what_torch_cannot_collate_is_an_error_here(item):
    with pytest.raises(Exception) as theirs:
        default_collate([item])
    with pytest.raises(theirs.type):
        batch_of_one(item)


def test_types_registered_with_default_collate_are_used():
    class Own:
        pass

    default_collate_fn_map[Own] = lambda batch, *, collate_fn_map: torch.full((len(batch),), 7)
    try:
        assert batch_of_one((Own(), 1))[0].tolist() == [7]
    finally:
        del default_collate_fn_map[Own]
    saved = default_collate_fn_map[int]
    default_collate_fn_map[int] = lambda batch, *, collate_fn_map: torch.tensor(batch) + 1
    try:
        assert batch_of_one((1,))[0].tolist() == [2]
    finally:
        default_collate_fn_map[int] = saved


@pytest.mark.parametrize("item", [torch.ones(2), np.ones(2), (torch.ones(2), np.ones(2)), {"a": [torch.ones(2)]}], ids=str)
def test_batches_have_memory_of_their_own(item):
    def overwrite(leaf):
        if isinstance(leaf, torch.Tensor | np.ndarray):
            leaf[:] = 5

    found, own = batch_of_one(item), copy_batch(item)
    pytree.tree_map(overwrite, item)
    for leaf in pytree.tree_leaves((found, own)):
        assert leaf.tolist() in ([[1.0, 1.0]], [1.0, 1.0])


def test_tensors_ask_for_no_gradient_and_are_torchs_own():
    made = torch.ones(2, requires_grad=True)
    found = copy_batch([made * 2, made, torch.nn.Parameter(torch.ones(1)), torch.ones(1).as_subclass(Named)])
    assert [(type(leaf), leaf.requires_grad) for leaf in found] == [(torch.Tensor, False)] * 4


def test_mappings_become_dicts_at_any_depth():
    inner = UserDict(b=torch.zeros(1))
    found = copy_batch({"a": (inner, [OrderedDict(c=inner)]), "d": Point(inner, deque([inner]))})
    assert type(found["a"][0]) is type(found["a"][1][0]) is type(found["a"][1][0]["c"]) is type(found["d"].x) is dict
    assert type(found["d"].y[0]) is dict
    assert type(found["d"]) is Point


@given(st.integers(0, 70), st.integers(1, 20))
def test_lengths_are_multiples(length, multiple):
    (found,), (mask,) = Padded(multiple, value=-1, masks=True)([(torch.ones(length, 2),)])
    padded = max(multiple, -(-length // multiple) * multiple)
    assert found.shape == (1, padded, 2)
    assert mask.shape == (1, padded)
    assert mask.sum() == length
    assert (found[mask] == 1).all()
    assert (found[~mask] == -1).all()


@given(st.integers(0, 70), st.lists(st.integers(1, 60), min_size=1, unique=True).map(sorted))
def test_lengths_are_those_given(length, lengths):
    found, mask = Padded(lengths=lengths, masks=True)([torch.arange(1, length + 1)])
    assert found.shape[1] == next((each for each in lengths if each >= length), lengths[-1])
    assert found[mask].tolist() == list(range(1, min(length, lengths[-1]) + 1))
    assert not found[~mask].any()


def test_fields_are_padded_by_name_or_position_with_their_own_values():
    item = {"ids": torch.arange(3), "labels": torch.arange(3), "vector": torch.ones(5), "n": 3}
    found = Padded(4, value={"labels": -100}, fields=("ids", "labels"))([item])
    assert found["ids"].tolist() == [[0, 1, 2, 0]]
    assert found["labels"].tolist() == [[0, 1, 2, -100]]
    assert found["vector"].shape == (1, 5)
    found, masks = Padded(4, fields=(1,), masks=True)([Point(torch.ones(3), torch.ones(3))])
    assert (type(found), found.x.shape, found.y.shape) == (Point, (1, 3), (1, 4))
    assert len(masks) == 1


def test_another_dimension_and_an_inner_collate():
    calls = []

    def inner(items):
        calls.append(len(items))
        return UserDict(spectrum=torch.stack([item[0] for item in items]), label=torch.tensor([item[1] for item in items]))

    found = Padded(8, dimension=1, inner=inner)([(torch.ones(2, 5), 1)])
    assert type(found) is dict
    assert found["spectrum"].shape == (1, 2, 8)
    assert found["label"].tolist() == [1]
    assert calls == [1]


def test_nothing_to_pad():
    assert Padded()([(1, 2.0)])[0].tolist() == [1]
    assert Padded(masks=True)([torch.tensor(1)]) == (torch.tensor([1]), None)


BAD = {"multiple": [0, 2.0], "lengths": [(), (4, 2), (0, 2)], "dimension": [-1], "value": ["a", {"a": float("nan")}]}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_bad_arguments_are_refused_by_name(name, value):
    with pytest.raises(InvalidArgumentError, match=rf"^{name} is"):
        Padded(**{name: value})


def test_items_that_do_not_fit_are_refused_by_name():
    with pytest.raises(InvalidArgumentError, match=r"^fields is"):
        Padded(fields=("a",))([{"b": torch.ones(2)}])
    with pytest.raises(InvalidArgumentError, match=r"^items is"):
        Padded()([torch.ones(2), torch.ones(2)])


def test_lists_of_numbers_in_a_mapping_are_one_tensor_each():
    for kind in (dict, UserDict, lambda held: MappingProxyType(held)):
        batch = collate_one(kind({"input_ids": [3, 4, 5], "label": 1, "empty": [], "point": [0.5, 1.5], "flags": [True]}))
        assert type(batch) is dict
        assert batch["input_ids"].tolist() == [[3, 4, 5]]
        assert batch["empty"].shape == (1, 0)
        assert batch["input_ids"].dtype == batch["empty"].dtype == torch.int64
        assert batch["label"].tolist() == [1]
        assert batch["point"].tolist() == [[0.5, 1.5]]
        assert batch["point"].dtype == torch.get_default_dtype()
        assert [part.tolist() for part in batch["flags"]] == [[True]]  # as in torch
    assert collate_one({"mixed": [1, 0.5]})["mixed"].tolist() == [[1.0, 0.5]]
    assert [part.tolist() for part in collate_one([3, 4])] == [[3], [4]]
    assert collate_one({"input_ids": [3]}, lambda items: UserDict(items=len(items))) == {"items": 1}


ROW = {"input_ids": [7, 8, 9], "labels": [-100, 8, 9], "token_type_ids": np.ones(3, np.int64), "text": "x", "title": None}


def test_tokens_are_padded_to_public_lengths_with_a_mask():
    batch = Tokens(pad=1, multiple=4)([UserDict(ROW)])
    assert {name: part.tolist() for name, part in batch.items()} == {
        "input_ids": [[7, 8, 9, 1]], "labels": [[-100, 8, 9, -100]], "token_type_ids": [[1, 1, 1, 0]],
        "attention_mask": [[1, 1, 1, 0]],
    }  # fmt: skip
    assert Tokens(lengths=(2, 8))([ROW])["input_ids"].shape == (1, 8)
    assert Tokens(lengths=(1, 2))([ROW])["attention_mask"].tolist() == [[1, 1]]
    classes = Tokens(multiple=2)([{"input_ids": torch.tensor([5]), "labels": 3, "attention_mask": [1], "decoder": [4, 4, 4]}])
    assert (classes["labels"].tolist(), classes["attention_mask"].tolist()) == ([3], [[1, 0]])
    assert classes["decoder"].tolist() == [[4, 4, 4, 0]]
    assert Tokens(multiple=2)([{"input_ids": []}])["attention_mask"].tolist() == [[0, 0]]
    assert Tokens(multiple=2)([{"input_ids": [5], "weights": [0.5]}])["weights"].tolist() == [[0.5, 0.0]]


@pytest.mark.parametrize("items", [[ROW, ROW], [], [{"labels": [1]}], [[1, 2, 3]], [{"input_ids": "abc"}]])
def test_what_is_no_row_of_tokens_is_refused(items):
    with pytest.raises(InvalidArgumentError, match=r"a list of one|input_ids"):
        Tokens()(items)


@pytest.mark.parametrize("options", [{"pad": -1}, {"pad": None}, {"multiple": 0}, {"lengths": (8, 4)}, {"ignored": "no"}])
def test_public_options_of_tokens_are_checked(options):
    with pytest.raises(InvalidArgumentError):
        Tokens(**options)


FLOATS = {
    "number": (0.5, 1),
    "tuple": ((0.5, 2), (1, 3)),
    "dict": ({"x": 0.5, "y": 1}, {"x": 1, "y": 2}),
    "joined list": ({"x": [0.5, 1], "y": [1, 2]}, {"x": [1, 0, 3], "y": [2]}),
    "empty list": ({"x": [0.5]}, {"x": []}),
    "nested": ([{"x": [0.5, 1, {"z": 0.5}]}], [{"x": [2, 1, {"z": 3}]}]),
}


@pytest.mark.parametrize(("one", "other"), FLOATS.values(), ids=list(FLOATS))
def test_whole_numbers_in_a_field_of_floats_are_floats(one, other):
    floats = set(find_floats(one))
    (first, tree), (second, other_tree) = (pytree.tree_flatten(collate_one(item, None, floats)) for item in (one, other))
    assert tree == other_tree
    assert [leaf.dtype for leaf in first] == [leaf.dtype for leaf in second]
    plain = pytree.tree_leaves(collate_one(other))
    assert all(torch.equal(leaf.double(), kept.double()) for leaf, kept in zip(second, plain, strict=True))
    assert [x.dtype for x in pytree.tree_leaves(collate_one(other, None, ()))] == [x.dtype for x in plain]


def test_other_values_in_a_field_of_floats_stay_as_they_are():
    item = (True, "a", torch.tensor(1), np.int64(3), [1, 2])
    kept = collate_one(item, None, {(place,) for place in range(5)})
    assert [getattr(part, "dtype", part) for part in kept[:4]] == [torch.bool, ("a",), torch.int64, torch.int64]


def test_nothing_keeps_what_was_copied():
    class Kept:
        def __deepcopy__(self, memo):
            return 1

    pair, kept = namedtuple("pair", "kept"), Kept()
    gone = weakref.ref(kept)
    gc.disable()
    try:
        assert copy_batch([pair(kept), kept]) == [(1,), 1]
        del kept
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", ["list", "object", "sparse tensor", "sparse tensor with a gradient"])
def test_a_copy_shares_nothing(kind):
    """The next example may overwrite an output buffer that the data set uses again."""
    buffer = torch.ones(2)
    sparse = torch.eye(2).to_sparse().requires_grad_(kind.endswith("gradient"))
    batch = {"list": [buffer], "object": types.SimpleNamespace(x=buffer)}.get(kind, [sparse * 1])
    copied = copy_batch(batch)
    buffer.zero_()
    if "sparse" in kind:
        assert not copied[0].requires_grad
        assert copied[0].to_dense().tolist() == [[1.0, 0.0], [0.0, 1.0]]
    else:
        assert (copied[0] if kind == "list" else copied.x).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "value",
    [threading.Lock(), types.SimpleNamespace(lock=threading.Lock()), (x for x in "a")],
    ids=["lock", "object with a lock", "generator"],
)
def test_what_cannot_be_copied_is_refused_by_name(value):
    with pytest.raises(UnsupportedModelError, match=type(value).__name__) as raised:
        copy_batch([value])
    assert raised.value.__suppress_context__
