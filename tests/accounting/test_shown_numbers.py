import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.accounting.rounding import legible, rounded_down, rounded_up, share_down, share_up


@given(st.floats(1e-12, 1e12), st.integers(1, 8))
def test_rounding_keeps_its_side(value, digits):
    assert float(rounded_down(value, digits)) <= value <= float(rounded_up(value, digits))
    assert float(rounded_up(value, digits)) <= value * (1 + 10.0 ** (1 - digits) + 1e-12)


@pytest.mark.parametrize(
    ("value", "words"), [(0.0, "0.0"), (1682.1, "1683"), (0.00012341, "0.0001235"), (3.14151e7, "3.142e+7"), (math.inf, "∞")]
)
def test_a_privacy_loss_is_legible(value, words):
    assert legible(value) == words


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [(0.5, "50", "50"), (0.001, "0.1", "0.1"), (0.12301, "13", "12"), (1.0, "100", "100"), (0.0, "0", "0")],
)
def test_shares_have_two_digits_on_the_safe_side(value, up, down):
    found = [text.replace("\N{NO-BREAK SPACE}%", "") for text in (share_up(value), share_down(value))]
    assert [float(text) for text in found] == [float(up), float(down)]


def test_the_last_binary_digit_of_a_share_is_not_rounded_up():
    assert share_up(1 - (1 - 0.001)) == share_up(0.001)
