"""Selection of rows by noised counts, in time proportional to the rows that are counted or selected."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr
from torch import Tensor

from privet.clipping.clipped_sum import ClippedSum
from privet.noise.compiled import arithmetic
from privet.noise.shares import Owners
from privet.noise.sources import Source

# Grid cells per standard deviation: with 2³⁰, rounding adds less than 1e-4 to the sensitivity for up to 10¹⁰ coordinates, and
# sums of up to 2²³ standard deviations are exact in float64.
CELLS_LOG2 = 30


def select_rows(clipped: ClippedSum, multiplier: float, source: Source, owners: Owners | None = None) -> ClippedSum:
    """Return the sum with, of each counted table, the rows whose noised count reaches the threshold; others hold no data.

    Counts and noise are rounded to a grid before they are added. A row that no example looked up has a count of 0, so it is
    selected with probability Q(τ/(σ₁C₁)), independently of all others; the gaps between such rows are geometric.
    """
    counted = clipped.rows
    assert counted is not None, "the sum has counts"
    size = sum(len(counts) for counts in counted.counts.values())
    grid, deviation = 1.0, 0.0
    if multiplier > 0:
        grid = 2.0 ** (math.floor(math.log2(multiplier * counted.bound)) - CELLS_LOG2)
        deviation = multiplier * (counted.bound + grid * math.sqrt(size))
    # Of rounded noise, as for rows that are counted.
    chance = float(ndtr((0.5 - math.ceil(counted.threshold / grid)) * grid / deviation)) if deviation else 0.0

    def select(sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = {}
        for name, counts in sums.items():
            known = counts.coalesce().cpu()
            rows, noised = known.indices()[0], known.values().clone()
            if deviation:
                arithmetic().add_noise(known.values(), source.normal(len(rows)), deviation / grid, grid, grid, noised)
            others = torch.from_numpy(draw_positions(len(counts) - len(rows), chance, source))
            # The p-th row that is not counted, for positions p among these rows.
            others += torch.searchsorted(rows - torch.arange(len(rows), device="cpu"), others, right=True)
            found[name] = torch.cat([rows[noised >= counted.threshold], others]).sort().values
        return found

    selected = select(counted.counts) if owners is None else owners.compute_once(select, counted.counts)
    tables = {name: take_rows(clipped.tensors[name], rows.to(clipped.tensors[name].device)) for name, rows in selected.items()}
    return replace(clipped, tensors={**clipped.tensors, **tables}, rows=None)


def draw_positions(size: int, chance: float, source: Source) -> NDArray[np.int64]:
    """Return the positions of the successes in `size` independent trials of a probability, in increasing order."""
    found, last = [np.empty(0, dtype=np.int64)], -1
    while chance > 0 and last < size - 1:
        expected = (size - 1 - last) * chance
        words = source.words(math.ceil(expected + 6 * math.sqrt(expected)) + 8)
        # Exponential numbers, with all digits also where they are small, over the rate of a geometric distribution.
        with np.errstate(divide="ignore"):
            failures = np.log1p(-(words.astype(np.float64) + 0.5) * 2.0**-64) / math.log1p(-chance)
        places = last + np.cumsum(np.minimum(failures, size).astype(np.int64) + 1)
        found.append(places[places < size])
        last = int(places[-1])
    return np.concatenate(found)


def take_rows(table: Tensor, rows: Tensor) -> Tensor:
    """Return a sparse tensor (V, d) that stores exactly these rows, in increasing order; those that the table lacks are zero."""
    known = table.coalesce()
    stored, values = known.indices()[0], known.values()
    found = values.new_zeros(len(rows), *values.shape[1:])
    if len(stored) and len(rows):
        at = torch.searchsorted(stored, rows).clamp_(max=len(stored) - 1)
        there = stored[at] == rows
        found[there] = values[at[there]]
    return sparse_rows(rows, found, len(table))


def sparse_rows(rows: Tensor, values: Tensor, size: int) -> Tensor:
    """Return values (n, …) as the rows of a sparse tensor (size, …); rows are different and in increasing order."""
    return torch.sparse_coo_tensor(rows[None], values, (size, *values.shape[1:]), is_coalesced=True, check_invariants=False)
