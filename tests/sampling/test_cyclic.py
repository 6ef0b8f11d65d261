import math
from itertools import islice

import numpy as np
import pytest
from scipy import stats

from privet import accounting
from privet.errors import InvalidArgumentError
from privet.noise import Keystream, Participation
from privet.sampling import BallsInBins, CyclicPoisson, FixedOrder, FullBatch, Poisson

N = 60


def table(scheme, steps, examples=N):
    """Which example (column) takes part in which step (row)."""
    found = np.zeros((steps, examples), dtype=bool)
    for row, draw in zip(found, islice(scheme.draws(examples, Keystream().words), steps), strict=True):
        row[draw] = True
    return found


@pytest.mark.parametrize("scheme", [CyclicPoisson(9, cycle=4), CyclicPoisson(2, cycle=7), FixedOrder(9), FixedOrder(25)], ids=str)
def test_an_example_takes_part_at_the_same_place_of_every_cycle(scheme):
    pattern = scheme.pattern(N, 100)
    for column in table(scheme, 100).T:
        steps = np.flatnonzero(column)
        assert len(set((steps % pattern.separation).tolist())) <= 1
        assert len(steps) <= pattern.times == math.ceil(100 / pattern.separation)


def test_groups_and_participation_are_drawn_independently(holds_twice):
    scheme, runs = CyclicPoisson(9, cycle=4), 300

    def experiment():
        found = np.stack([table(scheme, 8) for _ in range(runs)])  # runs × steps × examples, two cycles
        places = found.reshape(runs, 2, 4, N)
        joined = places.any(2)
        rate = 4 * 9 / N
        sizes = found.sum(2).ravel()
        together = (joined[:, 0] & joined[:, 1]).sum()
        groups = places.any(1).argmax(1)[:, [3, 17]]
        known = places.any((1, 2))[:, [3, 17]].all(1)
        pairs = np.bincount(4 * groups[known, 0] + groups[known, 1], minlength=16)
        return {
            "rate": stats.binomtest(int(joined.sum()), joined.size, rate).pvalue,
            "cycles": stats.binomtest(int(together), runs * N, rate**2).pvalue,
            "groups of two examples": stats.chisquare(pairs).pvalue,
            "batches": 2 * stats.norm.sf(abs(sizes.mean() - 9) / math.sqrt(N * 0.15 * 0.85 / len(sizes))),
        }

    holds_twice(experiment)


def test_a_fixed_order_is_the_same_in_every_epoch_and_another_in_every_run():
    one, other = (table(FixedOrder(9), 21) for _ in range(2))
    assert (one.sum(0) == 3).all()
    assert (one[:7] == one[7:14]).all()
    assert (one[:7] != other[:7]).any()


def test_patterns_say_how_far_apart_an_example_takes_part():
    assert CyclicPoisson(9, cycle=4).pattern(N, 10) == Participation(10, 3, 4, 0.6)
    assert FixedOrder(9).pattern(N, 15) == Participation(15, 3, 7, 1.0, 7)
    assert BallsInBins(9).pattern(N, 15) == Participation(15, 3, 1, 1.0, 7)  # the last step of an epoch, the first of the next
    assert FullBatch().pattern(N, 15) == Participation(15, 15, 1, 1.0, 1)
    assert Poisson(9).pattern(N, 15) is None


def test_a_cycle_is_one_release_with_its_least_noise():
    multipliers = np.array([2.0, 1.5, 3.0, 2.5, 4.0])
    assert CyclicPoisson(9, cycle=3).events(N, multipliers) == (accounting.Event(0.45, 1.5), accounting.Event(0.45, 2.5))
    assert FixedOrder(20).events(N, multipliers) == (accounting.Event(1.0, 1.5), accounting.Event(1.0, 2.5))
    assert CyclicPoisson(9, cycle=3).events(N, multipliers[:0]) == ()
    assert FixedOrder(20).event(N, 1.5, 2) == accounting.Event(1.0, 1.5, 2)
    assert CyclicPoisson(9, cycle=1).event(N, 1.3, 7) == Poisson(9).event(N, 1.3, 7)


def test_a_run_resumes_at_a_new_cycle():
    assert [CyclicPoisson(9, cycle=4).resumes_at(step, N) for step in range(1, 10)] == [1, 5, 5, 5, 5, 9, 9, 9, 9]


def test_groups_must_hold_a_batch():
    with pytest.raises(InvalidArgumentError, match=r"^sampling.cycle is 7; .* 60 / 9|^sampling.cycle is 7; it must be at most"):
        CyclicPoisson(9, cycle=7).rate(N)
    with pytest.raises(InvalidArgumentError, match=r"^sampling.batch_size is 70"):
        CyclicPoisson(70, cycle=1).rate(N)
    for wrong in (0, 2.5):
        with pytest.raises(InvalidArgumentError, match=r"^sampling.cycle"):
            CyclicPoisson(9, cycle=wrong)
