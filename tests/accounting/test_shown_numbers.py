import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.accounting.rounding import format_percent_down, format_percent_up, format_up, round_down, round_up


@given(st.floats(1e-12, 1e12), st.integers(1, 8))
def test_rounding_keeps_its_side(value, digits):
    assert float(round_down(value, digits)) <= value <= float(round_up(value, digits))
    assert float(round_up(value, digits)) <= value * (1 + 10.0 ** (1 - digits) + 1e-12)


@pytest.mark.parametrize(
    ("value", "words"), [(0.0, "0.0"), (1682.1, "1683"), (0.00012341, "0.0001235"), (3.14151e7, "3.142e+7"), (math.inf, "∞")]
)
def test_a_privacy_loss_is_legible(value, words):
    assert format_up(value) == words


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [(0.5, "50", "50"), (0.001, "0.1", "0.1"), (0.12301, "13", "12"), (1.0, "100", "100"), (0.0, "0", "0")],
)
def test_shares_have_two_digits_on_the_safe_side(value, up, down):
    found = [text.replace("\N{NO-BREAK SPACE}%", "") for text in (format_percent_up(value), format_percent_down(value))]
    assert [float(text) for text in found] == [float(up), float(down)]


def test_the_last_binary_digit_of_a_share_is_not_rounded_up():
    assert format_percent_up(1 - (1 - 0.001)) == format_percent_up(0.001)
