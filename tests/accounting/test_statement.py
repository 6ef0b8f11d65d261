import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.accounting import ADJACENCIES, DIRECTIONS
from privet.accounting.statement import NOT_COVERED, Guarantee


def guarantee(**changes):
    values = {
        "epsilon": 2.9341,
        "delta": 1.2345678e-5,
        "adjacency": "add-remove",
        "unit": "one example",
        "examples": 60_000,
        "sampling": "Poisson",
        "sampling_rate": 0.0085,
        "steps": 2343,
        "noise_multiplier": 2.3,
        "sensitivity": 0.7,
        "accountant": "pld",
        "epsilon_by_accountant": {"pld": 2.9341, "rdp": 3.21011, "gdp": 2.71801},
        "random_source": "words from a hat",
        "reasons": (),
        "warnings": (),
        "versions": {"privet": "0.0"},
    }
    return Guarantee(**{**values, **changes})


def displayed(value):
    """Return the ε that a statement shows for this value, as a number."""
    return float(re.match(r"\(([^,]+), ", str(guarantee(epsilon=value)))[1])


@given(st.floats(1e-12, 1e12))
def test_epsilon_is_never_displayed_smaller_than_it_is(value):
    assert value <= displayed(value) <= value * (1 + 1.01e-3)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (2.0001, "2.001"),
        (2.9999, "3.000"),
        (2.997, "2.997"),
        (3.0, "3.0"),
        (0.00123411, "0.001235"),
        (12345.1, "1.235e+4"),
        (0.0, "0.0"),
    ],
)
def test_epsilon_has_four_digits_rounded_up(value, shown):
    assert str(guarantee(epsilon=value)).startswith(f"({shown}, ")


def test_other_accountants_are_rounded_up_too():
    assert "rdp 3.211 (upper bound), gdp 2.719 (approximation that can be too small)" in str(guarantee())


def test_delta_is_displayed_exactly():
    assert "(2.935, 1.2345678e-05)-differential privacy" in str(guarantee())


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("accountant", DIRECTIONS)
def test_the_prose_says_what_is_promised_to_whom_and_by_what(adjacency, accountant):
    prose = str(guarantee(adjacency=adjacency, accountant=accountant))
    expected = [
        f'one example that is {ADJACENCIES[adjacency]} ("{adjacency}")',
        f'"{accountant}" ({DIRECTIONS[accountant]})',
        "one example",
        "60,000",
        "2,343 steps",
        "0.0085",
        "2.3 times",
        "0.7",
        "words from a hat",
        "privet 0.0",
        *NOT_COVERED,
    ]
    assert [text for text in expected if text not in prose] == []


def test_warnings_are_part_of_the_prose():
    assert "that is weak." in str(guarantee(warnings=("that is weak",)))


@pytest.mark.parametrize("reasons", [(), ("the moon is full",)])
def test_without_privacy_the_first_words_say_so(reasons):
    statement = guarantee(epsilon=math.inf, reasons=reasons, epsilon_by_accountant={"pld": math.inf})
    prose = str(statement)
    assert prose.startswith("NO PRIVACY (ε = ∞): ")
    assert all(reason in prose for reason in reasons)
    assert "differential privacy" not in prose
    data = json.loads(statement.to_json())
    assert (data["epsilon"], data["epsilon_by_accountant"]) == ("inf", {"pld": "inf"})


def test_json_has_every_field_and_is_strict():
    statement = guarantee()

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    data = json.loads(statement.to_json(), parse_constant=refuse)
    assert set(data) == {*Guarantee.__dataclass_fields__, "prose", "direction"}
    assert data["epsilon"] == statement.epsilon
    assert data["prose"] == str(statement)
    assert data["direction"] == "upper bound"
