import ast
import math
import pickle
from pathlib import Path

import pytest

import privet
from privet import errors
from privet.errors import InvalidArgumentError

NOT_NUMBERS = (True, False, "1", None, 1j, [1.0])
NOT_FINITE = (math.nan, math.inf, -math.inf, 10**400)


def between(name, value):
    return errors.between(name, value, 0.0, 1.0)


REFUSED = [
    *((check, NOT_NUMBERS + NOT_FINITE, r"(a real number|finite)\.") for check in (errors.real, errors.positive, between)),
    (errors.positive, [0, -0.0, -1, -1e-300], "greater than 0"),
    (between, [0, 1, 1.0, -0.5, 1.5], "between 0 and 1, both excluded"),
    (errors.count, [True, 1.0, "3", None, math.nan], "a whole number"),
    (lambda *a: errors.count(*a, minimum=2), [1, -3, 2**31, 10**400], "at least 2 and less than"),
    (lambda *a: errors.choice(*a, ("a", "b")), ["c", "", None, 1, [], {"a": 1}], "one of 'a', 'b'"),
]


@pytest.mark.parametrize(("check", "values", "allowed"), REFUSED, ids=[str(k) for k in range(len(REFUSED))])
def test_a_value_out_of_range_is_refused_by_name_with_what_is_allowed(check, values, allowed):
    for value in values:
        with pytest.raises(InvalidArgumentError, match=rf"^rate is .*; it must be .*{allowed}"):
            check("rate", value)


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


def test_what_another_exception_says_comes_first_as_the_cause():
    """And not last, as if it were the fix."""
    late = []
    for path in Path(privet.__file__).parent.rglob("*.py"):
        calls = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
        fixes = [call.args[3] for call in calls if ast.unparse(call.func) == "InvalidArgumentError" and len(call.args) > 3]
        late += [f"{path.name}:{fix.lineno}" for fix in fixes if ast.unparse(fix).startswith(("f'{error}", "f'{error.strerror}"))]
    assert not late


def test_an_error_survives_the_way_out_of_a_worker_process():
    error = InvalidArgumentError("bound", 0, "greater than 0", "Raise it.")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.name, copy.value) == (type(error), str(error), "bound", 0)
