import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from privet import schedules
from privet._utils.registry import kinds_of
from privet.errors import InvalidArgumentError
from privet.schedules import Constant, Geometric, Linear, Piecewise, Schedule, Table, ToZero, factors_of, is_constant

EVERY = [
    Constant(), Linear(), Linear(final=0.25, over=7), ToZero(), Geometric(), Geometric(rate=0.2, final=0.1),
    Piecewise((1.0, 200.0), (0.95,)), Piecewise((3.0,), ()), Table((1.0, 0.9, 0.7)),
]  # fmt: skip


def test_linear_is_the_papers_rule():
    bound, over, total = 12.0, 1000, 2500
    found = bound * Linear(over=over).factors(total)
    assert np.allclose(found, [bound / min(2, 1 + t / over) for t in range(total)], rtol=1e-14)
    assert found[-1] == bound / 2


def test_linear_without_a_length_takes_the_trainings():
    assert np.array_equal(Linear().factors(40), Linear(over=40).factors(40))
    assert Linear().factors(40)[-1] > 0.5


def test_geometric_takes_a_thousandth_a_step_until_half_is_left():
    found = Geometric().factors(2000)
    expected, factor = [], 1.0
    for _ in range(2000):
        expected.append(max(factor, 0.5))
        factor -= factor / 1000
    assert np.allclose(found, expected, rtol=1e-12)
    assert (found == 0.5).sum() > 1000


@pytest.mark.parametrize("total", [1, 3, 250])
def test_to_zero_takes_equal_parts_and_would_be_nought_after_the_last_step(total):
    found = [*ToZero().factors(total), 0.0]
    assert found[0] == 1.0
    assert np.allclose(np.diff(found), -1 / total, rtol=1e-12)


@pytest.mark.parametrize(("total", "small"), [(20, 19), (100, 95), (1000, 950)])
def test_the_mix_up_has_the_small_bound_for_the_first_95_percent(total, small):
    found = Piecewise((1.0, 200.0), (0.95,)).factors(total)
    assert (found[:small] == 1.0).all()
    assert (found[small:] == 200.0).all()


def test_the_last_number_of_a_table_holds_for_all_later_steps():
    schedule = Table([1 / (1 + step) for step in range(4)])
    assert np.array_equal(schedule.factors(6), [1, 1 / 2, 1 / 3, 1 / 4, 1 / 4, 1 / 4])
    assert np.array_equal(schedule.factors(2), [1, 1 / 2])


@pytest.mark.parametrize("schedule", EVERY, ids=str)
@given(total=st.integers(1, 300))
def test_every_factor_is_a_positive_number(schedule, total):
    factors = schedule.factors(total)
    assert factors.shape == (total,)
    assert np.isfinite(factors).all()
    assert (factors > 0).all()


def test_every_schedule_is_in_the_table_and_joins_these_tests():
    public = {kind for kind in vars(schedules).values() if isinstance(kind, type) and issubclass(kind, schedules.Schedule)}
    assert public - {schedules.Schedule} == set(kinds_of(schedules.Schedule).values()) == {type(schedule) for schedule in EVERY}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Linear(final=0.0), "schedule.final"),
        (lambda: Linear(final=1.5), "schedule.final"),
        (lambda: Linear(over=0), "schedule.over"),
        (lambda: Geometric(rate=1.0), "schedule.rate"),
        (lambda: Geometric(rate=math.nan), "schedule.rate"),
        (lambda: Piecewise((1.0, 2.0), ()), "one fewer than the 2 values"),
        (lambda: Piecewise((1.0, 2.0), (1.0,)), "schedule.until"),
        (lambda: Piecewise((1.0, 2.0, 3.0), (0.5, 0.4)), "increasing"),
        (lambda: Piecewise((1.0, 0.0), (0.5,)), "schedule.values"),
        (lambda: Table(()), "at least one factor"),
        (lambda: Table((1.0, -1.0)), "schedule.values"),
        (lambda: Table((1.0, 10**400)), "schedule.values"),
        (lambda: Table("one"), "schedule.values is 'one'"),
        (lambda: Table(0.5), "schedule.values is 0.5"),
        (lambda: Table((1.0, 0.0, -1.0)), "schedule.values"),
    ],
)
def test_what_is_no_schedule_is_refused(make, words):
    with pytest.raises(InvalidArgumentError, match=words):
        make()


def given_by(factors, base=Schedule):
    return type("Own", (base,), {"factors": lambda self, total: factors})()


@pytest.mark.parametrize("factors", [[0.5, 1, 2], np.array([0.5, 1, 2], np.float32), torch.tensor([0.5, 1, 2])], ids=repr)
def test_factors_are_numbers_however_they_are_given(factors):
    found = factors_of("noise.schedule", given_by(factors), 3)
    assert found.dtype == np.float64
    assert found.tolist() == [0.5, 1.0, 2.0]


def test_factors_are_a_copy_that_nobody_changes():
    factors = np.ones(2)
    found = factors_of("noise.schedule", given_by(factors), 2)
    factors[0] = 0.1
    assert found.tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 0.1


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        (np.ones(2), r"is \(2,\); it must be a schedule whose factors have the shape \(3,\) \(Own\)"),
        (np.ones(4), r"is \(4,\)"),
        (np.ones((3, 1)), r"is \(3, 1\)"),
        (0.5, r"is \(\)"),
        (None, "is 'NoneType'; .* factors are numbers"),
        (["1", "2", "3"], "is 'list'"),
        ([1, [2], 3], "is 'list'"),
        (np.array([1j, 1, 1]), "is 'ndarray'"),
        (torch.ones(3, requires_grad=True), "is 'Tensor'"),
        ([1, 0, 1], "is 0.0; it must be finite and greater than 0 at every step, also at step 2"),
        ([1, 1, -1], "is -1.0; .*step 3"),
        ([math.nan, 1, 1], "is nan; .*step 1"),
        ([1, math.inf, 1], "is inf; .*step 2"),
    ],
)
def test_factors_that_are_not_one_positive_number_for_every_step_are_refused(factors, words):
    with pytest.raises(InvalidArgumentError, match=f"^noise.schedule {words}"):
        factors_of("noise.schedule", given_by(factors), 3)


def test_a_kind_that_extends_the_constant_one_is_not_taken_for_it():
    assert is_constant(Constant())
    assert not is_constant(given_by([0.5], Constant))
