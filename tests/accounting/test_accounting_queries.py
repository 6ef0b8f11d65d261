import math

import numpy as np
import pytest

from privet.accounting import Event, FixedSizeEvent, parallel_epsilon, pld, rdp
from privet.accounting.events import ADJACENCIES
from privet.accounting.queries import ACCOUNTANTS, composed_epsilon, resolution
from privet.errors import InvalidArgumentError

CHEAP, DEAR = [Event(0.01, 2.0, 100)], [Event(0.05, 1.5, 300), Event(1.0, 30.0, 2)]
SAMPLED, QUERY = [Event(0.01, 1.3, 700)], {"delta": 1e-5, "adjacency": "add-remove"}


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_all_parts_cost_as_much_as_the_most_expensive_one(adjacency):
    together = parallel_epsilon([CHEAP, DEAR, CHEAP], delta=1e-5, adjacency=adjacency)
    assert together == composed_epsilon(DEAR, delta=1e-5, adjacency=adjacency)
    assert together < composed_epsilon([*CHEAP, *DEAR, *CHEAP], delta=1e-5, adjacency=adjacency)


def test_a_part_without_noise_spoils_all_and_an_empty_one_costs_nothing():
    assert parallel_epsilon([CHEAP, [Event(0.1, 0.0)]], delta=1e-5) == math.inf
    assert parallel_epsilon([[], CHEAP], delta=1e-5, accountant="rdp") == composed_epsilon(CHEAP, delta=1e-5, accountant="rdp")


def test_invalid_parts_are_refused():
    with pytest.raises(InvalidArgumentError, match=r"^parts is"):
        parallel_epsilon([], delta=1e-5)
    with pytest.raises(InvalidArgumentError, match=r"^adjacency is"):
        parallel_epsilon([CHEAP, [FixedSizeEvent(0.1, 2.0)]], delta=1e-5)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_a_closed_form_has_no_resolution_and_the_others_say_theirs(accountant):
    expected = {
        "pld": {"grid_width"},
        "rdp": {"orders", "lowest_order", "highest_order", "best_order"},
        "moments": {"orders", "lowest_order", "highest_order"},
    }
    assert set(resolution(SAMPLED, accountant=accountant, **QUERY)) == expected.get(accountant, set())
    assert resolution([], accountant=accountant, **QUERY) == {}


def test_the_width_is_that_of_the_grid_and_the_order_the_one_that_decides():
    assert resolution([Event(1.0, 9.0, 70)], accountant="pld", **QUERY) == {}
    width = resolution(SAMPLED, accountant="pld", **QUERY)["grid_width"]
    assert np.log2(width) * 2 == round(np.log2(width) * 2)
    assert width == pld.grid_width(SAMPLED, **QUERY)
    place = rdp.ORDERS.tolist().index(resolution(SAMPLED, accountant="rdp", **QUERY)["best_order"])
    proven = rdp.to_epsilon(rdp.curve(SAMPLED, "add-remove"), 1e-5, rdp.ORDERS)[place]
    assert proven == composed_epsilon(SAMPLED, accountant="rdp", **QUERY)
