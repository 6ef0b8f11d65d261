"""The comparison itself: it leaves out what a precision cannot compute, and nothing that it can."""

from dataclasses import replace

import pytest
from agreement import Tally, UnsuitableError, hold
from programs import Line, Program, Sizes

# Of huge outputs x of attention, cdist(x, x + 0.3) in float32 depends on how (x + 0.3) - x is rounded.
ROUNDED = Program(
    sizes=Sizes(B=5, T=5, d=5, C=5, H=5, W=5),
    lines=(
        Line(operation="attention_with_padding", inputs=("sequence", "mask"), module=0),
        Line(operation="weigh_without_gradient", inputs=("sequence",), module=1),
        Line(operation="conv2d", inputs=("image",), module=2),
        Line(operation="cdist", inputs=("t0", "t0"), module=4),
        Line(operation="time_major", inputs=("t1",), module=5),
    ),
    seed=382552, contents="outlier", double=False, part=3, bound=1.5,
)  # fmt: skip


def test_a_program_whose_rounding_is_amplified_is_left_out_in_float32_and_compared_in_float64():
    with pytest.raises(UnsuitableError, match="ill conditioned"):
        hold(ROUNDED, Tally())
    tally = Tally()
    hold(replace(ROUNDED, double=True), tally)
    assert tally.ways.total() == 1


def test_the_same_program_without_what_amplifies_is_compared_in_float32():
    tally = Tally()
    hold(replace(ROUNDED, lines=ROUNDED.lines[1:3]), tally)
    assert tally.ways.total() == 1
