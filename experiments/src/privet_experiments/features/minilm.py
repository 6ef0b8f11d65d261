"""Tokens and embeddings of sentences by all-MiniLM-L6-v2, and its trainable last layer."""

from __future__ import annotations

__all__ = ["BEFORE_LAST_LAYER", "SENTENCES", "TOKENS", "LastLayer", "last_layer"]

import math
from typing import Any

import torch
from torch import Tensor, nn

from privet.data import DataSet
from privet.errors import InvalidArgumentError
from privet.models.pretrained.minilm import (
    LENGTH,
    PADDING,
    SHA256,
    lengths,
    mean_over_tokens,
    pretrained,
    token_mask,
    tokenizer,
    trim,
)  # fmt: skip
from privet_experiments.data_sets.text_set import decode
from privet_experiments.features.extraction import Compute, Extractor

_AT_ONCE = 64


class LastLayer(nn.Module):
    """The encoder's last layer (a BertLayer), followed by the mean of its outputs over a sentence's tokens."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, states: Tensor) -> Tensor:
        """Return an embedding for each row of states, which are zero for padding: (N, LENGTH, WIDTH) → (N, WIDTH)."""
        states, mask = trim(states, _state_mask(states))
        bias = torch.zeros(mask.shape, device=states.device).masked_fill(~mask, -math.inf)
        # A row without any token attends to all positions, because a softmax over nothing is NaN.
        bias = torch.where(mask.any(1, keepdim=True), bias, 0.0)
        return mean_over_tokens(self.layer(states.float(), attention_mask=bias[:, None, None, :]), mask)


def _state_mask(states: Tensor) -> Tensor:
    """Return the mask of tokens' states, (N, LENGTH) bool, False for padding."""
    return (states != 0).any(2)


def last_layer() -> LastLayer:
    """Return the encoder's last layer, for "minilm before its last layer", in evaluation mode; errors as for `pretrained`."""
    encoder: Any = pretrained().encoder
    return LastLayer(encoder.encoder.layer[-1]).eval()


def _tokens(data: DataSet) -> Compute:
    if data.train.tensors[0].dtype != torch.uint8 or len(data.input_shape) != 1:
        raise InvalidArgumentError("data", data.name, "a set of texts, such as sst2, for MiniLM")
    encode = tokenizer().encode_batch

    def tokens(rows: Tensor) -> Tensor:
        return torch.tensor([one.ids for one in encode(decode(rows))], dtype=torch.int64).reshape(-1, LENGTH)

    return tokens


def _sentences(data: DataSet) -> Compute:
    tokens, encode = _tokens(data), pretrained()

    def vectors(rows: Tensor) -> Tensor:
        return torch.cat([encode(some) for some in torch.split(tokens(rows), _AT_ONCE)])

    return vectors


def _states(data: DataSet) -> Compute:
    tokens, encoder = _tokens(data), pretrained().encoder
    layers: Any = encoder.encoder
    layers.layer = layers.layer[:-1]

    def before(rows: Tensor) -> Tensor:
        mask = rows != PADDING
        states = encoder(input_ids=rows, attention_mask=mask.float()).last_hidden_state
        return (states * mask[..., None]).half()  # type: ignore[no-any-return]

    def states(rows: Tensor) -> Tensor:
        return torch.cat([before(some) for some in torch.split(tokens(rows), _AT_ONCE)])

    return states


_VERSION = f"{SHA256}, {LENGTH} tokens, 1"
TOKENS = Extractor("minilm-tokens", _VERSION, _tokens, lengths=lambda tokens: lengths(token_mask(tokens)))
SENTENCES = Extractor("minilm", _VERSION, _sentences)
# In half precision, a thousand sentences take 37 MB.
BEFORE_LAST_LAYER = Extractor("minilm-states", _VERSION, _states, lengths=lambda states: lengths(_state_mask(states)))
