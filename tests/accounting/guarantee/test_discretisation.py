import numpy as np
import pytest

from privet.accounting import Event, FixedSizeEvent, pld, rdp
from privet.accounting.guarantee.discretisation import discretisation
from privet.accounting.queries import ACCOUNTANTS, composed_epsilon

SAMPLED, QUERY = [Event(0.01, 1.3, 700)], {"delta": 1e-5, "adjacency": "add-remove"}


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_a_formula_has_none_and_the_others_say_theirs(accountant):
    found = discretisation(SAMPLED, accountant=accountant, **QUERY)
    expected = {
        "pld": {"grid_width"},
        "rdp": {"orders", "lowest_order", "highest_order", "best_order"},
        "moments": {"orders", "lowest_order", "highest_order"},
    }
    assert set(found) == expected.get(accountant, set())
    assert discretisation([], accountant=accountant, **QUERY) == {}


def test_the_width_is_that_of_the_grid_and_the_order_the_one_that_decides():
    assert discretisation([FixedSizeEvent(0.01, 1.3, 9)], delta=1e-5, adjacency="replace-one", accountant="pld")["grid_width"] > 0
    assert discretisation([Event(1.0, 9.0, 70)], accountant="pld", **QUERY) == {}
    width = discretisation(SAMPLED, accountant="pld", **QUERY)["grid_width"]
    assert np.log2(width) * 2 == round(np.log2(width) * 2)
    assert width == pld.grid_width(SAMPLED, **QUERY)
    found = discretisation(SAMPLED, accountant="rdp", **QUERY)
    place = rdp.ORDERS.tolist().index(found["best_order"])
    proven = rdp.to_epsilon(rdp.curve(SAMPLED, "add-remove"), 1e-5, rdp.ORDERS)[place]
    assert proven == composed_epsilon(SAMPLED, accountant="rdp", **QUERY)
