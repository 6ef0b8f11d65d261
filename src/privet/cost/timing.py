"""Timing of steps in alternation, so that other load on the machine affects all of them alike."""

from __future__ import annotations

__all__ = ["alternating", "paired_ratio"]

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from privet.cost.steps import TimedStep


def alternating(
    steps: Mapping[str, TimedStep], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Time steps in alternation; return name → seconds in each round.

    Args:
        steps: name → step; each is taken once to warm up, and then once per round.
        rounds: number of rounds, ≥ 1.
        clock: clock in seconds; `time.process_time` excludes other processes.
    """
    for step in steps.values():
        step()
    taken = [{name: _seconds(step, clock) for name, step in steps.items()} for _ in range(rounds)]
    return {name: [times[name] for times in taken] for name in steps}


def paired_ratio(times: Sequence[float], base: Sequence[float]) -> float:
    """Return the median over rounds of the ratio of two step times.

    >>> paired_ratio([3.0, 8.0, 5.0], [1.0, 4.0, 2.0])
    2.5
    """
    return statistics.median(time / reference for time, reference in zip(times, base, strict=True))


def _seconds(step: TimedStep, clock: Callable[[], float]) -> float:
    start = clock()
    step()
    return clock() - start
