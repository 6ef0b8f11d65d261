"""δ(ε) of one sampled Gaussian release, from its definition, in a hundred digits."""

from collections.abc import Callable

import mpmath as mp

mp.mp.dps = 100


def _above(x: mp.mpf) -> mp.mpf:
    return mp.erfc(x / mp.sqrt(2)) / 2


def hockey_stick(mass_p: mp.mpf, mass_q: mp.mpf, epsilon: mp.mpf) -> mp.mpf:
    """Return P − e^ε·Q of the set where P/Q exceeds e^ε, given its masses."""
    return mass_p - mp.exp(epsilon) * mass_q


def removing(q: float, sigma: float, epsilon: float) -> mp.mpf:
    """Return δ where the example is in the first of two data sets."""
    q, sigma, epsilon = map(mp.mpf, (q, sigma, epsilon))
    ratio = mp.exp(epsilon) - 1 + q
    if ratio <= 0:
        return 1 - mp.exp(epsilon)
    x = mp.mpf(1) / 2 + sigma**2 * mp.log(ratio / q)
    return hockey_stick((1 - q) * _above(x / sigma) + q * _above((x - 1) / sigma), _above(x / sigma), epsilon)


def adding(q: float, sigma: float, epsilon: float) -> mp.mpf:
    """Return δ where the example is in the second."""
    q, sigma, epsilon = map(mp.mpf, (q, sigma, epsilon))
    ratio = mp.exp(-epsilon) - 1 + q
    if ratio <= 0:
        return mp.mpf(0)
    x = mp.mpf(1) / 2 + sigma**2 * mp.log(ratio / q)
    return hockey_stick(_above(-x / sigma), (1 - q) * _above(-x / sigma) + q * _above((1 - x) / sigma), epsilon)


def replacing(q: float, sigma: float, epsilon: float) -> mp.mpf:
    """Return δ where the example is another one, on the other side, in the second."""
    q, sigma, epsilon = map(mp.mpf, (q, sigma, epsilon))
    a, b = q * mp.exp(-1 / (2 * sigma**2)), (1 - q) * (1 - mp.exp(epsilon))
    x = sigma**2 * mp.log((-b + mp.sqrt(b**2 + 4 * a**2 * mp.exp(epsilon))) / (2 * a))
    none = (1 - q) * _above(x / sigma)
    return hockey_stick(none + q * _above((x - 1) / sigma), none + q * _above((x + 1) / sigma), epsilon)


WAYS: dict[str, Callable[[float, float, float], mp.mpf]] = {"remove": removing, "add": adding, "replace": replacing}
