"""Root finding: the noise multiplier or number of steps that meets a target ε without exceeding it."""

from __future__ import annotations

import math
from collections.abc import Callable

from privet.errors import InvalidArgumentError

LOWEST, HIGHEST = 0.02, 1e5
# The first factor by which the bracket grows from the guess, and the largest.
_FIRST_FACTOR, _LARGEST_FACTOR = 1.03, 1.6
# Largest number of steps in the search, and the largest growth from one trial to the next.
MOST_STEPS = 2**31 - 1
_LARGEST_GROWTH = 256.0


def smallest_multiplier(spent: Callable[[float], float], target: float, guess: float = 1.0, precision: float = 1e-5) -> float:
    """Return the smallest noise multiplier whose ε, `spent`, is at most the target, at most a relative `precision` above.

    Raises:
        InvalidArgumentError: no multiplier in [0.02, 1e5] meets the target, or every one does.
    """
    low = high = guess
    factor = _FIRST_FACTOR
    while spent(high) > target:
        if high >= HIGHEST:
            allowed = f"at least {spent(HIGHEST):.3g}, the ε of noise multiplier {HIGHEST:g}"
            raise InvalidArgumentError("epsilon", target, allowed, "Take fewer steps, a smaller batch or a larger delta.")
        low, high, factor = high, min(high * factor, HIGHEST), min(factor**2, _LARGEST_FACTOR)
    while low == high or spent(low) <= target:
        if low <= LOWEST:
            allowed = f"at most {spent(LOWEST):.3g}, the ε of the smallest noise multiplier, {LOWEST:g}"
            raise InvalidArgumentError("epsilon", target, allowed, "A guarantee this weak protects nobody; lower the target.")
        low, high, factor = max(low / factor, LOWEST), low, min(factor**2, _LARGEST_FACTOR)
    # log ε is nearly linear in log σ, so the secant lands close; every iteration keeps spent(low) > target ≥ spent(high).
    # If the secant did not halve the interval, the next step bisects.
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
            # Just above the root: try just below it, so that both ends of the bracket close in.
            below = high * (1 - precision)
            if below > low and (at_below := spent(below)) > target:
                low, at_low = below, at_below
    return high


def largest_count(spent: Callable[[int], float], target: float, most: int = MOST_STEPS, start: int = 1) -> int:
    """Return the largest number of steps whose ε, `spent`, is at most the target; a `start` close to it saves questions.

    Raises:
        InvalidArgumentError: one step exceeds the target, or `most` steps do not reach it.
    """
    low, at_low = start, spent(start)
    if at_low > target and start > 1:
        low, at_low = 1, spent(1)
    if at_low > target:
        fix = "Add noise or sample fewer examples."
        raise InvalidArgumentError("epsilon", target, f"at least {at_low:.3g}, the cost of one step", fix)
    high = low + 1
    while (at_high := spent(high)) <= target:
        if high == most:
            raise InvalidArgumentError(
                "epsilon", target, f"below {at_high:.3g}, the cost of {most:,} steps: any number of steps up to that meets the "
                "target", "Set the number of steps, perhaps with less noise, or lower the target.",
            )  # fmt: skip
        # ε grows about with the square root of the number of steps, or faster; close to the answer, the next trial is just above.
        growth = (target / at_high) ** 2 * 1.001 if at_high > 0 else math.inf
        low, at_low = high, at_high
        high = min(max(high + 1, int(high * min(max(growth, 2.0 if start == 1 else 0.0), _LARGEST_GROWTH))), most)
    halved = True
    while high - low > 1:
        width, middle = high - low, (low + high) // 2 if high < 4 * low else math.isqrt(low * high)
        if halved and 0.0 < at_low < at_high < math.inf:  # log ε is nearly linear in the logarithm of the number
            share = math.log(target / at_low) / math.log(at_high / at_low)
            middle = min(max(int(low * (high / low) ** share), low + 1), high - 1)
        for trial in (middle, middle + max(1, width // 1024)):
            if low < trial < high:
                at = spent(trial)
                low, at_low, high, at_high = (trial, at, high, at_high) if at <= target else (low, at_low, trial, at)
        halved = high - low <= width / 2
    return low
