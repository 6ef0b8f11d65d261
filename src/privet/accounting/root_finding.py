"""Solving for the noise or the number of steps that meet a target ε, never overshooting it."""

from __future__ import annotations

import math
from collections.abc import Callable

from privet.errors import InvalidArgumentError

LOWEST, HIGHEST = 0.02, 1e5
# How far from the guess is looked first, and at most at once.
_FIRST_FACTOR, _LARGEST_FACTOR = 1.03, 1.6
# Most steps that are solved for, and by how much more than before is asked for at most.
MOST_STEPS = 2**31 - 1
_LARGEST_GROWTH = 256.0


def smallest_multiplier(spent: Callable[[float], float], target: float, guess: float = 1.0, precision: float = 1e-5) -> float:
    """Return the smallest noise multiplier, up to `precision` of it above, whose ε is at most the target.

    Args:
        spent: noise multiplier → ε, decreasing.
        target: ε to stay at or below.
        guess: where to start looking.
        precision: > 0.

    Raises:
        InvalidArgumentError: no multiplier in [0.02, 1e5] meets the target, or every one does.
    """
    low = high = guess
    factor = _FIRST_FACTOR
    while spent(high) > target:
        if high >= HIGHEST:
            raise InvalidArgumentError(
                "epsilon", target, f"at least {spent(HIGHEST):.3g}, which noise multiplier {HIGHEST:g} gives",
                "Take fewer steps, a smaller batch or a larger delta.",
            )  # fmt: skip
        low, high, factor = high, min(high * factor, HIGHEST), min(factor**2, _LARGEST_FACTOR)
    while low == high or spent(low) <= target:
        if low <= LOWEST:
            raise InvalidArgumentError(
                "epsilon", target, f"at most {spent(LOWEST):.3g}: there is no private noise so small",
                "A guarantee this weak protects nobody; lower it.",
            )  # fmt: skip
        low, high, factor = max(low / factor, LOWEST), low, min(factor**2, _LARGEST_FACTOR)
    # log ε is nearly linear in log σ, so the secant lands close; every iterate keeps spent(low) > target ≥ spent(high).
    # Where the secant did not halve the interval, bisection is next.
    at_low, at_high = spent(low), spent(high)
    before = math.inf
    while high > low * (1 + precision):
        middle = math.sqrt(low * high)
        halved, before = math.log(high / low) <= before / 2, math.log(high / low)
        if halved and 0.0 < at_high < at_low < math.inf:
            share = math.log(at_low / target) / math.log(at_low / at_high)
            middle = low * (high / low) ** min(max(share * (1 + 1e-3), 1e-2), 1 - 1e-2)
        at = spent(middle)
        if at > target:
            low, at_low = middle, at
        else:
            high, at_high = middle, at
            # Just above the root: step below it, so that both ends close in.
            below = high * (1 - precision)
            if below > low and (at_below := spent(below)) > target:
                low, at_low = below, at_below
    return high


def largest_count(spent: Callable[[int], float], target: float, most: int = MOST_STEPS) -> int:
    """Return the largest number of steps whose ε is at most the target.

    Args:
        spent: steps → ε, increasing.
        target: ε to stay at or below.
        most: so many steps are asked about at most, ≥ 2.

    Raises:
        InvalidArgumentError: even one step exceeds the target, or not even the most steps reach it.
    """
    if spent(1) > target:
        raise InvalidArgumentError(
            "epsilon", target, f"at least {spent(1):.3g}, the cost of one step", "Add noise or sample fewer examples."
        )
    low, high = 1, 2
    while (at := spent(high)) <= target:
        if high == most:
            raise InvalidArgumentError(
                "epsilon", target, f"below {at:.3g}, which {most:,} steps cost: any number up to that keeps to the target",
                "Give the steps that you want, with less noise if you like; or lower the target.",
            )  # fmt: skip
        # ε grows about like the root of the number of steps, or faster.
        growth = (target / at) ** 2 if at > 0 else math.inf
        low, high = high, min(int(high * min(max(growth, 2.0), _LARGEST_GROWTH)), most)
    while high - low > 1:
        middle = (low + high) // 2 if high < 4 * low else math.isqrt(low * high)
        low, high = (middle, high) if spent(middle) <= target else (low, middle)
    return low
