"""Lower bounds on ε from guesses about canaries in one run, each of which was included by a fair coin flip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtrc, expit, ndtr, ndtri

from privet.accounting.classic import gaussian
from privet.audit.probe import Array
from privet.errors import InvalidArgumentError, between

_MOST = 60.0  # largest ε, or μ, that is searched; no realistic number of guesses proves more
_HALVINGS = 30
# Fractions of the canaries to guess at either end, fixed in advance.
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


@dataclass(frozen=True)
class GuessBounds:
    """Lower bounds on ε from the guesses of one attack.

    Args:
        epsilon: lower bound on ε by the counting argument of Steinke et al., without assumptions.
        epsilon_f_dp: lower bound on ε assuming the trade-off curve of two normal distributions; tighter.
        guesses: number of guesses for which the first bound is best.
        correct: number of correct guesses among them.
        canaries: number of canaries.
    """

    epsilon: float
    epsilon_f_dp: float
    guesses: int
    correct: int
    canaries: int


def bounds(
    scores: Array, included: Sequence[bool], *, delta: float, confidence: float = 0.95, shares: Sequence[float] = SHARES
) -> GuessBounds:
    """Return the lower bounds on ε that scores of canaries prove about a mechanism that ran once.

    The canaries with the highest scores are guessed to be included, as many with the lowest scores to be excluded; there are no
    guesses for the rest. All shares are tried, and the confidence is corrected for their number.

    Args:
        scores: (m,) scores, larger for canaries more likely to be included; any function of what an adversary sees without the
            coins.
        included: (m,) the independent, fair coin flips.
        delta: δ of the bounds, in (0, 1).
        confidence: confidence of each of the two bounds, in (0, 1).
        shares: fractions of the canaries to guess at either end, each in (0, 1/2]; do not choose them after looking at results.

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
        raise InvalidArgumentError("scores", values.shape, f"(m,) with m ≥ 2, like included, whose shape is {coins.shape}")
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
    """Return the largest ε that this number of correct guesses refutes at level α (Steinke et al. 2023, Theorem 5.2)."""

    def refuted(epsilon: float) -> bool:
        tails = bdtrc(correct - np.arange(correct + 1) - 1.0, guesses, expit(epsilon))  # P[Bin ≥ v − i]
        slack = float(((tails[1:] - tails[0]) / np.arange(1, correct + 1)).max(initial=0.0))
        return bool(tails[0] + 2 * canaries * delta * slack <= alpha)

    return _largest(refuted)


def epsilon_by_trade_off(guesses: int, correct: int, canaries: int, delta: float, alpha: float) -> float:
    """Return ε at δ of the largest μ for which this number of correct guesses refutes μ-GDP at level α.

    By Algorithms 1 and 3 of Mahloujifar et al. 2024, for two equally likely answers.
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
    """Return, by bisection from below, the largest number that is refuted; 0 if none is."""
    low, high = 0.0, _MOST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
