"""Groups are transferred from a worker process unchanged, packed into one tensor."""

import pickle
import threading

import numpy as np
import torch

from privet.reading.batches import group_examples
from privet.reading.transfer import pack


def test_groups_of_every_kind_arrive():
    kinds = [torch.float32, torch.float64, torch.bfloat16, torch.bool, torch.int64, torch.uint8, torch.complex128, torch.float16]
    examples = [
        (torch.randn(1, 1 + number % 3, number).to(kind), {"text": "a", "n": torch.tensor(number), "array": np.arange(number)})
        for number, kind in enumerate(kinds)
    ]
    groups = group_examples(examples)
    packed = pickle.loads(pickle.dumps(pack(groups)))
    found = packed.unpack()
    assert [group.positions.tolist() for group in found] == [group.positions.tolist() for group in groups]
    for one, other in zip(found, groups, strict=True):
        assert one.examples.tree == other.examples.tree
        assert one.examples.own == other.examples.own
        for mine, theirs in zip(one.examples.leaves, other.examples.leaves, strict=True):
            assert type(mine) is type(theirs)
            if isinstance(mine, torch.Tensor):
                assert mine.dtype == theirs.dtype
                assert torch.equal(mine, theirs)
                assert mine.untyped_storage().data_ptr() == packed.memory.untyped_storage().data_ptr()
            else:
                assert np.array_equal(mine, theirs)


def test_an_empty_list_of_groups_is_transferred():
    assert pack([]).unpack() == []


def test_groups_that_cannot_be_pickled_are_dropped():
    groups = group_examples([(torch.zeros(1), threading.Lock()), (torch.ones(1), "a")])
    (found,) = pickle.loads(pickle.dumps(pack(groups))).unpack()
    assert found.positions.tolist() == [1]
