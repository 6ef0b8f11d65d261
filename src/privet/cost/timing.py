"""Times of steps that take turns, so that whatever else the machine does falls on all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from privet.cost.steps import TimedStep


def alternating(
    steps: Mapping[str, TimedStep], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Return, for every step, the seconds that it took in each round.

    Args:
        steps: name → step; each is taken once before, to warm up, and once in every round.
        rounds: how many, ≥ 1.
        clock: that tells seconds; `time.process_time` leaves out what others do on the machine.
    """
    for step in steps.values():
        step()
    taken = [{name: _seconds(step, clock) for name, step in steps.items()} for _ in range(rounds)]
    return {name: [times[name] for times in taken] for name in steps}


def paired_ratio(times: Sequence[float], base: Sequence[float]) -> float:
    """Return the median over the rounds of how many times as long one step took as the other.

    >>> paired_ratio([3.0, 8.0, 5.0], [1.0, 4.0, 2.0])
    2.5
    """
    return statistics.median(one / other for one, other in zip(times, base, strict=True))


def _seconds(step: TimedStep, clock: Callable[[], float]) -> float:
    start = clock()
    step()
    return clock() - start
