"""SAMPLER: check that the examples of each step are sampled as planned, with the planned independence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import stats

from privet import sampling
from privet.accounting import Event
from privet.audit.checks import Check, bonferroni, count_p_value, deterministic_check, two_sided_p_value, variance_p_value
from privet.audit.probe import Array
from privet.errors import InvalidArgumentError
from privet.plan import Plan
from privet.sampling import ByEpoch, CyclicPoisson, FixedOrder, FullBatch, Indices, Scheme, Shuffle, TruncatedPoisson

Draws = Sequence[Indices]


def checks(plan: Plan, drawn: Draws) -> list[Check]:
    scheme, examples = plan.sampling, plan.examples
    once = all(len(np.unique(indices)) == len(indices) for indices in drawn)
    found = [
        deterministic_check("no example twice in a step", f"{len(drawn):,} steps", holds=once),
        *_check_sizes(scheme, examples, _sizes(drawn)),
    ]
    if not once or isinstance(scheme, FullBatch):
        return found
    if isinstance(scheme, CyclicPoisson):
        return [*found, *_check_cycles(scheme, examples, drawn)]
    if isinstance(scheme, FixedOrder):
        length = scheme.epoch_length(examples)
        same = all(np.array_equal(one, other) for one, other in zip(drawn, drawn[length:], strict=False))
        order = deterministic_check("the same order in every epoch", f"{len(drawn):,} steps", holds=same)
        return [*found, _check_partition(examples, drawn, length), order]
    found.append(Check("joint sampling of pairs", "neighbours, and pairs across halves", _pairs_p_value(examples, drawn)))
    if isinstance(scheme, ByEpoch):
        length = scheme.epoch_length(examples)
        found.append(_check_partition(examples, drawn, length))
        if 1 < length < len(drawn) - 1:
            lags = [_overlap_p_value(examples, drawn, lag, independent=False) for lag in (length, length + 1)]
            found.append(Check("order of the next epoch", "overlap with the same step and the one after", bonferroni(lags)))
        return found
    lags = [_overlap_p_value(examples, drawn, lag, independent=True) for lag in (1, 2, 3)]
    return [
        *found,
        Check("repeated sampling", "overlap with each of the next three steps", bonferroni(lags)),
        Check("sampling frequency per example", "variance over the examples", _evenness_p_value(examples, drawn)),
    ]


def _sizes(drawn: Draws) -> Array:
    return np.array([len(indices) for indices in drawn], dtype=np.float64)


def _check_constant(sizes: Array, expected: float) -> list[Check]:
    finding = f"between {sizes.min():.0f} and {sizes.max():.0f}; planned: {expected:.0f}"
    return [deterministic_check("batch size", finding, holds=bool((sizes == expected).all()))]


def _check_moments(sizes: Array, mean: float, variance: float, excess: float) -> list[Check]:
    shift = (float(sizes.mean()) - mean) / np.sqrt(variance / len(sizes))
    squares = float(((sizes - mean) ** 2).sum()) / variance
    return [
        Check("batch size, mean", f"{sizes.mean():.2f}; planned: {mean:.2f}", two_sided_p_value(float(shift))),
        Check(
            "batch size, variance", f"{squares / len(sizes):.3f} of the planned {variance:.1f}",
            variance_p_value(squares, len(sizes), excess),
        ),
    ]  # fmt: skip


def _check_truncated(scheme: TruncatedPoisson, examples: int, sizes: Array) -> list[Check]:
    cap, law = scheme.cap, stats.binom(examples, scheme.rate(examples))
    chances = np.append(law.pmf(np.arange(cap)), law.sf(cap - 1))
    mean = float(np.arange(cap + 1) @ chances)
    variance, fourth = (float((np.arange(cap + 1) - mean) ** power @ chances) for power in (2, 4))
    largest = deterministic_check("largest batch", f"{sizes.max():.0f}; cap: {cap}", holds=sizes.max() <= cap)
    return [largest, *_check_moments(sizes, mean, variance, fourth / variance**2 - 3)]


def _check_bins(scheme: ByEpoch, examples: int, sizes: Array) -> list[Check]:
    length = scheme.epoch_length(examples)
    whole = sizes[: len(sizes) // length * length].reshape(-1, length)
    if length == 1 or not len(whole):
        return []
    # Pearson's chi-square of a multinomial, summed over epochs.
    squares = float(((whole - examples / length) ** 2).sum()) * length / examples
    freedom = len(whole) * (length - 1)
    finding = f"{squares / freedom:.3f} of the planned"
    return [Check("batch size, variance", finding, variance_p_value(squares, freedom, length / examples))]


def _check_shuffle(scheme: Shuffle, examples: int, sizes: Array) -> list[Check]:
    size, length = scheme.batch_size, scheme.epoch_length(examples)
    expected = np.full(len(sizes), float(size))
    expected[length - 1 :: length] = examples - (length - 1) * size
    finding = f"planned: {size}, and the remainder at the end of an epoch"
    return [deterministic_check("batch size", finding, holds=bool((sizes == expected).all()))]


def _check_cyclic(scheme: CyclicPoisson, examples: int, sizes: Array) -> list[Check]:
    rate, cycles = scheme.pattern(examples, 1).rate, len(sizes) // scheme.cycle
    total, chances = float(sizes[: cycles * scheme.cycle].sum()), examples * cycles
    finding = f"{total:,.0f} in {cycles:,} cycles; planned: {chances * rate:,.0f}"
    return [Check("batch size, mean", finding, count_p_value(total, chances * rate, chances * rate * (1 - rate)))]


_SIZES: dict[type[Scheme], Callable[[Any, int, Array], list[Check]]] = {
    TruncatedPoisson: _check_truncated,
    sampling.FixedSize: lambda scheme, examples, sizes: _check_constant(sizes, scheme.expected_batch_size(examples)),
    sampling.BallsInBins: _check_bins,
    Shuffle: _check_shuffle,
    CyclicPoisson: _check_cyclic,
    FixedOrder: lambda scheme, examples, sizes: _check_bins(scheme, examples, sizes[: scheme.epoch_length(examples)]),
}


def _check_sizes(scheme: Scheme, examples: int, sizes: Array) -> list[Check]:
    if (known := _SIZES.get(type(scheme))) is not None:
        return known(scheme, examples, sizes)
    event = scheme.event(examples, 1.0, 1)
    if not isinstance(event, Event):
        raise InvalidArgumentError(
            "plan.sampling", type(scheme).__name__, "a scheme of privet.sampling, or one whose event is an accounting.Event",
            "The audit does not know how many examples other schemes draw.",
        )  # fmt: skip
    if event.sampling_rate == 1:
        return _check_constant(sizes, examples)
    return _check_moments(sizes, *map(float, stats.binom(examples, event.sampling_rate).stats("mvk")))


def _overlap_p_value(examples: int, drawn: Draws, lag: int, *, independent: bool) -> float:
    """Return the p-value of the overlap of samples `lag` steps apart, given their sizes."""
    found = sum(len(np.intersect1d(one, other, assume_unique=True)) for one, other in zip(drawn, drawn[lag:], strict=False))
    shares = _sizes(drawn) / examples
    one, other = shares[:-lag], shares[lag:]
    # Hypergeometric; samples of one epoch exclude each other, for which the Poisson distribution is conservative.
    variance = float((one * (1 - one) * other * (1 - other)).sum()) * examples**2 / (examples - 1) if independent else None
    return count_p_value(found, float((one * other).sum()) * examples, variance)


def _pairs_p_value(examples: int, drawn: Draws) -> float:
    """Return the p-value of the number of pairs sampled together, for neighbours and for pairs half the data set apart."""
    half = examples // 2
    sizes = _sizes(drawn)
    expected = half * float((sizes * (sizes - 1)).sum()) / (examples * (examples - 1))
    both = [0, 0]
    for indices in drawn:
        inside = indices[indices < 2 * half]
        for way, pair in enumerate((inside // 2, inside % half)):
            both[way] += len(pair) - len(np.unique(pair))
    return bonferroni([count_p_value(count, expected) for count in both])


def _evenness_p_value(examples: int, drawn: Draws) -> float:
    """Return the p-value of the variance of the examples' counts: given the sizes, all subsets are equally likely."""
    shares = _sizes(drawn) / examples
    variance = float((shares * (1 - shares)).sum())
    if variance == 0:
        return 1.0
    counts = np.bincount(np.concatenate(list(drawn)), minlength=examples)
    squares = float(((counts - shares.sum()) ** 2).sum()) / variance
    return variance_p_value(squares * (examples - 1) / examples, examples - 1, 1 / variance)


def _check_partition(examples: int, drawn: Draws, length: int) -> Check:
    epochs = [np.sort(np.concatenate(list(drawn[first : first + length]))) for first in range(0, len(drawn), length)]
    whole = epochs[: len(drawn) // length]
    once = all(len(np.unique(epoch)) == len(epoch) for epoch in epochs) and all(len(epoch) == examples for epoch in whole)
    return deterministic_check("every example once per epoch", f"{len(whole):,} epochs of {length:,} steps", holds=once)


def _check_cycles(scheme: CyclicPoisson, examples: int, drawn: Draws) -> list[Check]:
    """Check groups and joining, which are independent of each other; most groups are only known by who joined."""
    cycle, rate = scheme.cycle, scheme.pattern(examples, 1).rate
    place = np.full(examples, -1)
    together, joined, chances = True, 0, 0
    for step, indices in enumerate(drawn):
        known = place[indices]
        together &= bool(((known < 0) | (known == step % cycle)).all())
        chances += int((place == step % cycle).sum())  # those of the group who joined before
        joined += int((known >= 0).sum())
        place[indices] = step % cycle
    whole = np.bincount(place[place >= 0], minlength=cycle)
    finding = f"{joined / max(chances, 1):.4f} of those who joined before; planned: {rate:.4f}"
    found = [
        deterministic_check("one place in the cycle", f"{len(drawn):,} steps", holds=together),
        Check("joining again", finding, float(stats.binomtest(joined, chances, rate).pvalue) if chances else 1.0),
    ]
    if len(drawn) >= cycle > 1 and whole.sum():
        # In whole cycles only, so that all groups had equal chances to be seen.
        seen = np.concatenate([*drawn[: len(drawn) // cycle * cycle]])
        counts = np.bincount(place[np.unique(seen)], minlength=cycle)
        found.append(Check("sizes of the groups", "variance", float(stats.chisquare(counts).pvalue)))
    return found
