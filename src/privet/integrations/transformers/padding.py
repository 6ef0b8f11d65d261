"""Padding for models of transformers: to public lengths, and checked on a made-up example."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from privet._utils.randomness import preserve_generators, seed_generators
from privet.collate import Collate, collate_one
from privet.errors import InvalidArgumentError
from privet.evaluation.outputs import evaluation_mode
from privet.gradients.core.losses import LossFunction
from privet.gradients.probe.synthetic_batch import make_synthetic_items

_MULTIPLE = 16
_SEQUENCES = ("input_ids", "decoder_input_ids", "labels")
# Gradients that rounding alone makes different differ by less, as shares of their norm.
_ROUNDING = {torch.float32: 1e-2, torch.float64: 1e-2}
_COARSE = 0.1
# What is no token: attention everywhere, and labels that classes and vocabularies have.
_FILLED = {"attention_mask": 1, "labels": 1, "label": 1}


def longest_inputs(model: Any, tokenizer: Any = None, *others: Any) -> tuple[int, ...]:
    """Return lengths past which no input is padded, increasing: of the model, the tokenizer and others, such as `max_length`.

    Virtual tokens of a peft adapter take positions of their own. What is no whole number > 0 is left out.
    """
    adapter = getattr(model, "active_peft_config", None)
    virtual = getattr(adapter, "num_virtual_tokens", None) or 0
    config = getattr(model, "config", None)
    positions = [
        getattr(part, name, None)
        for part in (config, getattr(config, "text_config", None))
        for name in ("max_position_embeddings", "n_positions")
    ]
    own = [each - virtual for each in positions if type(each) is int]
    found = (*own, getattr(tokenizer, "model_max_length", None), *others)
    return tuple(sorted({each for each in found if type(each) is int and each > 0}))


def pads_by_itself(collate: Any) -> bool:
    """Return whether a data collator cannot pad to multiples, or was told to what length it pads."""
    missing = object()
    return getattr(collate, "pad_to_multiple_of", missing) is not None or getattr(collate, "padding", None) == "max_length"


def with_public_lengths(collate: Any, limits: Sequence[int]) -> Any:
    """Return a data collator that pads to multiples of 16, if it can pad and was not told to what.

    It is called for one example at a time, so without this, examples of different lengths would not share a pass. The lengths
    are public numbers, and an example's padded length depends on that example only. Where the next multiple is past one of the
    increasing `limits`, an example is padded to the first limit that it fits in: a model with 77 positions fails on 80.
    """
    if pads_by_itself(collate):
        return collate
    padded = _with_multiple(collate, _MULTIPLE)
    # A partial function, which can be sent to processes that read.
    return partial(_collate_within, collate, padded, tuple(limits)) if limits else padded


def _collate_within(collate: Collate, padded: Collate, limits: Sequence[int], items: list[Any]) -> Any:
    batch = padded(items)
    length = _length(batch)
    if length <= limits[0]:
        return batch
    content = _length(collate(items))
    longest = next((limit for limit in limits if limit >= content), length)
    return _with_multiple(collate, longest)(items) if longest < length else batch


def _length(batch: Any) -> int:
    parts = [batch.get(name) for name in _SEQUENCES] if isinstance(batch, Mapping) else []
    # Several labels at once are floats, and no sequence.
    return max([each.shape[1] for each in parts if isinstance(each, Tensor) and each.dim() == 2 and not each.is_floating_point()],
               default=0)  # fmt: skip


def _with_multiple(collate: Any, multiple: int) -> Any:
    """Return a copy of a data collator that pads to multiples of a length, or itself if it cannot be changed."""
    padded = copy.copy(collate)
    try:
        padded.pad_to_multiple_of = multiple
    except AttributeError:  # a frozen dataclass, or a property without a setter
        return collate
    return padded


def make_row(like: Any, model: Any, length: int) -> dict[str, Any] | None:
    """Return a made-up row of `length` tokens with the fields and types of another; None if it has no tokens.

    Vocabulary and special tokens of the model are public.
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

    It does if padding shifts positions, or if the model takes the last token for the end of the text. `collate` returns an
    `attention_mask`; `coarse` says that the model computes in less than float32.
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
                torch.autograd.grad(loss_fn(model, batch).sum(), parameters, materialize_grads=True) for batch in (padded, bare)
            )
            norm, off = _norm(one), _norm([a - b for a, b in zip(one, other, strict=True)])
    except Exception:  # the check before the first step says what is wrong with the model
        return False
    return off > (_COARSE if coarse else _ROUNDING[torch.float32]) * max(norm, _norm(other))


def check_longest(name: str, model: nn.Module, loss_fn: LossFunction, collate: Collate, rows: tuple[Any, Any]) -> None:
    """Refuse a length that the model cannot take: examples of that length would contribute nothing.

    `name` is the argument that says it; `rows` are made-up: a short one, and one of that length.
    """
    with _evaluating(model), torch.no_grad():
        try:
            loss_fn(model, _collated(model, collate, rows[0]))
        except Exception:  # whatever the length; the check before the first step says why
            return
        try:
            loss_fn(model, _collated(model, collate, rows[1]))
        except Exception as error:
            allowed = "a length that the model can take"
            fix = (
                f"On a made-up example of that length, model or loss fails ({type(error).__name__}), so examples as long as that "
                "would contribute nothing. Lower it to the number of the model's positions."
            )
            raise InvalidArgumentError(name, len(rows[1]["input_ids"]), allowed, fix) from None


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Switch dropout off, and leave modes and generators as they were."""
    with preserve_generators(), evaluation_mode(model):
        seed_generators(0)
        yield


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


def _norm(gradients: Iterable[Tensor]) -> float:
    return math.sqrt(sum(float(each.detach().float().square().sum()) for each in gradients))


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, Tensor | np.ndarray) and value.ndim == 1)


def _as(like: Any, values: list[int]) -> Any:
    return torch.tensor(values, dtype=like.dtype, device="cpu") if isinstance(like, Tensor) else np.array(values, like.dtype)
