"""A use that no handler knows, followed by itself: the function is vectorised over the examples, each with its own view."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, vmap
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from privet.gradients.elementwise import per_example_leaf
from privet.gradients.recorder import Recorder

# What these compute for one example can depend on the others, or they have rules for shapes that vectorising them would skip.
_NOT_BY_ITSELF = (
    F.embedding, F.embedding_bag, F.batch_norm,
    torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu,
    torch.lstm_cell, torch.gru_cell, torch.rnn_tanh_cell, torch.rnn_relu_cell,
)  # fmt: skip


def expanded(recorder: Recorder, function: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Return the function's result with every followed tensor replaced by a view of it per example.

    The gradients of the views are the per-example gradients, which are stored: large for a large parameter.

    Returns:
        The result, with examples first; None if the function cannot be vectorised, or does not keep examples apart.
    """
    if function in _NOT_BY_ITSELF or getattr(function, "__name__", "").endswith("_"):
        return None
    leaves, tree = pytree.tree_flatten((tuple(arguments), dict(options)))
    mapped = [_holds_examples(recorder, leaf) for leaf in leaves]
    if any(
        isinstance(leaf, Tensor) and not held and not recorder.is_constant(leaf)
        for leaf, held in zip(leaves, mapped, strict=True)
    ):
        return None
    views = [per_example_leaf(recorder, leaf) if recorder.follows(leaf) else leaf for leaf in leaves]
    constants = [leaf for leaf, held in zip(leaves, mapped, strict=True) if not held]

    def one(*examples: Tensor) -> Any:
        rest, own = iter(constants), iter(examples)
        single = [
            next(own) if recorder.follows(leaf) else next(own)[None] if held else next(rest)
            for leaf, held in zip(leaves, mapped, strict=True)
        ]
        found, options = pytree.tree_unflatten(single, tree)
        return pytree.tree_map(_only, function(*found, **options))

    try:
        return vmap(one, randomness="error")(*(view for view, held in zip(views, mapped, strict=True) if held))
    except Exception:  # torch raises many kinds for what it cannot vectorise
        return None


def _holds_examples(recorder: Recorder, leaf: object) -> bool:
    if not isinstance(leaf, Tensor):
        return False
    return recorder.follows(leaf) or (not recorder.is_constant(leaf) and recorder.dimension(leaf, 0) == 0)


def _only(result: object) -> object:
    """Return the one example of a result."""
    if not isinstance(result, Tensor) or result.shape[:1] != (1,):
        raise ValueError("the function does not keep the examples apart")
    return result[0]
