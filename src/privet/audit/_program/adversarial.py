"""Adversarial variants of examples: NaN, too long, too large, or constant."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

Change = Callable[[Tensor], Tensor]

# Variants of the real numbers of an example.
_REAL: dict[str, Change] = {
    "NaN": lambda leaf: torch.full_like(leaf, torch.nan),
    "infinite in one entry": lambda leaf: _set_first(leaf, torch.inf),
    "zero": torch.zeros_like,
    "1e20": lambda leaf: torch.full_like(leaf, min(1e20, torch.finfo(leaf.dtype).max)),
    "a thousand times larger": lambda leaf: leaf * 1e3,
}
# Variants of its integer sequences; integers that do not occur in the example may be out of range.
_WORDS: dict[str, Change] = {
    "one token repeated": lambda leaf: leaf.flatten()[0].expand(leaf.shape).clone(),
    "all tokens zero": torch.zeros_like,
}


def variants(items: Sequence[Any], *, batched: bool) -> Iterator[tuple[str, Any]]:
    """Yield (name, variant) of the first of some examples, starting with the example itself.

    Args:
        items: items of a data set, or batches of one.
        batched: whether they are batches of one, with a first dimension of 1.
    """
    yield "unchanged", items[0]
    leaves, tree = _flatten(items[0])
    others = [flat for flat, structure in map(_flatten, items[1:]) if structure == tree]
    first = int(batched)  # first dimension of a sequence

    def changed(some: dict[int, Change]) -> Any:
        made = [
            _convert_like(change(_tensor(leaf)), leaf) if (change := some.get(at)) else leaf for at, leaf in enumerate(leaves)
        ]
        return pytree.tree_unflatten(made, tree)

    tensors = {at: _tensor(leaf) for at, leaf in enumerate(leaves) if _is_number(leaf)}
    real = [at for at, leaf in tensors.items() if leaf.is_floating_point()]
    whole = [at for at, leaf in tensors.items() if not leaf.is_floating_point() and leaf.dtype != torch.bool]
    words = [at for at in whole if tensors[at].dim() > first]
    for kinds, where in ((_REAL, real), (_WORDS, words)):
        if where:
            yield from ((kind, changed(dict.fromkeys(where, change))) for kind, change in kinds.items())
    labels = {
        at: other
        for at in whole
        if tensors[at].dim() == first
        for other in [_find_different(tensors[at], [_tensor(flat[at]) for flat in others])]
        if other is not None
    }
    relabel: dict[int, Change] = {at: lambda leaf, other=other: other for at, other in labels.items()}  # type: ignore[misc]
    if relabel:
        yield "of another class", changed(relabel)
        if real:
            yield "an outlier of another class", changed({**dict.fromkeys(real, _REAL["a thousand times larger"]), **relabel})
    if sequences := _sequences(tensors, words, others, first):
        longest = max(_tensor(flat[at]).shape[first] for flat in (leaves, *others) for at in sequences)
        yield "of length 1", changed(dict.fromkeys(sequences, lambda leaf: leaf.narrow(first, 0, min(1, leaf.shape[first]))))
        if all(tensors[at].device.type == "cpu" and tensors[at].shape[first] for at in sequences):
            # On other devices, an index that is out of range terminates the process.
            yield "twice as long as any", changed(dict.fromkeys(sequences, lambda leaf: _repeat(leaf, first, 2 * longest)))


def _sequences(tensors: dict[int, Tensor], words: list[int], others: list[list[Any]], first: int) -> list[int]:
    """Return the leaves of variable length: those whose lengths differ, tokens, and leaves of the same length as one of these."""
    long = {at: leaf.shape[first] for at, leaf in tensors.items() if leaf.dim() > first}
    known = {at for at in long if any(_tensor(flat[at]).shape[first] != long[at] for flat in others)} | set(words)
    lengths = {long[at] for at in known}
    return [at for at in long if long[at] in lengths]


def _find_different(leaf: Tensor, others: Sequence[Tensor]) -> Tensor | None:
    return next((other for other in others if other.shape == leaf.shape and not torch.equal(other, leaf)), None)


def _set_first(leaf: Tensor, value: float) -> Tensor:
    made = leaf.clone()
    made.view(-1)[:1].fill_(value)
    return made


def _repeat(leaf: Tensor, dimension: int, length: int) -> Tensor:
    times = [1] * leaf.dim()
    times[dimension] = -(-length // leaf.shape[dimension])
    return leaf.repeat(times).narrow(dimension, 0, length)


def _flatten(item: Any) -> tuple[list[Any], pytree.TreeSpec]:
    return pytree.tree_flatten(copy.deepcopy(item), is_leaf=_is_list_of_numbers)


def _is_list_of_numbers(value: object) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(type(each) in (int, float) for each in value)


def _is_number(leaf: object) -> bool:
    if isinstance(leaf, np.ndarray):
        return leaf.dtype.kind in "fiu"
    if isinstance(leaf, Tensor):
        return not leaf.is_complex() and leaf.layout is torch.strided and leaf.numel() > 0
    return type(leaf) in (int, float) or _is_list_of_numbers(leaf)


def _tensor(leaf: Any) -> Tensor:
    return leaf if isinstance(leaf, Tensor) else torch.as_tensor(leaf)


def _convert_like(tensor: Tensor, leaf: Any) -> Any:
    """Convert a tensor to the type of the original leaf."""
    if isinstance(leaf, Tensor):
        return tensor
    if isinstance(leaf, np.ndarray):
        return tensor.numpy().astype(leaf.dtype, copy=False)
    return tensor.tolist()
