import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.accounting.root_finding import HIGHEST, LOWEST, MOST_STEPS, largest_count, smallest_multiplier
from privet.errors import InvalidArgumentError

SPENDING = {
    "power": lambda sigma: 3 * sigma**-1.4,
    "steep": lambda sigma: math.exp(min(700.0, 5 / sigma)) - 1,
    "two regimes": lambda sigma: 1 / sigma + 1e-4 * sigma**-6,
    "unbounded below one half": lambda sigma: math.inf if sigma < 0.5 else 5 - math.log(sigma) if sigma < 140 else 0.0,
    "in steps": lambda sigma: math.ceil(200 / sigma) / 20,
}


@pytest.mark.parametrize("spent", SPENDING.values(), ids=SPENDING)
@settings(max_examples=60)
@given(target=st.floats(0.06, 50), guess=st.floats(0.05, 300))
def test_the_root_is_met_from_above_in_few_questions(spent, target, guess):
    asked = []

    def counted(sigma):
        asked.append(sigma)
        return spent(sigma)

    found = smallest_multiplier(counted, target, guess)
    assert spent(found) <= target < spent(found * (1 - 2e-5))
    assert len(asked) <= 80


def test_unreachable_targets_are_refused_with_the_reachable_range():
    with pytest.raises(
        InvalidArgumentError, match=f"epsilon is 0.001; it must be at least 7, the ε of noise multiplier {HIGHEST:g}"
    ):
        smallest_multiplier(lambda _: 7.0, 0.001)
    with pytest.raises(InvalidArgumentError, match="epsilon is 1; it must be at least 2, the cost of one step"):
        largest_count(lambda number: 2.0 * number, 1)
    with pytest.raises(InvalidArgumentError, match="epsilon is 9; it must be at most 7"):
        smallest_multiplier(lambda _: 7.0, 9)
    for edge in (LOWEST * 1.01, HIGHEST / 1.01):
        assert smallest_multiplier(lambda sigma: 1 / sigma, 1 / edge) == pytest.approx(edge, rel=2e-5)


@given(limit=st.integers(1, MOST_STEPS - 1), power=st.sampled_from([0.5, 0.7, 1.0, 3.0]), free=st.integers(0, 1000))
def test_the_largest_count_is_found_in_few_questions(limit, power, free):
    """Also where the first steps cost nothing, as they do while δ covers them."""
    asked = []

    def spent(number):
        asked.append(number)
        return max(0, number - free) ** power

    assert largest_count(spent, spent(limit) + 1e-9 if limit > free else 0.0) == max(limit, free)
    assert len(asked) <= 50


@given(limit=st.integers(2, MOST_STEPS - 2), power=st.sampled_from([0.5, 0.7, 1.0, 3.0]), start=st.integers(1, MOST_STEPS - 1))
def test_the_search_may_begin_anywhere(limit, power, start):
    assert largest_count(lambda number: number**power, limit**power + 1e-9, start=start) == limit


@pytest.mark.parametrize("power", [0.5, 0.7])
def test_a_search_that_begins_near_the_answer_takes_a_few_questions(power):
    asked = []

    def spent(number):
        asked.append(number)
        return number**power * (1 + 1e-7 * number)

    assert largest_count(spent, spent(13_055), start=12_900) == 13_055
    assert len(asked) <= 9


def test_a_target_beyond_the_largest_number_of_steps_is_refused_quickly():
    asked = []

    def spent(number):
        asked.append(number)
        return 1e-12 * number

    with pytest.raises(
        InvalidArgumentError, match=r"epsilon is 3; it must be below 0.00215, the cost of 2,147,483,647 steps: any number"
    ):
        largest_count(spent, 3)
    assert len(asked) <= 8
    assert largest_count(spent, 1e-12 * (MOST_STEPS - 1)) == MOST_STEPS - 1
    with pytest.raises(InvalidArgumentError, match=r"the cost of 1,000 steps"):
        largest_count(spent, 3, most=1000)
