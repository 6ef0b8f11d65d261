"""Random programs: their clipped sum is that of one example at a time, and no example contributes more than the bound.

`make fuzz` runs the same tests with PRIVET_FUZZ times as many programs, other ones every time, and tells how they fared.
"""

import os

import pytest
from agreement import Tally, UnsuitableError, hold, smallest_failure
from hypothesis import HealthCheck, Phase, given, reject, settings
from programs import programs

TIMES = int(os.environ.get("PRIVET_FUZZ", "1"))
PARTS, EACH = 2, 50


@pytest.mark.parametrize("part", range(PARTS))
def test_random_programs_are_computed_one_example_at_a_time(part):
    tally = Tally()
    salt = part if TIMES == 1 else int.from_bytes(os.urandom(8))

    @settings(
        max_examples=EACH * TIMES,
        derandomize=TIMES == 1,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(programs(salt))
    def tried(program):
        try:
            hold(program, tally)
        except UnsuitableError as reason:
            tally.unsuitable[str(reason)] += 1
            reject()
        except Exception as reason:
            smallest = smallest_failure(program)
            pytest.fail(f"{type(reason).__name__}: {reason}\nThe smallest program that fails: {smallest!r}\n{smallest.source()}")

    tried()
    print(f"\n{tally}")
    assert tally.ways.total() == EACH * TIMES, tally
    assert tally.refused < 0.1, tally
