import math

import pytest

from privet.accounting import Event, FixedSizeEvent, parallel_epsilon
from privet.accounting.events import ADJACENCIES
from privet.accounting.queries import composed_epsilon
from privet.errors import InvalidArgumentError

CHEAP, DEAR = [Event(0.01, 2.0, 100)], [Event(0.05, 1.5, 300), Event(1.0, 30.0, 2)]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_all_parts_cost_as_much_as_the_most_expensive_one(adjacency):
    together = parallel_epsilon([CHEAP, DEAR, CHEAP], delta=1e-5, adjacency=adjacency)
    assert together == composed_epsilon(DEAR, delta=1e-5, adjacency=adjacency)
    assert together < composed_epsilon([*CHEAP, *DEAR, *CHEAP], delta=1e-5, adjacency=adjacency)


def test_a_part_without_noise_spoils_all():
    assert parallel_epsilon([CHEAP, [Event(0.1, 0.0)]], delta=1e-5) == math.inf
    assert parallel_epsilon([[], CHEAP], delta=1e-5, accountant="rdp") == composed_epsilon(CHEAP, delta=1e-5, accountant="rdp")


def test_invalid_parts_are_refused():
    with pytest.raises(InvalidArgumentError, match=r"^parts is"):
        parallel_epsilon([], delta=1e-5)
    with pytest.raises(InvalidArgumentError, match=r"^adjacency is"):
        parallel_epsilon([CHEAP, [FixedSizeEvent(0.1, 2.0)]], delta=1e-5)
