"""Checks of padding on a made-up example: whether the model takes the longest one, and whether padding leaves its gradient."""

from __future__ import annotations

__all__ = ["check_longest", "make_row", "padding_changes"]

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from privet._utils.randomness import preserve_generators, seed_generators
from privet.collate import Collate, collate_one
from privet.errors import InvalidArgumentError
from privet.gradients.core.losses import LossFunction
from privet.gradients.probe.synthetic_batch import make_synthetic_items

# Gradients that rounding alone makes different differ by less, as shares of their norm.
_ROUNDING = {torch.float32: 1e-2, torch.float64: 1e-2}
_COARSE = 0.1
# What is no token: attention everywhere, and labels that classes and vocabularies have.
_FILLED = {"attention_mask": 1, "labels": 1, "label": 1}


def make_row(like: Any, model: Any, length: int) -> dict[str, Any] | None:
    """Return a made-up row with the fields of another, whose sequences have a given length; None if it has no tokens.

    Args:
        like: row of which only structure and types are used.
        model: model of transformers, whose vocabulary and special tokens are public.
        length: number of tokens, ≥ 1.
    """
    if not isinstance(like, Mapping) or not _is_sequence(like.get("input_ids")):
        return None
    config = getattr(model, "config", None)
    size = getattr(config, "vocab_size", None) or getattr(getattr(config, "text_config", None), "vocab_size", None) or 2
    special = {getattr(config, name, None) for name in ("pad_token_id", "eos_token_id", "bos_token_id")} | {0}
    tokens = [token for token in range(size - 1, max(size - 65, 0), -1) if token not in special] or [size - 1]
    made = make_synthetic_items(dict(like), 1)[0]
    number = len(like["input_ids"])
    for name, value in like.items():
        if _is_sequence(value) and len(value) == number:
            filled = [tokens[place % len(tokens)] if name == "input_ids" else _FILLED.get(name, 0) for place in range(length)]
            made[name] = filled if isinstance(value, list) else _as(value, filled)
    return made  # type: ignore[no-any-return]


def padding_changes(model: nn.Module, loss_fn: LossFunction, collate: Collate, row: Any, *, coarse: bool = False) -> bool:
    """Return whether the gradient of a made-up row changes when its padding is cut off; False if that cannot be told.

    It does if padding shifts positions, or if the model takes the last token for the end of the text.

    Args:
        model, loss_fn: model and loss of the training.
        collate: pads the row, and returns an `attention_mask`.
        row: row of `make_row`.
        coarse: whether the model computes in less than float32.
    """
    parameters = [each for each in model.parameters() if each.requires_grad]
    coarse = coarse or any(each.dtype not in _ROUNDING for each in model.parameters())
    try:
        with _evaluating(model), torch.enable_grad():
            padded = _collated(model, collate, row)
            bare = _without_padding(padded, getattr(getattr(model, "config", None), "is_encoder_decoder", False))
            if bare is None:
                return False
            one, other = (
                torch.autograd.grad(loss_fn(model, batch).sum(), parameters, allow_unused=True) for batch in (padded, bare)
            )
            norm, off = _norm(one), _norm([_difference(a, b) for a, b in zip(one, other, strict=True)])
    except Exception:  # the check before the first step says what is wrong with the model
        return False
    return off > (_COARSE if coarse else _ROUNDING[torch.float32]) * max(norm, _norm(other))


def check_longest(name: str, model: nn.Module, loss_fn: LossFunction, collate: Collate, rows: tuple[Any, Any]) -> None:
    """Refuse a length that the model cannot take: examples of that length would contribute nothing.

    Args:
        name: the argument that says how long examples may be.
        model, loss_fn, collate: of the training.
        rows: made-up rows, a short one and one of that length.

    Raises:
        InvalidArgumentError: the model or loss fails on the long one, and not on the short one.
    """
    with _evaluating(model), torch.no_grad():
        try:
            loss_fn(model, _collated(model, collate, rows[0]))
        except Exception:  # whatever the length; the check before the first step says why
            return
        try:
            loss_fn(model, _collated(model, collate, rows[1]))
        except Exception as error:
            raise InvalidArgumentError(
                name, len(rows[1]["input_ids"]), "a length that the model can take",
                f"On a made-up example of that length, model or loss fails ({type(error).__name__}), so examples as long as that "
                "would contribute nothing. Lower it to the number of the model's positions.",
            ) from None  # fmt: skip


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Switch dropout off, and leave modes and generators as they were."""
    modes = [(module, module.training) for module in model.modules()]
    with preserve_generators():
        seed_generators(0)
        model.eval()
        try:
            yield
        finally:
            for module, mode in modes:
                module.training = mode


def _collated(model: nn.Module, collate: Collate, row: Any) -> Any:
    device = next(model.parameters()).device
    return pytree.tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, collate_one(dict(row), collate))


def _without_padding(batch: Any, has_decoder: bool) -> Any:
    """Return a batch without its padded columns, so that random masks of tokens stay; None if there are none."""
    mask = batch.get("attention_mask") if isinstance(batch, dict) else None
    if not isinstance(mask, Tensor) or mask.dim() != 2 or bool(mask.bool().all()):
        return None
    kept = mask[0].bool()

    def cut(name: str, value: Any) -> bool:
        own = has_decoder and (name == "labels" or name.startswith("decoder"))  # padded by themselves
        return isinstance(value, Tensor) and value.dim() >= 2 and value.shape[1] == len(kept) and not own

    return {name: value[:, kept] if cut(name, value) else value for name, value in batch.items()}


def _difference(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return other if one is None else one
    return one - other


def _norm(gradients: Any) -> float:
    return math.sqrt(sum(float(each.detach().float().square().sum()) for each in gradients if each is not None))


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, Tensor | np.ndarray) and value.ndim == 1)


def _as(like: Any, values: list[int]) -> Any:
    return torch.tensor(values, dtype=like.dtype, device="cpu") if isinstance(like, Tensor) else np.array(values, like.dtype)
