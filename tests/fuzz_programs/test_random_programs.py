"""Random programs: their clipped sum is that of one example at a time, and no example contributes more than the bound.

`make fuzz` runs the same test with 2 · PRIVET_FUZZ times as many programs, other ones every time, and tells how they fared.
"""

import os

import pytest
from agreement import Tally, UnsuitableError, hold, smallest_failure
from hypothesis import HealthCheck, Phase, given, reject, settings
from programs import programs

TIMES = int(os.environ.get("PRIVET_FUZZ", "1"))
TRIED, SALT = (50, 0) if TIMES == 1 else (100 * TIMES, int.from_bytes(os.urandom(8)))


def test_random_programs_are_computed_one_example_at_a_time():
    tally = Tally()

    @settings(
        max_examples=TRIED, derandomize=TIMES == 1, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )  # fmt: skip
    @given(programs(SALT))
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
    assert tally.ways.total() == TRIED, tally
    assert tally.refused < 0.1, tally
