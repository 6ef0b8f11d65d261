import hashlib
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privet.errors import InvalidArgumentError
from privet.sparsification.drawing import Selection, keep_largest

SHAPES = {"w": (20, 30), "b": (20,), "none": (0, 3), "scalar": ()}
SIZE = 621


def flat(masks):
    return torch.cat([mask.flatten() for mask in masks.values()]).numpy()


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), st.integers(0, SIZE))
def test_a_mask_has_exactly_as_many_zeros(seed, block, zeros):
    masks = Selection(seed, block, zeros).masks(SHAPES)
    assert {name: tuple(mask.shape) for name, mask in masks.items()} == SHAPES
    assert all(mask.dtype == torch.bool for mask in masks.values())
    assert int((~flat(masks)).sum()) == zeros


def test_a_mask_is_the_same_on_every_machine_and_in_every_version():
    """What was sent with a seed must be understood years later: this is a format."""
    kept = flat(Selection(seed=12345, block=7, zeros=400).masks(SHAPES))
    digest = hashlib.sha256(np.packbits(kept).tobytes()).hexdigest()
    assert digest == "55bccad3460e75e250f42bc9c1da36c2fb4a88c8a162e367fe85fc6ebd995a6f"
    first = np.flatnonzero(~kept)[:8].tolist()
    words = np.random.Philox(key=12345, counter=[0, 0, 0, 7]).random_raw(SIZE)
    assert first == sorted(np.argsort(words, kind="stable")[:400].tolist())[:8]


def test_seeds_of_torch_and_numpy_do_not_matter_and_are_left_alone():
    torch.manual_seed(1)
    np.random.seed(1)
    one, state = flat(Selection(3, 4, 300).masks(SHAPES)), torch.get_rng_state()
    torch.manual_seed(2)
    np.random.seed(2)
    assert np.array_equal(one, flat(Selection(3, 4, 300).masks(SHAPES)))
    torch.manual_seed(1)
    assert torch.equal(state, torch.get_rng_state())


def test_every_coordinate_is_left_out_as_often_and_blocks_are_independent():
    """Masks come from fixed seeds, so this either always holds or never."""
    number, zeros = 4000, 400
    dropped = np.array([~flat(Selection(1, block, zeros).masks(SHAPES)) for block in range(number)], dtype=float)
    rate = zeros / SIZE
    z = (dropped.sum(0) - number * rate) / math.sqrt(number * rate * (1 - rate))
    # Exactly `zeros` in each mask: counts are negatively correlated by 1/(SIZE − 1), so this is χ² with SIZE − 1 degrees.
    statistic = float((z**2).sum() * (SIZE - 1) / SIZE)
    assert 1e-6 < stats.chi2.cdf(statistic, SIZE - 1) < 1 - 1e-6
    overlap = (dropped[1:] * dropped[:-1]).sum(1)
    expected, variance = zeros * rate, zeros * rate * (1 - rate) * (SIZE - zeros) / (SIZE - 1)
    assert abs(float(overlap.mean()) - expected) < 5 * math.sqrt(variance / number)
    pairs = (dropped[:, 1:] * dropped[:, :-1]).mean()
    assert abs(pairs - zeros * (zeros - 1) / SIZE / (SIZE - 1)) < 5 * 0.5 / math.sqrt(number * SIZE)


def test_seeds_and_blocks_give_different_masks():
    masks = {flat(Selection(seed, block, 300).masks(SHAPES)).tobytes() for seed in range(30) for block in range(30)}
    assert len(masks) == 900


def test_more_zeros_leave_out_more_of_the_same():
    few, many = (flat(Selection(3, 1, zeros).masks(SHAPES)) for zeros in (100, 300))
    assert not (many & ~few).any()


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, math.inf]), min_size=1, max_size=30), st.data())
def test_ties_leave_out_the_first(values, data):
    zeros = data.draw(st.integers(0, len(values)))
    kept = keep_largest(np.array(values), zeros)
    assert np.flatnonzero(~kept).tolist() == sorted(np.argsort(values, kind="stable")[:zeros].tolist())


@pytest.mark.parametrize(
    "changes", [{"seed": -1}, {"seed": 2**31}, {"block": -1}, {"block": 0.5}, {"zeros": -1}, {"seed": True}, {"zeros": SIZE + 1}]
)
def test_a_bad_selection_is_refused_by_name(changes):
    with pytest.raises(InvalidArgumentError, match=f"^selection.{next(iter(changes))}"):
        Selection(**{"seed": 0, "block": 0, "zeros": 1, **changes}).masks(SHAPES)
