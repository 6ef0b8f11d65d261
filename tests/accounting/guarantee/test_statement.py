import json
import math
import re

import pytest

from privet.accounting import Event
from privet.accounting.events import ADJACENCIES
from privet.accounting.guarantee import tradeoff
from privet.accounting.guarantee.statement import NOT_COVERED, Guarantee, explain_meaning, promise_for
from privet.accounting.privacy_unit import group_unit
from privet.accounting.queries import DIRECTIONS


def guarantee(**changes):
    values = {
        "epsilon": 2.9341, "delta": 1.2345678e-5, "adjacency": "add-remove", "unit": "one example", "examples": 60_000,
        "sampling": "Poisson", "sampling_rate": 0.0085, "assumed": "coins fall fairly", "steps": 2343, "noise_multiplier": 2.3,
        "sensitivity": 0.7, "accountant": "pld", "discretisation": {"grid_width": 0.00123}, "epsilon_without_sampling": 1683.2,
        "epsilon_by_accountant": {"pld": 2.9341, "rdp": 3.21011, "gdp": 2.71801}, "meaning": tradeoff.meaning([Event(1.0, 1.3)]),
        "random_source": "words from a hat", "reasons": (), "warnings": (), "versions": {"privet": "0.0"},
    }  # fmt: skip
    return Guarantee(**{**values, **changes})


@pytest.mark.parametrize(("accountant", "adjacency"), [*zip(DIRECTIONS, 3 * [*ADJACENCIES], strict=False)])
def test_the_prose_states_the_guarantee_and_how_it_was_computed(adjacency, accountant):
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
        "privet 0.0 (grid width 0.00123)",
        "Without amplification by sampling, ε would be 1684",
        "Sampling assumed: coins fall fairly. Performed: nothing yet",
        "central",
        *NOT_COVERED,
    ]
    assert [text for text in expected if text not in prose] == []


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
    derived = {"prose", "direction", "accountant_version", "setting", "delta_times_people", "tuning", "format", "summary"}
    assert set(data) == {*Guarantee.__dataclass_fields__, *derived}
    assert data["epsilon"] == statement.epsilon
    assert data["prose"] == str(statement)
    assert data["direction"] == "upper bound"
    assert data["accountant_version"] == "privet 0.0"
    assert data["delta_times_people"] == pytest.approx(1.2345678e-5 * 60_000)
    assert (data["tuning"], data["performed"]) == ("not covered", None)
    assert data["meaning"]["tpr_at_fpr_1%"] == statement.meaning.found_at_one_in_a_hundred


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_limits_on_attacks_are_rounded_in_the_attackers_favour(adjacency):
    meaning = tradeoff.meaning([Event(1.0, 1.3)])
    words = explain_meaning(meaning, "one user", adjacency)
    assert "one user" in words
    advantage, at_thousand, at_hundred = (float(found) / 100 for found in re.findall(r"at most ([\d.]+)", words))
    assert meaning.advantage <= advantage <= meaning.advantage * 1.1
    assert meaning.found_at_one_in_a_thousand <= at_thousand <= meaning.found_at_one_in_a_thousand * 1.1
    assert meaning.found_at_one_in_a_hundred <= at_hundred <= meaning.found_at_one_in_a_hundred * 1.1
    wrong = float(re.search(r"at least ([\d.]+)", words)[1]) / 100
    assert meaning.bayes_risk * 0.9 <= wrong <= meaning.bayes_risk


@pytest.mark.parametrize(("changes", "words"), [
    ({"unit": group_unit(4), "adjacency": "replace-one", "delta": 1e-6}, "δ is 24 % of 1/240,000."),
    ({"delta": 1e-4}, "δ is 6 times 1/60,000."),
    ({"epsilon_without_sampling": 2.9341}, "No amplification by sampling is claimed."),
    ({"warnings": ("that is weak",)}, "that is weak."),
    ({}, "(2.935, 1.2345678e-05)-differential privacy"),
    ({}, "rdp 3.211 (upper bound), gdp 2.719 (approximation that can be too small)"),
])  # fmt: skip
def test_the_prose_says_what_the_numbers_say(changes, words):
    """δ is exact and compared with the examples in all groups; every ε is rounded up; no amplification is claimed without one."""
    assert words in str(guarantee(**changes))


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("unit", ["one example", "one user", group_unit(4)], ids=str)
def test_a_statement_begins_with_a_summary_in_plain_words_whose_numbers_are_those_of_the_details(unit, adjacency):
    statement = guarantee(unit=unit, adjacency=adjacency, performed="dice", purpose="to find  a bed.")
    summary, details = (text.replace("\N{NO-BREAK SPACE}", " ") for text in str(statement).split("\n\nGuarantee: "))
    assert summary == statement.summary.replace("\N{NO-BREAK SPACE}", " ")
    assert str(statement).startswith("What was done: a model was trained on the data of 60,000 ")
    assert 90 <= len(summary.split()) <= 155
    assert f"Purpose: to find  a bed. Date: {statement.date}." in summary
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", statement.date)
    assert str(unit) in summary
    assert summary.count("2,343 steps") == details.count("2,343 steps") == 1
    (wrong,) = re.findall(r"erring at least ([\d.]+) %", summary)
    assert f"errs at least {wrong} % of the time" in details
    epsilon, delta = re.search(r"ε = ([\d.]+) at δ = ([\d.e-]+)\.", summary).groups()
    assert f"({epsilon}, {delta})-differential privacy" in details


def test_a_plan_is_no_training():
    assert "nothing yet" in guarantee().summary
    assert guarantee(performed="dice", epsilon=math.inf).summary.count("\n") == 0


def test_without_code_of_a_user_nothing_is_assumed_about_code():
    made = promise_for("one example")
    statement = guarantee(by_construction=made[0], by_check=made[1], assumptions=(*made[2], "the earth is round"))
    own = statement.without_user_code()
    assert own.assumptions == (made[2][-1], "the earth is round")
    assert own.epsilon == statement.epsilon
    for words in ("your own", "hooks", "loss closes over", "batching rules", "written to leak", "honest"):
        assert words in str(statement)
        assert words not in str(own)


def test_what_a_run_did_is_part_of_the_prose():
    prose = str(guarantee(performed="dice", assumptions=("the earth is round",), beside=("a postcard",)))
    assert all(words in prose for words in ("Performed: dice.", "- the earth is round", "sampled examples); a postcard."))
