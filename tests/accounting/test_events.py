import math

import pytest

from privet.accounting import Event
from privet.accounting.events import merge, round_multipliers_down
from privet.errors import InvalidArgumentError

SCHEDULE = [Event(0.01, 2.3, 3), Event(0.01, 1.1, 2), Event(0.01, 2.3, 4), Event(0.02, 2.3), Event(0.01, 5.0, 0)]


REFUSED = {
    "sampling_rate": [0, -0.1, 1.0001, math.nan, math.inf, True, "0.1", None],
    "noise_multiplier": [-1, math.nan, math.inf, True, "1", None, 1e-4, 1e-200, 1e7],
    "steps": [-1, 1.0, True, 2**31, None],
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_argument_is_refused_by_name(name):
    for value in REFUSED[name]:
        values = {"sampling_rate": 0.1, "noise_multiplier": 2.3, "steps": 1} | {name: value}
        with pytest.raises(InvalidArgumentError, match=rf"^{name} is"):
            Event(*values.values())


def test_equal_mechanisms_are_counted_together_in_any_order():
    expected = {Event(0.01, 2.3, 7), Event(0.01, 1.1, 2), Event(0.02, 2.3, 1)}
    assert set(merge(SCHEDULE)) == set(merge(reversed(SCHEDULE))) == expected


def test_rounding_down_is_never_more_noise_and_keeps_every_release():
    events = [Event(0.01, 0.9 * 1.003**power, power % 3 + 1) for power in range(300)]
    few = round_multipliers_down(events, 70)
    assert len(few) <= 1 + math.log2(1.003**299) * 70 + 1
    assert sum(event.count for event in few) == sum(event.count for event in events)
    for event in events:
        below = [one.noise_multiplier for one in few if one.noise_multiplier <= event.noise_multiplier * (1 + 1e-8)]
        assert below
        assert max(below) * 2 ** (1 / 70) * (1 + 1e-8) > event.noise_multiplier
    assert round_multipliers_down([], 70) == ()


def test_nothing_is_an_event_of_nothing():
    assert merge([]) == merge([Event(0.01, 2.3, 0)]) == ()
