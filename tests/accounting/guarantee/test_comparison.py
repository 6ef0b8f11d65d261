import json
import math
from functools import partial

import pytest

import plans
from privet.accounting import compare
from privet.accounting.queries import ACCOUNTANTS, DIRECTIONS
from privet.clipping import Flat, Projected
from privet.errors import InvalidArgumentError
from privet.noise import Gaussian
from privet.sampling import BallsInBins, FixedSize, FullBatch, Poisson, Shuffle, TruncatedPoisson

ALL = tuple(ACCOUNTANTS)


plan = partial(plans.plan, examples=5000, sampling=Poisson(50), steps=120, clipping=Flat(0.3), noise=Gaussian(1.7))
COVERED = {
    "poisson": (plan(), ALL),
    "full batch": (plan(sampling=FullBatch(), noise=Gaussian(40.0)), ALL),
    "shuffled": (plan(sampling=Shuffle(50), adjacency="zero-out"), ALL),
    "balls in bins": (plan(sampling=BallsInBins(50)), ALL),
    "fixed size": (plan(sampling=FixedSize(50), adjacency="replace-one"), ("pld", "rdp")),
    "truncated": (plan(sampling=TruncatedPoisson(50, cap=100)), ("pld",)),
    "estimated norms": (plan(clipping=Projected(Flat(0.3), 30)), ("pld",)),
}


@pytest.mark.product
@pytest.mark.parametrize(("made", "covering"), COVERED.values(), ids=COVERED)
def test_every_answer_is_the_plans_and_every_missing_one_has_a_reason(made, covering):
    found = compare(made)
    assert [row.accountant for row in found.rows] == list(ALL)
    for row in found.rows:
        assert row.direction == DIRECTIONS[row.accountant]
        if row.accountant in covering:
            assert (row.epsilon, row.why_not) == (made.epsilon(row.accountant), "")
            continue
        assert row.epsilon is None
        assert row.why_not in str(found)
        with pytest.raises(InvalidArgumentError, match=rf"^accountant is '{row.accountant}'; it must be 'pld'"):
            made.epsilon(row.accountant)
    # A statement quotes no estimates but GDP's, which papers report.
    assert set(made.guarantee().epsilon_by_accountant) == set(covering) - {"edgeworth"}


def test_it_is_a_table_for_people_and_for_programs():
    found = compare(plan(), steps=30)
    lines = str(found).splitlines()
    assert lines[0] == "ε of 30 steps at δ = 1e-05 (add-remove)"
    assert [line.split()[0] for line in lines[2:]] == list(ALL)
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (values["steps"], values["delta"], values["adjacency"]) == (30, 1e-5, "add-remove")
    assert [row["epsilon"] for row in values["rows"]] == [plan().epsilon(name, steps=30) for name in ALL]
    assert all(row["covers"] and row["why_not"] is None for row in values["rows"])


def test_infinity_and_missing_answers_are_plain_values():
    nothing = compare(plan(noise=Gaussian(0.0, non_private=True)))
    assert {row.epsilon for row in nothing.rows} == {math.inf}
    assert str(nothing).count("∞") == len(ALL)
    assert {row["epsilon"] for row in nothing.to_dict()["rows"]} == {"inf"}
    silent = compare(plan(sampling=FixedSize(50), adjacency="replace-one")).to_dict()["rows"][-1]
    assert (silent["epsilon"], silent["covers"]) == (None, False)
    assert "fixed size" in silent["why_not"]


def test_an_error_in_the_plan_is_raised_and_not_tabulated():
    with pytest.raises(InvalidArgumentError, match=r"^noise\.multiplier is None"):
        compare(plan(noise=Gaussian()))
    with pytest.raises(InvalidArgumentError, match="Projected"):
        compare(plan(clipping=Projected(Flat(0.3), 30), sampling=FixedSize(50), adjacency="replace-one"))
