"""Collectives over flat tensors of several sizes and precisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, distributed

from privet.noise.shares import Share

# torch 2.13 renamed both, and warns of the old names.
_all_gather: Any = getattr(distributed, "all_gather_single", None) or getattr(distributed, "all_gather_into_tensor", None)
_reduce_scatter: Any = getattr(distributed, "reduce_scatter_single", None) or getattr(distributed, "reduce_scatter_tensor", None)


def gather(values: Tensor, size: int, group: Any) -> Tensor:
    """Return the flat tensors of all ranks, (size, n)."""
    found = values.new_empty(size * len(values))
    _all_gather(found, values, group=group)
    return found.view(size, -1)


def scatter_sums(sums: Sequence[Tensor], rank: int, size: int, group: Any) -> list[Share]:
    """Return the share of a rank of Σ over ranks of flat tensors: by one reduce-scatter for each precision."""
    shares: list[Share] = []
    for members in _by_dtype(sums):
        lengths = [len(sums[which]) for which in members]
        total, each = sum(lengths), -(-sum(lengths) // size)
        padding = sums[members[0]].new_zeros(each * size - total)
        own = padding.new_empty(each)
        _reduce_scatter(own, torch.cat([*(sums[which] for which in members), padding]), group=group)
        start, first, stop = 0, each * rank, min(total, each * (rank + 1))
        for which, length in zip(members, lengths, strict=True):
            low, high = max(first, start), min(stop, start + length)
            if low < high:
                shares.append((which, low - start, own[low - first : high - first]))
            start += length
    return shares


def join_shares(sums: Sequence[Tensor], shares: Sequence[Share], size: int, group: Any) -> list[Tensor]:
    """Return whole flat tensors, shaped like the sums, from the shares of all ranks: by one all-gather for each precision."""
    found = list(sums)
    for members in _by_dtype(sums):
        lengths = [len(sums[which]) for which in members]
        own = torch.cat([sums[members[0]].new_empty(0), *(part for which, _, part in shares if which in members)])
        each = -(-sum(lengths) // size)
        every = gather(torch.nn.functional.pad(own, (0, each - len(own))), size, group).view(-1)
        for which, part in zip(members, every[: sum(lengths)].split(lengths), strict=True):
            found[which] = part
    return found


def reduce_rows(sums: Mapping[str, Tensor], rank: int, size: int, group: Any) -> dict[str, Tensor]:
    """Return the rows of a rank of Σ over ranks of tensors, as `torch.chunk` distributes rows: by one call for each precision."""
    found, names = {}, list(sums)
    for members in _by_dtype(list(sums.values())):
        shapes = {names[which]: sums[names[which]].shape for which in members}
        rows = {name: -(-shape[0] // size) for name, shape in shapes.items()}
        lengths = {name: rows[name] * shape[1:].numel() for name, shape in shapes.items()}
        whole = sums[names[members[0]]].new_zeros(size, sum(lengths.values()))
        for name, part in zip(shapes, whole.split(list(lengths.values()), dim=1), strict=True):
            for each, chunk in zip(part, sums[name].split(max(1, rows[name])), strict=False):
                each[: chunk.numel()] = chunk.reshape(-1)
        own = whole.new_empty(whole.shape[1])
        _reduce_scatter(own, whole.view(-1), group=group)
        for (name, shape), part in zip(shapes.items(), own.split(list(lengths.values())), strict=True):
            mine = max(0, min(shape[0], rows[name] * (rank + 1)) - rows[name] * rank)
            found[name] = part[: mine * shape[1:].numel()].view(mine, *shape[1:])
    return {name: found[name] for name in names}


def _by_dtype(sums: Sequence[Tensor]) -> list[list[int]]:
    kinds = dict.fromkeys(total.dtype for total in sums)
    return [[which for which, total in enumerate(sums) if total.dtype == kind] for kind in kinds]
