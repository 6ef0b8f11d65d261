import math
import operator

import pytest
import torch

from privet._utils.tensors import total_size
from privet.clipping.clipped_sum import BatchSlice, ClippedSum
from privet.errors import InvalidArgumentError
from privet.noise.noised_sum import NoisedSum

C = 0.7


def clipped(part=None, value=1.0, sensitivity=C, examples=2):
    tensors = {"a": torch.full((2, 3), value), "b": torch.full((), value, dtype=torch.float64)}
    return ClippedSum(tensors, sensitivity, torch.full((examples,), value, dtype=torch.float64), part)


def noised():
    return NoisedSum({"a": torch.ones(2, 3)}, C, 2.3 * C)


BOTH = pytest.mark.parametrize("make", [clipped, noised])


@BOTH
@pytest.mark.parametrize("other", [1.0, torch.ones(2, 3), clipped(), noised()], ids=["number", "tensor", "clipped", "noised"])
@pytest.mark.parametrize("operation", [operator.add, operator.sub, operator.iadd, lambda a, b: operator.add(b, a)])
def test_adding_is_refused_with_an_explanation(make, other, operation):
    with pytest.raises(TypeError, match=r"use \.join\(\)|post-processing"):
        operation(make(), other)


@BOTH
@pytest.mark.parametrize("factor", [torch.tensor(2.0), True, "2", None, 1j])
@pytest.mark.parametrize("operation", [operator.mul, operator.truediv, lambda a, b: operator.mul(b, a)])
def test_only_public_numbers_scale(make, factor, operation):
    with pytest.raises(TypeError, match="takes a public number, not"):
        operation(make(), factor)


@BOTH
@pytest.mark.parametrize("factor", [2.3, -0.4, 3])
def test_scaling_scales_sensitivity_and_deviation(make, factor):
    original = make()
    for scaled in (original * factor, factor * original, original / (1 / factor)):
        assert scaled.sensitivity == pytest.approx(C * abs(factor))
        assert scaled.tensors["a"] == pytest.approx(factor, rel=1e-6)
        if make is clipped:
            assert scaled.norms.tolist() == [1, 1]
        else:
            assert scaled.standard_deviation == pytest.approx(2.3 * C * abs(factor))
    assert original.tensors["a"].eq(1).all()


@pytest.mark.parametrize("sensitivity", [0.0, -C, math.nan, math.inf, "0.7", None, True, torch.tensor(C)])
def test_a_clipped_sum_has_a_positive_sensitivity(sensitivity):
    with pytest.raises(InvalidArgumentError, match=r"^sensitivity is"):
        clipped(sensitivity=sensitivity)
    if type(sensitivity) is float and not sensitivity < 0:
        with pytest.raises(InvalidArgumentError, match=r"^sensitivity is"):
            clipped() * sensitivity


def test_adjacent_parts_of_a_draw_join_once():
    first, second = clipped(BatchSlice(3, 0, 2), 1.0), clipped(BatchSlice(3, 2, 5), 2.0, 0.9, examples=3)
    joined = first.join(second)
    assert joined.part == BatchSlice(3, 0, 5)
    assert joined.sensitivity == 0.9
    assert joined.norms.tolist() == [1, 1, 2, 2, 2]
    assert joined.tensors["a"].eq(3).all()
    assert joined.tensors["b"] == 3
    with pytest.raises(TypeError, match="only adjacent positions of one draw"):
        first.join(second)
    one, other = (
        ClippedSum({"a": torch.ones(2)}, C, torch.full((3, 2), value), BatchSlice(0, start, start + 2))
        for start, value in ((0, 1.0), (2, 2.0))
    )
    assert one.join(other).norms.tolist() == [[1, 1, 2, 2]] * 3


FIRST = BatchSlice(1, 0, 2)


@pytest.mark.parametrize(("mine", "theirs"), [
    (None, None), (FIRST, None), (None, FIRST), (FIRST, BatchSlice(2, 2, 4)), (FIRST, BatchSlice(1, 1, 3)), (FIRST, FIRST),
    (FIRST, BatchSlice(1, 3, 4)), (BatchSlice(1, 2, 4), FIRST),
])  # fmt: skip
def test_parts_that_may_share_an_example_do_not_join(mine, theirs):
    with pytest.raises(TypeError, match="only adjacent positions of one draw"):
        clipped(mine).join(clipped(theirs))
    for other in (torch.ones(2, 3), noised(), None):
        with pytest.raises(TypeError, match="only be joined with another part of its draw"):
            clipped(FIRST).join(other)


def test_the_sum_over_no_examples_is_zero_shaped_like_the_parameters():
    parameters = {"w": torch.nn.Parameter(torch.ones(2, 3)), "b": torch.nn.Parameter(torch.ones(2, dtype=torch.float64))}
    empty = ClippedSum.zero(parameters, C, BatchSlice(0, 0, 0))
    shapes = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in empty.tensors.items()}
    assert shapes == {"w": ((2, 3), torch.float32), "b": ((2,), torch.float64)}
    assert all(tensor.eq(0).all() and not tensor.requires_grad for tensor in empty.tensors.values())
    assert (empty.sensitivity, len(empty.norms), empty.part) == (C, 0, BatchSlice(0, 0, 0))
    assert total_size(empty.tensors.values()) == 8


def masked_part(start, mask):
    return ClippedSum(
        {"w": torch.ones(3)}, C, torch.zeros(2), BatchSlice(0, start, start + 2), support=mask and {"w": torch.tensor(mask)}
    )


@pytest.mark.parametrize("masks", [([True, False, True], [True, True, False]), (None, [True] * 3), ([True] * 3, None)])
def test_parts_with_different_masks_do_not_join(masks):
    """A mask that changes within a step would release coordinates with data and no noise."""
    with pytest.raises(TypeError, match="different masks"):
        masked_part(0, masks[0]).join(masked_part(2, masks[1]))


def test_parts_with_equal_masks_join_and_keep_it():
    one = masked_part(0, [True, False, True])
    assert one.join(masked_part(2, [True, False, True])).support is one.support
    assert (one * 2).support is one.support


@pytest.mark.parametrize(
    "support", [{"v": torch.ones(3, dtype=torch.bool)}, {"w": torch.ones(2, dtype=torch.bool)}, {"w": torch.ones(3)}]
)
def test_a_support_that_does_not_fit_is_refused(support):
    with pytest.raises(TypeError, match="the support of"):
        ClippedSum({"w": torch.ones(3)}, C, torch.zeros(2), support=support)
