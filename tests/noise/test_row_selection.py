"""Rows are selected as if every row of a table had a noised count, without drawing noise for each."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from privet.clipping.clipped_sum import ClippedSum, RowCounts
from privet.noise import SecureSource, Token, release
from privet.noise.row_selection import draw_positions, sparse_rows

SIGMA, C, SHARE, BOUND, TAU, SIZE, WIDTH = 1.3, 0.7, 0.3, 0.8, 1.9, 40, 6
FIRST, SECOND = SIGMA / math.sqrt(SHARE), SIGMA / math.sqrt(1 - SHARE)
TOUCHED = {3: 0.6, 4: 5.1, 39: 1.9}


def counted(size=SIZE, touched=TOUCHED):
    rows, counts = torch.tensor(list(touched)), torch.tensor(list(touched.values()), dtype=torch.float64)
    table = sparse_rows(rows, torch.arange(1.0, len(rows) + 1)[:, None].expand(-1, WIDTH).double(), size)
    counts = RowCounts({"table": sparse_rows(rows, counts, size)}, BOUND, TAU, SHARE)
    return ClippedSum({"table": table, "bias": torch.zeros(WIDTH)}, C, torch.zeros(0), rows=counts)


@pytest.mark.parametrize(("size", "chance"), [(300, 0.02), (40, 0.5), (7, 0.999), (10**9, 3e-8)])
def test_positions_are_those_of_independent_trials(size, chance, holds_twice):
    source, repeats = SecureSource(), 2000

    def experiment():
        drawn = [draw_positions(size, chance, source) for _ in range(repeats)]
        assert all(len(each) == len(np.unique(each)) and (not len(each) or 0 <= each[0] <= each[-1] < size) for each in drawn)
        where = np.concatenate(drawn)
        cells = min(size, 20)
        sizes = np.diff(np.ceil(np.arange(cells + 1) * size / cells))
        found = np.histogram(where, np.ceil(np.arange(cells + 1) * size / cells) - 0.5)[0]
        z = (found - repeats * sizes * chance) / np.sqrt(repeats * sizes * chance * (1 - chance))
        pairs = sum(len(each) ** 2 for each in drawn)  # independent trials, and not only equally likely ones
        number = size * chance * (1 - chance) + (size * chance) ** 2
        numbers = stats.binom.rvs(size, chance, size=(400, repeats), random_state=1)
        spread = (numbers.astype(float) ** 2).sum(1).std()
        return {
            "number": 2
            * stats.norm.sf(abs(len(where) - repeats * size * chance) / math.sqrt(repeats * size * chance * (1 - chance))),
            "places": stats.chi2.sf((z**2).sum(), cells),
            "spread": 2 * stats.norm.sf(abs(pairs - repeats * number) / spread),
        }

    holds_twice(experiment)


@pytest.mark.parametrize(("size", "chance"), [(0, 0.5), (5, 0.0), (10**12, 1e-300)])
def test_nothing_is_drawn_where_nothing_can_be(size, chance):
    assert len(draw_positions(size, chance, SecureSource())) == 0


def test_every_row_is_released_as_often_as_noise_lifts_its_count_over_the_threshold(holds_twice):
    """Rows that no example looks up too; what is released has the noise of the other part of the multiplier."""
    source, repeats = SecureSource(), 4000

    def experiment():
        seen, noise, others = np.zeros(SIZE), [], []
        for step in range(repeats):
            found = release(counted(), Token(step, SIGMA), source)
            table = found.tensors["table"]
            rows = table.indices()[0]
            assert (rows[1:] > rows[:-1]).all()
            seen[rows.numpy()] += 1
            known = torch.zeros(SIZE, WIDTH, dtype=torch.float64)
            known[list(TOUCHED)] = counted().tensors["table"].values()
            noise.append(((table.values() - known[rows]) / (SECOND * C)).flatten().numpy())
            others.append(found.tensors["bias"].numpy() / (SECOND * C))
        counts = np.zeros(SIZE)
        counts[list(TOUCHED)] = list(TOUCHED.values())
        expected = stats.norm.sf((TAU - counts) / (FIRST * BOUND))
        z = (seen - repeats * expected) / np.sqrt(repeats * expected * (1 - expected))
        return {
            "rows": stats.chi2.sf((z**2).sum(), SIZE),
            "rows without lookups": 2 * stats.norm.sf(abs(np.delete(z, list(TOUCHED)).sum()) / math.sqrt(SIZE - len(TOUCHED))),
            "noise of rows": stats.kstest(np.concatenate(noise), "norm").pvalue,
            "noise of others": stats.kstest(np.concatenate(others), "norm").pvalue,
        }

    holds_twice(experiment)


def test_without_noise_the_counts_decide():
    found = release(counted(), Token(1, 0.0), SecureSource()).tensors["table"]
    assert found.indices()[0].tolist() == [4, 39]
    assert found.values().tolist() == [[2.0] * WIDTH, [3.0] * WIDTH]


def test_a_table_without_lookups_releases_rows_by_noise_alone():
    found = release(counted(10**6, {}), Token(1, SIGMA), SecureSource()).tensors["table"]
    assert found.shape == (10**6, WIDTH)
    assert 0 < found._nnz() < 10**6
