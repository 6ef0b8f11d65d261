"""What guesses of who was in prove about ε: bounds for one run with many canaries, each of them in or out by a fair coin."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.special import ndtr, ndtri

from privet.accounting.classic import gaussian
from privet.audit.probe import Array
from privet.errors import InvalidArgumentError, between

_MOST = 60.0  # ε, and √(2ε) would do for μ, beyond which no number of guesses proves anything
_HALVINGS = 30
# Parts of the canaries that are guessed about at either end: chosen before anything is seen.
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


@dataclass(frozen=True)
class GuessBounds:
    """What the guesses of one attack prove.

    Args:
        epsilon: lower bound on ε, by the counting argument of Steinke et al.; it assumes nothing.
        epsilon_f_dp: lower bound on ε if the trade-off curve is that of two normal laws; tighter.
        guesses: how many were made where the first bound is best.
        correct: how many of them were right.
        canaries: how many there were.
    """

    epsilon: float
    epsilon_f_dp: float
    guesses: int
    correct: int
    canaries: int


def bounds(
    scores: Array, included: Sequence[bool], *, delta: float, confidence: float = 0.95, shares: Sequence[float] = SHARES
) -> GuessBounds:
    """Return what scores prove about a mechanism that was run once.

    The canaries with the highest scores are guessed to be in, as many with the lowest to be out, and the rest are left alone.
    How many is tried for every one of the shares, and paid for by the confidence of each.

    Args:
        scores: (m,) the larger, the rather was the canary in. Anything an adversary can compute without the coins.
        included: (m,) the coins: independent and fair.
        delta: δ in (0, 1) of the bounds.
        confidence: in (0, 1), of each of the two bounds.
        shares: parts of the canaries to guess about at either end, each in (0, 1/2]; not to be chosen after looking.

    Raises:
        InvalidArgumentError: an argument is out of range.

    Source:
        Steinke, Nasr, Jagielski 2023, "Privacy Auditing with One (1) Training Run"; Mahloujifar, Melis, Chaudhuri 2024,
        "Auditing f-Differential Privacy in One Run".

    >>> import numpy as np
    >>> coins = np.arange(200) % 2 == 0
    >>> found = bounds(coins + 0.0, coins, delta=1e-5)
    >>> found.guesses == found.correct == 200, round(found.epsilon, 1)
    (True, 3.7)
    """
    between("delta", delta, 0.0, 1.0)
    between("confidence", confidence, 0.0, 1.0)
    for share in shares:
        if not 0 < share <= 0.5:
            raise InvalidArgumentError("shares", share, "greater than 0 and at most 1/2")
    values, coins = np.asarray(scores, dtype=np.float64), np.asarray(included, dtype=bool)
    if values.shape != coins.shape or values.ndim != 1 or len(values) < 2:
        raise InvalidArgumentError("scores", values.shape, f"one for each of two or more coins, of which there are {coins.shape}")
    order = np.argsort(values, kind="stable")
    alpha, found = (1 - confidence) / len(shares), []
    for share in shares:
        each = max(1, int(share * len(values)))
        correct = int(coins[order[-each:]].sum() + (~coins[order[:each]]).sum())
        by_counting = epsilon_by_counting(2 * each, correct, len(values), delta, alpha)
        found.append((by_counting, epsilon_by_trade_off(2 * each, correct, len(values), delta, alpha), 2 * each, correct))
    best = max(found)
    return GuessBounds(best[0], max(one[1] for one in found), best[2], best[3], len(values))


def epsilon_by_counting(guesses: int, correct: int, canaries: int, delta: float, alpha: float) -> float:
    """Return the largest ε that so many correct guesses refute at level α.

    Source:
        Steinke, Nasr, Jagielski 2023, Theorem 5.2 and Appendix D.
    """

    def refuted(epsilon: float) -> bool:
        law = stats.binom(guesses, 1 / (1 + math.exp(-epsilon)))
        tails = law.sf(correct - np.arange(correct + 1) - 1)  # P[Bin ≥ v − i]
        slack = float(((tails[1:] - tails[0]) / np.arange(1, correct + 1)).max(initial=0.0))
        return bool(tails[0] + 2 * canaries * delta * slack <= alpha)

    return _largest(refuted)


def epsilon_by_trade_off(guesses: int, correct: int, canaries: int, delta: float, alpha: float) -> float:
    """Return ε at δ of the largest μ for which so many correct guesses refute μ-Gaussian differential privacy at level α.

    Source:
        Mahloujifar, Melis, Chaudhuri 2024, Algorithms 1 and 3, for two equally likely answers.
    """

    def refuted(mu: float) -> bool:
        below, above = alpha * (guesses - correct) / canaries, alpha * correct / canaries
        for i in range(correct - 1, -1, -1):
            further = max(below, float(ndtr(ndtri(above) - mu)))
            above = min(1.0, above + i / (guesses - i) * (further - below))
            below = further
        return above + below > guesses / canaries

    return gaussian.epsilon(_largest(refuted), delta)


def _largest(refuted: Callable[[float], bool]) -> float:
    """Return where a statement stops to hold that holds for small numbers, from below; 0 if it never does."""
    low, high = 0.0, _MOST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
