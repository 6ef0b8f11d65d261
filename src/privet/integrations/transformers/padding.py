"""Public lengths for data collators of transformers: multiples of 16, and none past what the model takes."""

from __future__ import annotations

__all__ = ["longest_inputs", "pads_by_itself", "with_public_lengths"]

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from privet.collate import Collate

_MULTIPLE = 16
_SEQUENCES = ("input_ids", "decoder_input_ids", "labels")


def longest_inputs(model: Any, tokenizer: Any = None, *others: Any) -> tuple[int, ...]:
    """Return lengths past which no input is padded, increasing: of the model, the tokenizer and others.

    Args:
        model: model of transformers, also within an adapter of peft, whose virtual tokens take positions of their own.
        tokenizer: tokenizer with a `model_max_length`, or None.
        others: further lengths, such as a trainer's `max_length`; what is no whole number > 0 is left out.
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

    It is called for one example at a time, so without this, examples of different lengths would not share a pass.

    Args:
        collate: data collator of the host.
        limits: increasing lengths. An example is padded to the first of them that it fits in, if the next multiple is past that:
            a model with 77 positions fails on 80, so longer examples would contribute nothing.

    Guarantee:
        The lengths are public numbers, and an example's padded length depends on that example only.
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
    """Return the longest of a batch's token sequences; 0 if there is none."""
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
        try:
            return dataclasses.replace(collate, pad_to_multiple_of=multiple)
        except (TypeError, ValueError):
            return collate
    return padded
