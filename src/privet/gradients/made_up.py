"""Made-up batches with the shapes of real ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from privet.gradients.trees import belongs, examples_in, rows


def made_up(batch: Any, examples: int) -> Any:
    """Return a batch of the same structure with made-up content, in float64.

    Numbers with a fraction become standard normal; whole numbers become 0 or 1, which nearly every vocabulary and label set
    has. Leaves without an example dimension (a shared mask, say) are kept.

    Args:
        batch: a real batch, of which only structure, shapes and types are used.
        examples: how many examples to make up.
    """
    real = examples_in(batch)
    generator = torch.Generator().manual_seed(0)

    def invent(leaf: object) -> object:
        if not isinstance(leaf, Tensor) or not belongs(leaf, real):
            return _double(leaf)
        shape = (examples, *leaf.shape[1:])
        if leaf.is_floating_point():
            return torch.randn(shape, generator=generator, dtype=torch.float64).to(leaf.device)
        if leaf.dtype == torch.bool:
            return torch.ones(shape, dtype=torch.bool, device=leaf.device)
        return torch.randint(0, 2, shape, generator=generator).to(leaf)

    return pytree.tree_map(invent, batch)


def small_batches(batch: Any, public: bool) -> list[Any]:
    """Return batches of three and of two examples, the latter also in reverse.

    In the pair, every whole number is 1 for one example and 0 for the other: a model that orders examples by anything they
    contain changes the order of the pair or of its reverse.

    Args:
        batch: with the real structure, shapes and types.
        public: take its own first examples instead of made-up ones.
    """
    if public:
        known = pytree.tree_map(_double, batch)
        three, pair = rows(known, slice(3)), rows(known, slice(2))
    else:
        three, pair = made_up(batch, 3), pytree.tree_map(_one_and_zero, made_up(batch, 2))
    return [three, pair, rows(pair, torch.arange(examples_in(pair)).flip(0))]


def _double(leaf: object) -> object:
    return leaf.double() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def _one_and_zero(leaf: object) -> object:
    whole = isinstance(leaf, Tensor) and belongs(leaf, 2) and not leaf.is_floating_point() and leaf.dtype != torch.bool
    if not whole:
        return leaf
    assert isinstance(leaf, Tensor)
    return torch.stack([torch.ones_like(leaf[0]), torch.zeros_like(leaf[0])])
