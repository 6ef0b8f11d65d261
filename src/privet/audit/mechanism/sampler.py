"""SAMPLER: were the examples of every step drawn as the plan says, and as independently?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats

from privet.accounting import Event
from privet.audit.checks import Check, certain, least, number, spread, two_sided
from privet.audit.probe import Array
from privet.errors import InvalidArgumentError
from privet.plan import Plan
from privet.sampling import BallsInBins, ByEpoch, FixedSize, FullBatch, Indices, Poisson, Scheme, Shuffle, TruncatedPoisson

Draws = Sequence[Indices]


def checks(plan: Plan, drawn: Draws) -> list[Check]:
    """Return what is to be asked of the draws of a plan's first steps.

    Args:
        plan: the claim.
        drawn: indices of the examples of every step.
    """
    scheme, examples = plan.sampling, plan.examples
    sizes = np.array([len(indices) for indices in drawn], dtype=np.float64)
    once = all(len(np.unique(indices)) == len(indices) for indices in drawn)
    found = [
        certain("no example twice in a step", f"{len(drawn):,} steps", holds=once),
        *_number_drawn(scheme, examples, sizes),
    ]
    if not once or (isinstance(scheme, FullBatch)):
        return found
    found.append(Check("who is drawn together", "pairs of neighbours, and across halves", _pairs(examples, drawn)))
    if isinstance(scheme, ByEpoch):
        length = scheme.epoch_length(examples)
        return [*found, _partition(examples, drawn, length), *_between_epochs(examples, drawn, length)]
    lags = [_common(examples, drawn, lag, independent=True) for lag in (1, 2, 3)]
    return [
        *found,
        Check("who is drawn again", "in common with one of the next three steps", least(lags)),
        Check("how often each is drawn", "spread over the examples", _evenness(examples, drawn)),
    ]


def _exactly(sizes: Array, expected: float) -> list[Check]:
    finding = f"between {sizes.min():.0f} and {sizes.max():.0f}, where {expected:.0f} is promised"
    return [certain("number drawn", finding, holds=bool((sizes == expected).all()))]


def _distributed(sizes: Array, support: Array, chances: Array) -> list[Check]:
    """Compare mean and variance with those of a law."""
    mean = float(support @ chances)
    variance = float((support - mean) ** 2 @ chances)
    kurtosis = float((support - mean) ** 4 @ chances) / variance**2
    shift = (float(sizes.mean()) - mean) / np.sqrt(variance / len(sizes))
    squares = float(((sizes - mean) ** 2).sum()) / variance
    return [
        Check("number drawn, mean", f"{sizes.mean():.2f}, where {mean:.2f} is promised", two_sided(float(shift))),
        Check(
            "number drawn, variance", f"{squares / len(sizes):.3f} of the promised {variance:.1f}",
            spread(squares, len(sizes), kurtosis - 3),
        ),
    ]  # fmt: skip


def _binomial(examples: int, rate: float) -> tuple[Array, Array]:
    law = stats.binom(examples, rate)
    reach = 12 * law.std() + 20
    support = np.arange(max(0, int(law.mean() - reach)), min(examples, int(law.mean() + reach)) + 1, dtype=np.float64)
    return support, law.pmf(support)


def _poisson(scheme: Scheme, examples: int, sizes: Array) -> list[Check]:
    return _of_rate(scheme.rate(examples), examples, sizes)


def _of_rate(rate: float, examples: int, sizes: Array) -> list[Check]:
    if rate == 1:
        return _exactly(sizes, examples)
    return _distributed(sizes, *_binomial(examples, rate))


def _truncated(scheme: Scheme, examples: int, sizes: Array) -> list[Check]:
    assert isinstance(scheme, TruncatedPoisson)
    support, chances = _binomial(examples, scheme.rate(examples))
    largest = certain("largest batch", f"{sizes.max():.0f}, at most {scheme.cap}", holds=sizes.max() <= scheme.cap)
    return [largest, *_distributed(sizes, np.minimum(support, scheme.cap), chances)]


def _constant(scheme: Scheme, examples: int, sizes: Array) -> list[Check]:
    return _exactly(sizes, scheme.expected_batch_size(examples))


def _bins(scheme: Scheme, examples: int, sizes: Array) -> list[Check]:
    assert isinstance(scheme, BallsInBins)
    length = scheme.epoch_length(examples)
    whole = sizes[: len(sizes) // length * length].reshape(-1, length)
    if length == 1 or not len(whole):
        return []
    # The multinomial's chi-square, of which the sum over epochs is one too.
    squares = float(((whole - examples / length) ** 2).sum()) * length / examples
    freedom = len(whole) * (length - 1)
    finding = f"{squares / freedom:.3f} of the promised"
    return [Check("number drawn, variance", finding, spread(squares, freedom, length / examples))]


def _cut(scheme: Scheme, examples: int, sizes: Array) -> list[Check]:
    assert isinstance(scheme, Shuffle)
    size, length = scheme.batch_size, scheme.epoch_length(examples)
    expected = np.full(len(sizes), float(size))
    expected[length - 1 :: length] = examples - (length - 1) * size
    return [
        certain("number drawn", f"{size} each, and what is left at the end of an epoch", holds=bool((sizes == expected).all()))
    ]


_SIZES: dict[type[Scheme], Callable[[Scheme, int, Array], list[Check]]] = {
    Poisson: _poisson,
    TruncatedPoisson: _truncated,
    FixedSize: _constant,
    FullBatch: _constant,
    BallsInBins: _bins,
    Shuffle: _cut,
}


def _number_drawn(scheme: Scheme, examples: int, sizes: Array) -> list[Check]:
    """Compare the sizes of draws with what the scheme says; of a registered scheme, with what the accountant is told.

    Raises:
        InvalidArgumentError: the scheme is unknown here, and its event is not that of a Poisson sample.
    """
    known = _SIZES.get(type(scheme))
    if known is not None:
        return known(scheme, examples, sizes)
    event = scheme.event(examples, 1.0, 1)
    if not isinstance(event, Event):
        raise InvalidArgumentError(
            "plan.sampling", type(scheme).__name__, "a scheme of privet.sampling, or one whose event is an accounting.Event",
            "The audit does not know how many examples other schemes draw.",
        )  # fmt: skip
    return _of_rate(event.sampling_rate, examples, sizes)


def _common(examples: int, drawn: Draws, lag: int, *, independent: bool) -> float:
    """Return the p-value of how many examples the draws so many steps apart have in common, given the sizes of the draws."""
    pairs = list(zip(drawn, drawn[lag:], strict=False))
    found = sum(len(np.intersect1d(one, other, assume_unique=True)) for one, other in pairs)
    one, other = np.array([(len(one) / examples, len(other) / examples) for one, other in pairs]).reshape(-1, 2).T
    # Hypergeometric; the draws of an epoch exclude each other, which a Poisson law is wide enough for.
    variance = float((one * (1 - one) * other * (1 - other)).sum()) * examples**2 / (examples - 1) if independent else None
    return number(found, float((one * other).sum()) * examples, variance)


def _pairs(examples: int, drawn: Draws) -> float:
    """Return the p-value of how often both of a pair are drawn, for pairs of neighbours and pairs half the data apart."""
    half = examples // 2
    sizes = np.array([len(indices) for indices in drawn], dtype=np.float64)
    expected = half * float((sizes * (sizes - 1)).sum()) / (examples * (examples - 1))
    both = [0, 0]
    for indices in drawn:
        inside = indices[indices < 2 * half]
        for way, pair in enumerate((inside // 2, inside % half)):
            both[way] += len(pair) - len(np.unique(pair))
    return least([number(count, expected) for count in both])


def _evenness(examples: int, drawn: Draws) -> float:
    """Return the p-value of how much the examples' counts differ: given the sizes, every subset is equally likely."""
    shares = np.array([len(indices) / examples for indices in drawn])
    variance = float((shares * (1 - shares)).sum())
    if variance == 0:
        return 1.0
    counts = np.bincount(np.concatenate(list(drawn)), minlength=examples)
    squares = float(((counts - shares.sum()) ** 2).sum()) / variance
    return spread(squares * (examples - 1) / examples, examples - 1, 1 / variance)


def _partition(examples: int, drawn: Draws, length: int) -> Check:
    epochs = [np.sort(np.concatenate(list(drawn[first : first + length]))) for first in range(0, len(drawn), length)]
    whole = epochs[: len(drawn) // length]
    once = all(len(np.unique(epoch)) == len(epoch) for epoch in epochs) and all(len(epoch) == examples for epoch in whole)
    return certain("everybody once in an epoch", f"{len(whole):,} epochs of {length:,} steps", holds=once)


def _between_epochs(examples: int, drawn: Draws, length: int) -> list[Check]:
    if len(drawn) <= length + 1 or length == 1:
        return []
    ways = [_common(examples, drawn, lag, independent=False) for lag in (length, length + 1)]
    return [Check("who is drawn when in the next epoch", "in common with the same step and the one after", least(ways))]
