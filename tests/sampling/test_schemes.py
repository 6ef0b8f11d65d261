import math
from collections import Counter
from itertools import combinations, islice

import numpy as np
import pytest
from scipy import stats

from privet import accounting
from privet._utils.registry import decode, encode, kinds_of
from privet.accounting.events import ADJACENCIES
from privet.accounting.queries import composed_epsilon
from privet.errors import InvalidArgumentError
from privet.noise import FixedSource, Keystream
from privet.sampling import (
    BallsInBins,
    ByEpoch,
    CyclicPoisson,
    FixedOrder,
    FixedSize,
    FullBatch,
    Poisson,
    Scheme,
    Shuffle,
    TruncatedPoisson,
)

N = 40
ALL = [
    Poisson(7.5), TruncatedPoisson(7.5, cap=9), TruncatedPoisson(7.5, cap=40), FixedSize(7), FixedSize(31), BallsInBins(7.5),
    BallsInBins(40), FullBatch(), Shuffle(7), Shuffle(8), Shuffle(40), CyclicPoisson(7.5, cycle=4), CyclicPoisson(3, cycle=1),
    FixedOrder(7.5),
]  # fmt: skip
EVERY = pytest.mark.parametrize("scheme", ALL, ids=str)
BY_EPOCH = pytest.mark.parametrize("scheme", [each for each in ALL if isinstance(each, ByEpoch)], ids=str)
RENEWED = pytest.mark.parametrize("scheme", [each for each in ALL if isinstance(each, BallsInBins | Shuffle)], ids=str)


def drawn(scheme, steps, examples=N, words=None):
    return list(islice(scheme.draws(examples, words or Keystream().words), steps))


def table(scheme, steps, examples=N):
    """Which example (column) takes part in which step (row)."""
    found = np.zeros((steps, examples))
    for row, draw in zip(found, drawn(scheme, steps, examples), strict=True):
        row[draw] = 1
    return found


def test_every_scheme_is_in_the_table():
    assert {type(scheme) for scheme in ALL} == set(kinds_of(Scheme).values())


@EVERY
def test_draws_are_sorted_distinct_in_range_and_made_of_the_words_they_are_given(scheme):
    for draw in drawn(scheme, 60):
        assert draw.dtype == np.int64
        assert (np.diff(draw) > 0).all()
        assert len(draw) == 0 or 0 <= draw[0] <= draw[-1] < N
    for one, other in zip(*(drawn(scheme, 20, words=FixedSource().words) for _ in range(2)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert scheme.rate(N) == pytest.approx(scheme.expected_batch_size(N) / N, rel=1e-15)
    assert isinstance(scheme.expected_batch_size(N), float)
    assert decode("sampling", encode(scheme), Scheme) == scheme


@EVERY
def test_two_runs_share_nothing(scheme):
    one, other = (drawn(scheme, 50) for _ in range(2))
    same = all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert same == (len(one[0]) == N)  # a full batch is no secret, by whatever name


@EVERY
def test_no_example_takes_part_more_often_than_the_scheme_says(scheme):
    found = table(scheme, 60).cumsum(0)
    for steps in (1, 2, 5, 6, 7, 12, 13, 60):
        assert found[steps - 1].max() <= scheme.participation(N, steps)


@EVERY
def test_all_examples_take_part_equally_often(scheme, holds_twice):
    """Over whole epochs, each example's frequency is the rate of the scheme, or less where a batch is cut off or uneven."""

    def experiment():
        found = table(scheme, 3000).sum(0)
        mean = found.mean()
        assert mean / 3000 <= scheme.rate(N) * 1.05
        spread = ((found - mean) ** 2).sum() / max(mean * (1 - mean / 3000), 1e-9)
        return {"spread": stats.chi2.sf(spread, N - 1)}

    holds_twice(experiment)


def test_a_truncated_batch_has_the_law_of_a_cut_binomial(holds_twice):
    scheme, law = TruncatedPoisson(7.5, cap=9), stats.binom(N, 7.5 / N)

    def experiment():
        sizes = np.array([len(draw) for draw in drawn(scheme, 5000)])
        assert sizes.max() == 9
        expected = [law.cdf(3), *(law.pmf(size) for size in range(4, 9)), law.sf(8)]
        found = np.bincount(np.clip(sizes, 3, 9) - 3, minlength=7)
        return {"sizes": stats.chisquare(found, 5000 * np.array(expected)).pvalue}

    holds_twice(experiment)


def test_the_members_of_a_full_batch_are_a_uniform_subset(holds_twice):
    scheme, subsets = TruncatedPoisson(4.0, cap=4), list(combinations(range(6), 4))

    def experiment():
        full = Counter(tuple(draw.tolist()) for draw in drawn(scheme, 6000, examples=6) if len(draw) == 4)
        return {"subsets": stats.chisquare([full[subset] for subset in subsets]).pvalue}

    holds_twice(experiment)


@pytest.mark.parametrize("size", [1, 3, 5, 6])
def test_every_subset_of_the_size_is_equally_likely_at_every_step(size, holds_twice):
    subsets = list(combinations(range(6), size))

    def experiment():
        draws = [tuple(draw.tolist()) for draw in drawn(FixedSize(size), 6000, examples=6)]
        found = Counter(draws)
        overlap = np.array([len({*one} & {*other}) for one, other in zip(draws[::2], draws[1::2], strict=True)])
        law = stats.hypergeom(6, size, size)
        sizes = [k for k in range(7) if law.pmf(k) > 0]
        return {
            "subsets": stats.chisquare([found[subset] for subset in subsets]).pvalue if len(subsets) > 1 else 1.0,
            "steps": stats.chisquare([(overlap == k).sum() for k in sizes], len(overlap) * law.pmf(sizes)).pvalue
            if len(sizes) > 1 else 1.0,
        }  # fmt: skip

    holds_twice(experiment)


@BY_EPOCH
def test_an_epoch_has_every_example_exactly_once(scheme):
    length = scheme.epoch_length(N)
    found = table(scheme, 20 * length).reshape(20, length, N)
    assert (found.sum(1) == 1).all()
    assert scheme.steps_per_epoch(N) == length == math.ceil(N / scheme.batch_size)


@RENEWED
def test_epochs_are_partitioned_anew(scheme, holds_twice):
    """An example's step in an epoch is uniform, and says nothing about the next epoch's, or about another example's."""
    length = scheme.epoch_length(N)
    if length == 1:
        return

    def experiment():
        places = table(scheme, 4000 * length).reshape(4000, length, N).argmax(1)
        shares = np.array([len(draw) for draw in drawn(scheme, length)]) / N  # of a shuffle's batches
        shares = np.full(length, 1 / length) if isinstance(scheme, BallsInBins) else shares
        one = np.bincount(places[:, 3], minlength=length)
        consecutive = np.bincount(length * places[:-1:2, 3] + places[1::2, 3], minlength=length**2)
        together = (places[:, 3] == places[:, 17]).sum()
        chance = (shares**2).sum() if isinstance(scheme, BallsInBins) else (shares * (shares * N - 1)).sum() / (N - 1)
        return {
            "one": stats.chisquare(one, 4000 * shares).pvalue,
            "epochs": stats.chisquare(consecutive, 2000 * np.outer(shares, shares).ravel()).pvalue,
            "pairs": stats.binomtest(int(together), 4000, chance).pvalue,
        }

    holds_twice(experiment)


def test_balls_choose_their_bins_independently(holds_twice):
    scheme = BallsInBins(10)

    def experiment():
        sizes = table(scheme, 4 * 3000).sum(1).reshape(3000, 4)[:, 0]
        spread = sizes.var() / (N * 0.25 * 0.75)
        return {
            "mean": 2 * stats.norm.sf(abs(sizes.mean() - 10) / math.sqrt(N * 0.25 * 0.75 / 3000)),
            "variance": 2 * stats.norm.sf(abs(spread - 1) / math.sqrt(2 / 3000)),
        }

    holds_twice(experiment)


def test_shuffled_batches_have_the_size_and_every_split_is_equally_likely(holds_twice):
    assert [len(draw) for draw in drawn(Shuffle(7), 12)] == [7, 7, 7, 7, 7, 5] * 2
    assert [draw.tolist() for draw in drawn(FullBatch(), 3)] == [list(range(N))] * 3
    splits = list(combinations(range(5), 2))

    def experiment():
        draws = [tuple(draw.tolist()) for draw in drawn(Shuffle(2), 3 * 3000, examples=5)]
        firsts = Counter(draws[0::3])
        wholes = Counter(zip(draws[0::3], draws[1::3], strict=True))
        assert len(wholes) == 30
        return {
            "first batch": stats.chisquare([firsts[split] for split in splits]).pvalue,
            "whole epoch": stats.chisquare(list(wholes.values())).pvalue,
        }

    holds_twice(experiment)


@BY_EPOCH
def test_an_interrupted_epoch_is_not_resumed(scheme):
    length = scheme.epoch_length(N)
    for step in range(1, 4 * length + 2):
        start = scheme.resumes_at(step, N)
        assert step <= start < step + length
        assert (start - 1) % length == 0
        together = table(scheme, step - 1).sum(0) + table(scheme, length).sum(0)  # what was taken, and a new epoch
        assert together.max() <= scheme.participation(N, start - 1 + length)


@pytest.mark.parametrize("scheme", [each for each in ALL if not isinstance(each, ByEpoch | CyclicPoisson)], ids=str)
def test_schemes_without_epochs_resume_anywhere(scheme):
    assert [scheme.resumes_at(step, N) for step in (1, 2, 17)] == [1, 2, 17]


def test_poisson_and_full_batches_are_accounted():
    many = np.array([2.0, 1.0, 2.0])
    assert Poisson(10).event(N, 1.3, 5) == accounting.Event(0.25, 1.3, 5)
    assert Poisson(10).events(N, many) == (accounting.Event(0.25, 1.0, 1), accounting.Event(0.25, 2.0, 2))
    assert FullBatch().events(N, many) == (accounting.Event(1.0, 1.0, 1), accounting.Event(1.0, 2.0, 2))


def test_an_epoch_of_a_partition_is_one_release_with_its_least_noise():
    multipliers = np.array([2.0, 1.5, 3.0, 2.5, 4.0])
    scheme = Shuffle(15)  # three steps an epoch
    assert scheme.epoch_length(N) == 3
    assert scheme.events(N, multipliers) == (accounting.ShuffledEvent(1.5, steps=3), accounting.ShuffledEvent(2.5, steps=3))
    bins = accounting.BallsInBinsEvent(1.5, steps=3), accounting.BallsInBinsEvent(2.5, steps=3)
    assert BallsInBins(15).events(N, multipliers) == bins
    assert scheme.event(N, 1.5, 4) == accounting.ShuffledEvent(1.5, 4, steps=3)
    assert BallsInBins(N).event(N, 1.5, 4) == accounting.BallsInBinsEvent(1.5, 4)
    one_step = accounting.ShuffledEvent(2.0), accounting.ShuffledEvent(1.5)
    assert Shuffle(N).events(N, multipliers[:2]) == one_step


# Taking part exactly once an epoch can cost less than a coin at every step.
@pytest.mark.parametrize("scheme", [each for each in ALL if not isinstance(each, TruncatedPoisson | BallsInBins)], ids=str)
def test_an_epsilon_is_never_below_that_of_poisson_sampling_of_the_same_rate(scheme):
    for adjacency in sorted(COVERED[type(scheme)]):
        asked = {"delta": 1e-5, "adjacency": adjacency}
        sampled = composed_epsilon([accounting.Event(scheme.rate(N), 1.7, 12)], **asked)
        assert composed_epsilon(scheme.events(N, np.full(12, 1.7)), **asked) >= sampled * (1 - 1e-9)


COVERED = {
    Poisson: {"add-remove", "replace-one", "zero-out"},
    TruncatedPoisson: {"add-remove"},
    FixedSize: {"replace-one"},
    BallsInBins: {"add-remove", "replace-one", "zero-out"},
    FullBatch: {"add-remove", "replace-one", "zero-out"},
    Shuffle: {"replace-one", "zero-out"},
    CyclicPoisson: {"add-remove", "replace-one", "zero-out"},
    FixedOrder: {"add-remove", "replace-one", "zero-out"},
}


@EVERY
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_neighbours_that_no_accountant_covers_are_refused_with_the_reason(scheme, adjacency):
    (event,) = scheme.events(N, np.full(1, 1.7))
    assert set(event.adjacencies) == COVERED[type(scheme)]
    if adjacency in COVERED[type(scheme)]:
        scheme.check_adjacency(adjacency)
        return
    with pytest.raises(
        InvalidArgumentError, match=rf"^adjacency is '{adjacency}'; .* with {type(scheme).__name__} sampling"
    ) as caught:
        scheme.check_adjacency(adjacency)
    assert caught.value.fix
    assert all(repr(other) in str(caught.value) for other in COVERED[type(scheme)])


BAD = [
    *((kind, {"batch_size": value}) for kind in (FixedSize, Shuffle) for value in (0, -1, 2.5, True, "7", None, 2**31)),
    *((kind, {"batch_size": value}) for kind in (Poisson, BallsInBins) for value in (0, -1, math.nan, math.inf, True, "7", None)),
    (BallsInBins, {"batch_size": 0.5}),
    (TruncatedPoisson, {"batch_size": 0, "cap": 3}),
    *((TruncatedPoisson, {"batch_size": 7.5, "cap": value}) for value in (7, 0, 9.5, True, None)),
]


@pytest.mark.parametrize(("kind", "settings"), BAD)
def test_bad_settings_are_refused_by_name(kind, settings):
    with pytest.raises(InvalidArgumentError, match=r"^sampling\.(batch_size|cap) is"):
        kind(**settings)


@pytest.mark.parametrize("scheme", [Poisson(41), TruncatedPoisson(41, 50), FixedSize(41), BallsInBins(41), Shuffle(41)], ids=str)
def test_a_batch_larger_than_the_data_is_refused(scheme):
    with pytest.raises(InvalidArgumentError, match=r"^sampling\.batch_size is 41; .*at most the number of examples, 40"):
        scheme.rate(N)
