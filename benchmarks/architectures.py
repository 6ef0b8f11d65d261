"""Architectures of `transformers` with small random weights, for the table of models in the documentation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCABULARY, WORDS, CLASSES, PIXELS, SAMPLES = 1000, 32, 10, 32, 1600
Items = tuple[Tensor, ...]


def next_words(model: nn.Module, batch: Items) -> Tensor:
    logits = model(input_ids=batch[0]).logits[:, :-1]
    return F.cross_entropy(logits.transpose(1, 2), batch[0][:, 1:], reduction="none").mean(1)


def same_words(model: nn.Module, batch: Items) -> Tensor:
    logits = model(input_ids=batch[0]).logits
    return F.cross_entropy(logits.transpose(1, 2), batch[1], reduction="none").mean(1)


def translation(model: nn.Module, batch: Items) -> Tensor:
    logits = model(batch[0], decoder_input_ids=batch[1]).logits
    return F.cross_entropy(logits.transpose(1, 2), batch[1], reduction="none").mean(1)


def classes(model: nn.Module, batch: Items) -> Tensor:
    return F.cross_entropy(model(batch[0]).logits, batch[1], reduction="none")


def pooled(model: nn.Module, batch: Items) -> Tensor:
    output: Tensor = model(batch[0]).pooler_output
    return output.square().mean(1)


def two_texts(n: int) -> Items:
    return torch.randint(3, VOCABULARY, (n, WORDS)), torch.randint(3, VOCABULARY, (n, WORDS))


def labelled_texts(n: int) -> Items:
    return torch.randint(3, VOCABULARY, (n, WORDS)), torch.randint(CLASSES, (n,))


def images(n: int) -> Items:
    return torch.randn(n, 3, PIXELS, PIXELS), torch.randint(CLASSES, (n,))


def sounds(n: int) -> Items:
    return torch.randn(n, SAMPLES), torch.randint(CLASSES, (n,))


def spectra(n: int) -> Items:
    return torch.randn(n, 16, 2 * WORDS), torch.randint(3, VOCABULARY, (n, WORDS))


@dataclass(frozen=True)
class Task:
    """A task: its loss, and random items of a data set."""

    loss: Callable[[nn.Module, Items], Tensor]
    items: Callable[[int], Items]


CAUSAL, MASKED, TEXT_CLASSES = Task(next_words, two_texts), Task(same_words, two_texts), Task(classes, labelled_texts)
SEQUENCES, IMAGES, EMBEDDED_IMAGES = Task(translation, two_texts), Task(classes, images), Task(pooled, images)
SOUNDS, SPECTRA = Task(classes, sounds), Task(translation, spectra)


def as_it_is(model: nn.Module) -> nn.Module:
    return model


@dataclass(frozen=True)
class Architecture:
    """A model class with a small configuration; `adapt` makes the trained model from it."""

    name: str
    model: str
    config: str
    options: Mapping[str, Any]
    task: Task
    adapt: Callable[[nn.Module], nn.Module] = field(default=as_it_is)

    def build(self) -> nn.Module:
        import transformers

        torch.manual_seed(0)
        plain: nn.Module = getattr(transformers, self.model)(getattr(transformers, self.config)(**self.options))
        return self.adapt(plain).train()


def _layers(**others: Any) -> dict[str, Any]:
    return {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256, **others}


_TEXT = _layers(vocab_size=VOCABULARY, max_position_embeddings=64)
_TOKENS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
_DECODER = {**_TEXT, **_TOKENS, "num_key_value_heads": 2}
_HEADS = {**_DECODER, "head_dim": 32}
_EXPERTS = {**_HEADS, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
_OLD = {"vocab_size": VOCABULARY, "n_embd": 128, "n_layer": 2, "n_head": 4, "n_positions": 64, **_TOKENS}
_BOTH = {
    "vocab_size": VOCABULARY, "d_model": 128, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256, "max_position_embeddings": 64,
    "decoder_start_token_id": 0, **_TOKENS, "forced_eos_token_id": None,
}  # fmt: skip
_T5 = {
    "vocab_size": VOCABULARY, "d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 2, "num_heads": 4,
    "decoder_start_token_id": 0,
}  # fmt: skip
_VISION = _layers(image_size=PIXELS, patch_size=8, num_labels=CLASSES)
_STAGES = {"image_size": PIXELS, "patch_size": 2, "embed_dim": 32, "depths": [1, 1], "num_heads": [2, 4], "num_labels": CLASSES}
_WAVES = _layers(
    vocab_size=32, conv_dim=(32, 32), conv_stride=(5, 2), conv_kernel=(10, 3), num_feat_extract_layers=2,
    num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2, num_labels=CLASSES, classifier_proj_size=32,
    mask_time_prob=0.0,
)  # fmt: skip

LLAMA = Architecture("Llama", "LlamaForCausalLM", "LlamaConfig", _DECODER, CAUSAL)

ARCHITECTURES = [
    Architecture("GPT-2", "GPT2LMHeadModel", "GPT2Config", _OLD, CAUSAL),
    Architecture("GPT-Neo", "GPTNeoForCausalLM", "GPTNeoConfig", {
        "vocab_size": VOCABULARY, "hidden_size": 128, "num_layers": 2, "num_heads": 4, "max_position_embeddings": 64,
        "attention_types": [[["global", "local"], 1]], **_TOKENS}, CAUSAL),
    Architecture("GPT-NeoX (Pythia)", "GPTNeoXForCausalLM", "GPTNeoXConfig", {**_TEXT, **_TOKENS}, CAUSAL),
    Architecture("GPT-J", "GPTJForCausalLM", "GPTJConfig", {**_OLD, "rotary_dim": 16}, CAUSAL),
    Architecture("OPT", "OPTForCausalLM", "OPTConfig", {
        "vocab_size": VOCABULARY, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 256,
        "max_position_embeddings": 64, "word_embed_proj_dim": 128, **_TOKENS}, CAUSAL),
    Architecture("BLOOM", "BloomForCausalLM", "BloomConfig", {
        "vocab_size": VOCABULARY, "hidden_size": 128, "n_layer": 2, "n_head": 4, **_TOKENS}, CAUSAL),
    Architecture("Falcon", "FalconForCausalLM", "FalconConfig", {
        "vocab_size": VOCABULARY, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, **_TOKENS}, CAUSAL),
    Architecture("MPT", "MptForCausalLM", "MptConfig", {
        "vocab_size": VOCABULARY, "d_model": 128, "n_layers": 2, "n_heads": 4, "max_seq_len": 64}, CAUSAL),
    LLAMA,
    Architecture("Mistral", "MistralForCausalLM", "MistralConfig", _DECODER, CAUSAL),
    Architecture("Mixtral", "MixtralForCausalLM", "MixtralConfig", {**_DECODER, "num_local_experts": 4}, CAUSAL),
    Architecture("Qwen 2", "Qwen2ForCausalLM", "Qwen2Config", _DECODER, CAUSAL),
    Architecture("Qwen 3", "Qwen3ForCausalLM", "Qwen3Config", _HEADS, CAUSAL),
    Architecture("Qwen 3 MoE", "Qwen3MoeForCausalLM", "Qwen3MoeConfig", {**_EXPERTS, "num_experts": 4}, CAUSAL),
    Architecture("Gemma", "GemmaForCausalLM", "GemmaConfig", _HEADS, CAUSAL),
    Architecture("Gemma 2", "Gemma2ForCausalLM", "Gemma2Config", _HEADS, CAUSAL),
    Architecture("Gemma 3", "Gemma3ForCausalLM", "Gemma3TextConfig", _HEADS, CAUSAL),
    Architecture("Phi", "PhiForCausalLM", "PhiConfig", _DECODER, CAUSAL),
    Architecture("Phi 3", "Phi3ForCausalLM", "Phi3Config", _DECODER, CAUSAL),
    Architecture("StableLM", "StableLmForCausalLM", "StableLmConfig", _DECODER, CAUSAL),
    Architecture("StarCoder 2", "Starcoder2ForCausalLM", "Starcoder2Config", _DECODER, CAUSAL),
    Architecture("Cohere", "CohereForCausalLM", "CohereConfig", _DECODER, CAUSAL),
    Architecture("OLMo 2", "Olmo2ForCausalLM", "Olmo2Config", _DECODER, CAUSAL),
    Architecture("Granite", "GraniteForCausalLM", "GraniteConfig", _DECODER, CAUSAL),
    Architecture("SmolLM 3", "SmolLM3ForCausalLM", "SmolLM3Config", _DECODER, CAUSAL),
    Architecture("Nemotron", "NemotronForCausalLM", "NemotronConfig", _DECODER, CAUSAL),
    Architecture("Mamba", "MambaForCausalLM", "MambaConfig", {
        "vocab_size": VOCABULARY, "hidden_size": 128, "state_size": 8, "num_hidden_layers": 2, **_TOKENS}, CAUSAL),
    Architecture("BERT", "BertForSequenceClassification", "BertConfig", {**_TEXT, "num_labels": CLASSES}, TEXT_CLASSES),
    Architecture("RoBERTa", "RobertaForMaskedLM", "RobertaConfig", {**_TEXT, **_TOKENS}, MASKED),
    Architecture("XLM-RoBERTa", "XLMRobertaForMaskedLM", "XLMRobertaConfig", {**_TEXT, **_TOKENS}, MASKED),
    Architecture("DistilBERT", "DistilBertForMaskedLM", "DistilBertConfig", {
        "vocab_size": VOCABULARY, "dim": 128, "n_layers": 2, "n_heads": 4, "hidden_dim": 256,
        "max_position_embeddings": 64}, MASKED),
    Architecture("ALBERT", "AlbertForMaskedLM", "AlbertConfig", {**_TEXT, "embedding_size": 64}, MASKED),
    Architecture("ELECTRA", "ElectraForMaskedLM", "ElectraConfig", {**_TEXT, "embedding_size": 64}, MASKED),
    Architecture("DeBERTa v2", "DebertaV2ForSequenceClassification", "DebertaV2Config", {
        **_TEXT, "num_labels": CLASSES, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}, TEXT_CLASSES),
    Architecture("ModernBERT", "ModernBertForMaskedLM", "ModernBertConfig", {
        **_TEXT, **_TOKENS, "cls_token_id": 0, "sep_token_id": 1}, MASKED),
    Architecture("MPNet", "MPNetForMaskedLM", "MPNetConfig", {**_TEXT, **_TOKENS}, MASKED),
    Architecture("T5", "T5ForConditionalGeneration", "T5Config", _T5, SEQUENCES),
    Architecture("mT5", "MT5ForConditionalGeneration", "MT5Config", _T5, SEQUENCES),
    Architecture("BART", "BartForConditionalGeneration", "BartConfig", _BOTH, SEQUENCES),
    Architecture("Pegasus", "PegasusForConditionalGeneration", "PegasusConfig", _BOTH, SEQUENCES),
    Architecture("Marian", "MarianMTModel", "MarianConfig", _BOTH, SEQUENCES),
    Architecture("Whisper", "WhisperForConditionalGeneration", "WhisperConfig", {
        **_BOTH, "num_mel_bins": 16, "max_source_positions": WORDS, "max_target_positions": 64}, SPECTRA),
    Architecture("ViT", "ViTForImageClassification", "ViTConfig", _VISION, IMAGES),
    Architecture("DeiT", "DeiTForImageClassification", "DeiTConfig", _VISION, IMAGES),
    Architecture("BEiT", "BeitForImageClassification", "BeitConfig", {**_VISION, "vocab_size": VOCABULARY}, IMAGES),
    Architecture("DINOv2", "Dinov2ForImageClassification", "Dinov2Config", _VISION, IMAGES),
    Architecture("CLIP, images", "CLIPVisionModel", "CLIPVisionConfig", _VISION, EMBEDDED_IMAGES),
    Architecture("SigLIP, images", "SiglipVisionModel", "SiglipVisionConfig", _VISION, EMBEDDED_IMAGES),
    Architecture("Swin", "SwinForImageClassification", "SwinConfig", {**_STAGES, "window_size": 4}, IMAGES),
    Architecture("ConvNeXt", "ConvNextForImageClassification", "ConvNextConfig", {
        "hidden_sizes": [16, 32, 64, 128], "depths": [1, 1, 1, 1], "num_labels": CLASSES, "patch_size": 2}, IMAGES),
    Architecture("wav2vec 2", "Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", _WAVES, SOUNDS),
    Architecture("HuBERT", "HubertForSequenceClassification", "HubertConfig", _WAVES, SOUNDS),
]  # fmt: skip
