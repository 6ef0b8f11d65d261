import math
import pickle

import pytest

from privet import errors
from privet.errors import InvalidArgumentError

NOT_NUMBERS = (True, False, "1", None, 1j, [1.0])
NOT_FINITE = (math.nan, math.inf, -math.inf, 10**400)


@pytest.mark.parametrize("check", [errors.real, errors.positive, lambda *a: errors.between(*a, 0.0, 1.0)])
@pytest.mark.parametrize("value", NOT_NUMBERS + NOT_FINITE, ids=lambda value: str(value)[:8])
def test_what_is_not_a_finite_real_number_is_refused_by_name(check, value):
    with pytest.raises(InvalidArgumentError, match=r"^rate is .*; it must be (a real number|finite)\."):
        check("rate", value)


@pytest.mark.parametrize("value", [0, -0.0, -1, -1e-300])
def test_positive_refuses_zero_and_below(value):
    with pytest.raises(InvalidArgumentError, match=r"rate is .*greater than 0"):
        errors.positive("rate", value)


@pytest.mark.parametrize("value", [0, 1, 1.0, -0.5, 1.5])
def test_between_excludes_its_ends(value):
    with pytest.raises(InvalidArgumentError, match=r"rate is .*between 0 and 1, both excluded"):
        errors.between("rate", value, 0.0, 1.0)


@pytest.mark.parametrize("value", [True, 1.0, "3", None, math.nan])
def test_a_count_is_a_whole_number(value):
    with pytest.raises(InvalidArgumentError, match=r"steps is .*a whole number"):
        errors.count("steps", value)


@pytest.mark.parametrize("value", [1, -3, 2**31, 10**400])
def test_a_count_is_in_range(value):
    with pytest.raises(InvalidArgumentError, match=r"steps is .*at least 2 and less than"):
        errors.count("steps", value, minimum=2)


@pytest.mark.parametrize("value", ["c", "", None, 1, [], {"a": 1}])
def test_a_choice_lists_the_words(value):
    with pytest.raises(InvalidArgumentError, match="one of 'a', 'b'"):
        errors.choice("word", value, ("a", "b"))


def test_accepted_values_come_back_unchanged():
    assert errors.real("x", -2.3) == -2.3
    assert errors.positive("x", 3) == 3.0
    assert errors.between("x", 0.7, 0.0, 1.0) == 0.7
    assert errors.count("x", 2**31 - 1) == 2**31 - 1
    assert errors.choice("x", "b", ("a", "b")) == "b"


def test_the_message_names_argument_value_range_and_fix():
    error = InvalidArgumentError("noise.multiplier", -2.3, "greater than 0", "Calibrate it.")
    assert str(error) == "noise.multiplier is -2.3; it must be greater than 0. Calibrate it."
    assert isinstance(error, ValueError)
    assert isinstance(error, errors.PrivetError)


def test_an_error_survives_the_way_out_of_a_worker_process():
    error = InvalidArgumentError("bound", 0, "greater than 0", "Raise it.")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.name, copy.value) == (type(error), str(error), "bound", 0)
