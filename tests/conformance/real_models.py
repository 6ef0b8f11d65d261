"""Unmodified models from `transformers` with random weights and small configurations."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

VOCABULARY, WORDS, CLASSES = 29, 7, 4


def next_words(model, batch):
    """Return the mean over an example's positions; those after its length are padding."""
    words, targets, lengths = batch
    there = torch.arange(words.shape[1])[None] < lengths[:, None]
    logits = model(input_ids=words, attention_mask=there.long()).logits
    losses = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
    return losses.masked_fill(~there, 0).sum(1) / lengths


def translation(model, batch):
    source, target = batch
    logits = model(source, decoder_input_ids=target).logits
    return F.cross_entropy(logits.transpose(1, 2), target, reduction="none").mean(1)


def classes(model, batch):
    return F.cross_entropy(model(batch[0]).logits, batch[1], reduction="none")


def pooled(model, batch):
    return model(batch[0]).pooler_output.square().mean(1)


def pairs(n):
    return torch.randint(3, VOCABULARY, (n, WORDS)), torch.randint(3, VOCABULARY, (n, WORDS))


def sentences(n):
    """Return sentences of two lengths, some without padding: some models branch on the presence of padding."""
    return *pairs(n), torch.tensor([WORDS, WORDS - 2] * n)[:n]


def labelled_sentences(n):
    return torch.randint(3, VOCABULARY, (n, WORDS)), torch.randint(CLASSES, (n,))


def images(n, size=16):
    return torch.randn(n, 3, size, size), torch.randint(CLASSES, (n,))


@dataclass(frozen=True)
class RealModel:
    """A model class of `transformers` with a small configuration.

    `exact`: it computes in the precision of its inputs throughout. `steered`: the routing of an example's words determines which
    operations run, so that only examples with equal routing share a pass.
    """

    name: str
    model: str
    config: str
    options: dict[str, Any]
    contents: Callable[[int], tuple[Any, ...]]
    loss: Callable[[Any, Any], torch.Tensor]
    exact: bool = True
    steered: bool = False
    adapt: Callable[[Any], Any] = lambda model: model

    def build(self, transformers):
        torch.manual_seed(1)
        config = getattr(transformers, self.config)(**self.options)
        return self.adapt(getattr(transformers, self.model)(config)).eval()

    def batch(self, examples, dtype):
        torch.manual_seed(2)
        return tuple(x.to(dtype) if x.is_floating_point() else x for x in self.contents(examples))

    def __str__(self):
        return self.name


def low_rank(model, **options):
    """Return GPT-2 with a low-rank adapter from PEFT, everything else frozen."""
    from peft import LoraConfig, get_peft_model

    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, **options))
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)  # its initial value is zero, so that the other factor would have no gradient
    return adapted


def with_magnitudes(model):
    """Return GPT-2 with DoRA from PEFT: each weight is composed of a direction and a magnitude."""
    return low_rank(model, use_dora=True)


_TEXT = {
    "vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 32,
}  # fmt: skip
_VISION = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "image_size": 16,
    "patch_size": 4, "num_labels": CLASSES,
}  # fmt: skip
_BOTH_SIDES = {
    "vocab_size": VOCABULARY, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
}  # fmt: skip
_GPT2 = {
    "vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
_FEW_HEADS = {**_TEXT, "num_key_value_heads": 1}

REAL_MODELS = [
    RealModel("BERT", "BertForSequenceClassification", "BertConfig", {**_TEXT, "num_labels": CLASSES},
              labelled_sentences, classes),
    RealModel("RoBERTa", "RobertaForMaskedLM", "RobertaConfig", {**_TEXT, "pad_token_id": 1}, sentences, next_words),
    RealModel("DistilBERT", "DistilBertForMaskedLM", "DistilBertConfig", {
        "vocab_size": VOCABULARY, "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 24}, sentences, next_words),
    RealModel("ALBERT", "AlbertForMaskedLM", "AlbertConfig", {
        **_TEXT, "embedding_size": 8, "num_hidden_layers": 2}, sentences, next_words),
    RealModel("GPT-2", "GPT2LMHeadModel", "GPT2Config", _GPT2, sentences, next_words),
    RealModel("GPT-2 with LoRA", "GPT2LMHeadModel", "GPT2Config", _GPT2, sentences, next_words, adapt=low_rank),
    RealModel("GPT-2 with DoRA", "GPT2LMHeadModel", "GPT2Config", _GPT2, sentences, next_words, adapt=with_magnitudes),
    RealModel("GPT-NeoX", "GPTNeoXForCausalLM", "GPTNeoXConfig", _TEXT, sentences, next_words),
    RealModel("OPT", "OPTForCausalLM", "OPTConfig", {
        "vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 24,
        "max_position_embeddings": 32, "word_embed_proj_dim": 16}, sentences, next_words),
    RealModel("Llama", "LlamaForCausalLM", "LlamaConfig", _FEW_HEADS, sentences, next_words),
    RealModel("Mistral", "MistralForCausalLM", "MistralConfig", _FEW_HEADS, sentences, next_words),
    RealModel("mixture of experts (Mixtral)", "MixtralForCausalLM", "MixtralConfig", {**_FEW_HEADS, "num_local_experts": 3,
        "num_experts_per_tok": 2, "experts_implementation": "eager"}, sentences, next_words, steered=True),
    RealModel("state space (Mamba)", "MambaForCausalLM", "MambaConfig", {"vocab_size": VOCABULARY,
        "hidden_size": 16, "state_size": 4, "num_hidden_layers": 1}, sentences, next_words, exact=False),
    RealModel("T5", "T5ForConditionalGeneration", "T5Config", {
        "vocab_size": VOCABULARY, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}, pairs, translation),
    RealModel("BART", "BartForConditionalGeneration", "BartConfig", {**_BOTH_SIDES, "max_position_embeddings": 32},
              pairs, translation),
    RealModel("Whisper", "WhisperForConditionalGeneration", "WhisperConfig", {**_BOTH_SIDES, "num_mel_bins": 8,
        "max_source_positions": 10, "max_target_positions": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "decoder_start_token_id": 1}, lambda n: (torch.randn(n, 8, 20), torch.randint(3, VOCABULARY, (n, WORDS))), translation),
    RealModel("ViT", "ViTForImageClassification", "ViTConfig", _VISION, images, classes),
    RealModel("CLIP's image half", "CLIPVisionModel", "CLIPVisionConfig", _VISION, images, pooled),
    RealModel("Swin", "SwinForImageClassification", "SwinConfig", {"image_size": 16, "patch_size": 2,
        "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4, "num_labels": CLASSES}, images, classes),
    RealModel("ConvNeXt", "ConvNextForImageClassification", "ConvNextConfig", {"hidden_sizes": [8, 12, 16, 20],
        "depths": [1, 1, 1, 1], "num_labels": CLASSES, "patch_size": 2}, lambda n: images(n, 32), classes),
    RealModel("wav2vec 2", "Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", {
        "vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24,
        "conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2,
        "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "num_labels": CLASSES, "classifier_proj_size": 8,
        "mask_time_prob": 0.0}, lambda n: (torch.randn(n, 400), torch.randint(CLASSES, (n,))), classes),
]  # fmt: skip
