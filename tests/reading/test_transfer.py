import collections
import pickle
import threading
import warnings

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from privet.reading.batches import group_examples
from privet.reading.transfer import find_unsendable, pack


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
        assert (one.examples.tree, one.examples.own) == (other.examples.tree, other.examples.own)
        for mine, theirs in zip(one.examples.leaves, other.examples.leaves, strict=True):
            assert type(mine) is type(theirs)
            if isinstance(mine, torch.Tensor):
                assert mine.dtype == theirs.dtype
                assert torch.equal(mine, theirs)
                assert mine.untyped_storage().data_ptr() == packed.memory.untyped_storage().data_ptr()
            else:
                assert np.array_equal(mine, theirs)


Point = collections.namedtuple("Point", "x y")
Local = collections.namedtuple("Pair", "x y")  # not found by its name, like one that is defined in a function


class DamagedError(Exception):
    """Pickled by its message alone, and so not unpickled."""

    def __init__(self, row, why):
        super().__init__(f"{row}: {why}")


def test_a_group_that_cannot_be_sent_is_dropped_alone_and_the_reason_is_told():
    held = [(threading.Lock(), "lock"), (DamagedError(7, "x"), "DamagedError"), (Local(torch.zeros(1), 0), "Pair")]
    for part, says in held:
        groups = group_examples([(torch.ones(1), "a"), (torch.zeros(1), part), (torch.ones(2), "b")])
        packed = pack(groups)
        assert [group.positions.tolist() for group in packed.unpack()] == [[0], [2]]
        sent = groups if part is held[1][0] else [groups[0], groups[2]]  # that error fails where it is unpickled
        assert len(packed.memory) == len(pack(sent).memory)
        first, middle, last = (find_unsendable(group.examples) for group in groups)
        assert (first, last) == (None, None)
        assert says in middle


def test_containers_that_look_at_their_parts_arrive():
    examples = [Point(pack_sequence([torch.randn(n, 3)]), {"a": None, "b": [torch.ones(1)]}) for n in (2, 5, 2)]
    groups = group_examples(examples)
    with warnings.catch_warnings(action="error"):
        found = pickle.loads(pickle.dumps(pack(groups))).unpack()
    assert [group.positions.tolist() for group in found] == [[0, 2], [1]]
    for one, other in zip(found, groups, strict=True):
        assert one.examples.tree == other.examples.tree
        assert type(one.examples.get(0).x) is PackedSequence
        assert torch.equal(one.examples.get(0).x.data, other.examples.get(0).x.data)
