"""Adversarial variants of an example: NaN, too long, too large, or constant."""

from __future__ import annotations

__all__ = ["variants"]

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

Change = Callable[[Tensor], Tensor]

# Variants of the real numbers of an example.
_REAL: dict[str, Change] = {
    "NaN": lambda leaf: torch.full_like(leaf, torch.nan),
    "infinite in one entry": lambda leaf: (
        leaf.flatten().index_fill(0, torch.tensor([0], device=leaf.device), torch.inf).view_as(leaf)
    ),
    "zero": torch.zeros_like,
    "1e20": lambda leaf: torch.full_like(leaf, min(1e20, torch.finfo(leaf.dtype).max)),
    "a thousand times larger": lambda leaf: leaf * 1e3,
}
# Variants of its integer sequences; integers that do not occur in the example may be out of range.
_WORDS: dict[str, Change] = {
    "one token repeated": lambda leaf: leaf.flatten()[0].expand(leaf.shape).clone(),
    "all tokens zero": torch.zeros_like,
}


def variants(batches: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield (name, variant) of the first of some batches of one, starting with the batch itself."""
    yield "unchanged", batches[0]
    leaves, tree = pytree.tree_flatten(batches[0])
    others = [flat for flat, structure in map(pytree.tree_flatten, batches[1:]) if structure == tree]

    def changed(made: Mapping[int, Tensor]) -> Any:
        return pytree.tree_unflatten([made.get(at, leaf) for at, leaf in enumerate(leaves)], tree)

    tensors = {at: leaf for at, leaf in enumerate(leaves) if _is_number(leaf)}
    real = {at: leaf for at, leaf in tensors.items() if leaf.is_floating_point()}
    words = {at: leaf for at, leaf in tensors.items() if at not in real and leaf.dim() > 1}
    for kinds, some in ((_REAL, real), (_WORDS, words)):
        for kind, change in kinds.items() if some else ():
            yield kind, changed({at: change(leaf) for at, leaf in some.items()})
    labels = {at: leaf for at, leaf in tensors.items() if at not in real and at not in words}
    different = {at: _find_different(leaf, [flat[at] for flat in others]) for at, leaf in labels.items()}
    if relabel := {at: other for at, other in different.items() if other is not None}:
        yield "of another class", changed(relabel)
        if real:
            yield "an outlier of another class", changed({at: leaf * 1e3 for at, leaf in real.items()} | relabel)
    if sequences := _sequences(tensors, words, others):
        longest = max(flat[at].shape[1] for flat in (leaves, *others) for at in sequences)
        yield "of length 1", changed({at: leaf[:, :1] for at, leaf in sequences.items()})
        if all(leaf.device.type == "cpu" and leaf.shape[1] for leaf in sequences.values()):
            # On other devices, an index that is out of range terminates the process.
            yield "twice as long as any", changed({at: _repeat(leaf, 2 * longest) for at, leaf in sequences.items()})


def _sequences(tensors: Mapping[int, Tensor], words: Iterable[int], others: Sequence[Sequence[Any]]) -> dict[int, Tensor]:
    """Return the leaves of variable length: those whose lengths differ, tokens, and leaves of the same length as one of these."""
    long = {at: leaf.shape[1] for at, leaf in tensors.items() if leaf.dim() > 1}
    known = {at for at in long if any(flat[at].shape[1] != long[at] for flat in others)} | set(words)
    lengths = {long[at] for at in known}
    return {at: tensors[at] for at in long if long[at] in lengths}


def _find_different(leaf: Tensor, others: Sequence[Tensor]) -> Tensor | None:
    return next((other for other in others if other.shape == leaf.shape and not torch.equal(other, leaf)), None)


def _repeat(leaf: Tensor, length: int) -> Tensor:
    times = [1, -(-length // leaf.shape[1]), *([1] * (leaf.dim() - 2))]
    return leaf.repeat(times)[:, :length]


def _is_number(leaf: object) -> bool:
    if not isinstance(leaf, Tensor) or leaf.is_complex() or leaf.dtype == torch.bool:
        return False
    return leaf.layout is torch.strided and leaf.numel() > 0
