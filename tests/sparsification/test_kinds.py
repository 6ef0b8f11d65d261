from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from privet.errors import InvalidArgumentError
from privet.sparsification import Random, Ranked
from privet.sparsification.kinds import Timetable
from privet.training.state import MaskState

KINDS = pytest.mark.parametrize("kind", [Random, Ranked])


def parameters(*shapes):
    return {f"p{number}": torch.zeros(shape) for number, shape in enumerate(shapes)}


@KINDS
def test_the_rate_grows_evenly_from_none_to_the_last(kind):
    made = kind(final_rate=0.9)
    assert [made.rate(block, 7) for block in range(7)] == pytest.approx([0.15 * block for block in range(7)])
    assert made.rate(0, 7) == 0.0
    assert made.rate(6, 7) == 0.9
    assert made.rate(0, 1) == 0.0
    assert [made.zeros(block, 7, 1001) for block in range(7)] == [0, 150, 300, 450, 601, 751, 901]


@pytest.mark.parametrize(("refresh", "epochs", "per_epoch"), [(1, 3, 10), (2, 3, 10), (5, 2, 10), (10, 1, 10), (1, 1, 10)])
def test_an_epoch_has_as_many_blocks_as_it_is_refreshed(refresh, epochs, per_epoch):
    times = Timetable(refresh, Fraction(per_epoch), epochs * per_epoch)
    blocks = [times.block(step) for step in range(1, epochs * per_epoch + 1)]
    assert times.blocks == refresh * epochs
    assert [blocks.count(block) for block in range(times.blocks)] == [per_epoch // refresh] * times.blocks


@given(st.integers(1, 7), st.fractions(1, 1000), st.integers(1, 5000))
def test_blocks_follow_each_other_and_the_last_is_counted(refresh, epoch, steps):
    times = Timetable(refresh, epoch, steps)
    assert times.block(1) == 0
    assert times.block(steps) == times.blocks - 1
    middle = (steps + 1) // 2
    assert 0 <= times.block(middle) <= times.block(middle + 1)


BAD = {
    "final_rate": [0, 1, -0.1, 1.5, float("nan"), "0.9", True, None], "refresh": [0, -1, 1.5, True, None],
    "seed": [-1, 2**31, 0.5, None, True],
}  # fmt: skip


@KINDS
@pytest.mark.parametrize("name", BAD)
def test_bad_settings_are_refused_by_name(kind, name):
    for value in BAD[name] if name != "seed" or kind is Random else ():
        with pytest.raises(InvalidArgumentError, match=rf"^sparsification\.{name}"):
            kind(**{"final_rate": 0.5, name: value})


def test_ranked_masks_leave_out_what_was_small_on_average_in_the_last_block():
    named, released = parameters((4, 5), (6,)), []
    made = MaskState(Ranked(0.8), Timetable(1, Fraction(4), 12), named)
    generator = torch.Generator().manual_seed(0)
    for step in range(1, 13):
        masks = made.at(step)
        if step <= 4:
            assert masks is None
        else:
            last = released[4 * ((step - 1) // 4) - 4 : 4 * ((step - 1) // 4)]
            sizes = torch.cat([torch.stack([r[name] for r in last]).mean(0).abs().flatten() for name in named])
            zeros = round(0.4 * ((step - 1) // 4) * 26)
            expected = torch.ones(26, dtype=torch.bool)
            expected[sizes.argsort()[:zeros]] = False
            assert torch.equal(torch.cat([mask.flatten() for mask in masks.values()]), expected)
        released.append({name: torch.randn(tensor.shape, generator=generator) for name, tensor in named.items()})
        made.apply(released[-1])


def test_a_block_that_was_lost_in_a_crash_leaves_the_last_ranking():
    named = parameters((10,))
    made = MaskState(Ranked(0.9), Timetable(1, Fraction(2), 8), named)
    assert made.at(1) is None
    assert made.at(3) is None  # nothing was released yet: nothing to rank by
    made.apply({"p0": torch.arange(10.0)})
    kept = made.at(5)["p0"]
    assert kept.tolist() == [False] * 6 + [True] * 4
    assert made.at(7)["p0"].tolist() == [False] * 9 + [True]
