"""Small models of transformers and peft that must be accepted and trained correctly."""

from __future__ import annotations

import pytest
import torch
from harness import Task, Verdict, trained_right, valid
from materials import Listed
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import TensorDataset

LABELS = 3


def library(name: str = "transformers"):
    """Return a library, or skip if it is not installed."""
    return pytest.importorskip(name)


def bert():
    """Return a small classifier of texts."""
    transformers = library()
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=20, num_labels=LABELS,
        max_position_embeddings=12, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def texts(examples: int = 8) -> Listed:
    """Return texts of several lengths with labels."""
    source = torch.Generator().manual_seed(2)
    return Listed(
        {"input_ids": torch.randint(1, 30, (3 + k % 4,), generator=source), "labels": k % LABELS} for k in range(examples)
    )


def padded(items):
    """Return a dict with a mask, padded to the longest."""
    tokens = pad_sequence([item["input_ids"] for item in items], batch_first=True)
    labels = torch.tensor([item["labels"] for item in items])
    return {"input_ids": tokens, "attention_mask": (tokens != 0).long(), "labels": labels}


def classification(model, batch):
    """Return the cross-entropy of every text."""
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    return F.cross_entropy(logits, batch["labels"], reduction="none")


def next_words(model, batch):
    """Return every text's mean cross-entropy of the next word."""
    logits = model(input_ids=batch[0]).logits
    return F.cross_entropy(logits[:, :-1].transpose(1, 2).float(), batch[0][:, 1:], reduction="none").mean(1)


def sentences(examples: int = 6) -> TensorDataset:
    """Return texts of one length."""
    return TensorDataset(torch.randint(1, 30, (examples, 7), generator=torch.Generator().manual_seed(2)))


@valid()
def bert_with_padding_and_a_mask():
    """Padded by collate, in a dict."""
    return trained_right(Task(bert, classification, collate=padded), texts())


@valid()
def gpt2_predicts_words():
    """Tied table and head, and Conv1D layers."""
    transformers = library()
    config = transformers.GPT2Config(
        vocab_size=30, n_positions=12, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    return trained_right(Task(lambda: transformers.GPT2LMHeadModel(config), next_words), sentences())


@valid()
def mixtral_predicts_words():
    """A mixture of experts, whose products are grouped by expert."""
    transformers = library()
    config = transformers.MixtralConfig(
        vocab_size=30, hidden_size=16, intermediate_size=20, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
        num_local_experts=3, num_experts_per_tok=2, max_position_embeddings=12,
    )  # fmt: skip
    return trained_right(Task(lambda: transformers.MixtralForCausalLM(config), next_words), sentences())


def adapted(*, dora: bool) -> Verdict:
    """Return the verdict on a classifier whose adapters are trained."""
    peft = library("peft")

    def make():
        config = peft.LoraConfig(r=2, lora_alpha=4, lora_dropout=0.0, target_modules=["query", "value"], use_dora=dora)
        model = peft.get_peft_model(bert(), config)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:  # otherwise zero, and so would be the gradients of the other factor
                torch.nn.init.normal_(parameter, std=0.3)
        return model

    return trained_right(Task(make, classification, collate=padded), texts())


@valid()
def adapters_of_low_rank():
    """LoRA."""
    return adapted(dora=False)
