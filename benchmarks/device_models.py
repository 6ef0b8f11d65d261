"""Models for `benchmarks.device`, of torch's modules alone: each with its batches and a loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.resnet import resnet18
from privet import models

Batch = tuple[Tensor, ...]


@dataclass(frozen=True)
class DeviceCase:
    """A model and its batches; both are made on torch's default device."""

    name: str
    build: Callable[[], nn.Module]
    batch: Callable[[int], Batch]  # number of examples → batch
    examples: int  # that are timed at once
    precisions: tuple[str, ...] = ("bf16", "default", "tf32")


def losses(model: Any, batch: Batch) -> Tensor:
    """Return a loss for each example: of its label, or without labels of its next words."""
    outputs = model(batch[0]).float()
    if len(batch) == 2:
        return F.cross_entropy(outputs, batch[1], reduction="none")
    return F.cross_entropy(outputs[:, :-1].transpose(1, 2), batch[0][:, 1:], reduction="none").mean(1)


def rotate(x: Tensor) -> Tensor:
    """Turn pairs of numbers of each head by angles that grow with the position: (B, heads, T, d) → the same."""
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[-2], device=x.device)[:, None] * 1e4 ** -(torch.arange(half, device=x.device) / half)
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


class Layer(nn.Module):
    """Attention and a feed-forward part: as in GPT-2 and ViT, or with shared keys, rotary positions and gates as in Llama."""

    def __init__(self, width: int, heads: int, keys: int | None = None, inner: int = 0, *, causal: bool = True) -> None:
        super().__init__()
        self.llama, self.causal, self.size = keys is not None, causal, width // heads
        inner, norm, bias = inner or 4 * width, nn.RMSNorm if self.llama else nn.LayerNorm, not self.llama
        self.sizes = heads, keys or heads, keys or heads
        self.before, self.between = norm(width, eps=1e-5), norm(width, eps=1e-5)
        self.inputs = nn.Linear(width, sum(self.sizes) * self.size, bias=bias)
        self.outputs = nn.Linear(width, width, bias=bias)
        self.gate = nn.Linear(width, inner, bias=bias) if self.llama else None
        self.up, self.down = nn.Linear(width, inner, bias=bias), nn.Linear(inner, width, bias=bias)

    def attend(self, x: Tensor) -> Tensor:
        query, key, value = self.inputs(x).unflatten(-1, (-1, self.size)).transpose(1, 2).split(self.sizes, dim=1)
        if self.llama:
            query, key = rotate(query), rotate(key)
            key, value = (each.repeat_interleave(self.sizes[0] // self.sizes[1], dim=1) for each in (key, value))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.outputs(mixed.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.before(x))
        y = self.between(x)
        return x + self.down(F.gelu(self.up(y)) if self.gate is None else F.silu(self.gate(y)) * self.up(y))


class ViT(nn.Module):
    """Patches, a class token and learned positions, layers, and a linear layer on the class token."""

    def __init__(self, pixels: int, patch: int, width: int, depth: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, (pixels // patch) ** 2 + 1, width) * 0.02)
        self.layers = nn.Sequential(*(Layer(width, width // 64, causal=False) for _ in range(depth)), nn.LayerNorm(width))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        words = self.patches(x).flatten(2).transpose(1, 2)
        words = torch.cat([self.token.expand(len(words), -1, -1), words], dim=1) + self.positions
        return self.head(self.layers(words)[:, 0])


class Language(nn.Module):
    """Embedded words, learned positions (up to a length), layers, a norm, and logits by the table of words."""

    def __init__(self, words: int, length: int | None, width: int, layers: Callable[[], nn.Module], depth: int) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width), None if length is None else nn.Embedding(length, width)
        norm = nn.RMSNorm if length is None else nn.LayerNorm
        self.layers = nn.Sequential(*(layers() for _ in range(depth)), norm(width, eps=1e-5))
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words)
        if self.positions is not None:
            x = x + self.positions(torch.arange(words.shape[1], device=words.device))
        return F.linear(self.layers(x), self.words.weight)


class Adapted(nn.Module):
    """A frozen linear layer with a trained product of rank r beside it (LoRA)."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base, self.down = base, nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.normal_(self.up.weight, std=0.02)  # at zero, the other factor would have no gradient

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


def adapt(model: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Freeze a model in a precision, and adapt what attention reads in float32."""
    model.to(dtype).requires_grad_(False)
    for layer in model.modules():
        if isinstance(layer, Layer):
            layer.inputs = Adapted(layer.inputs, rank=8)  # type: ignore[assignment]
    return model


def cnn() -> nn.Module:
    return models.build("tanh-cnn", (1, 28, 28), 10)


def gpt2(words: int, length: int, width: int, depth: int) -> nn.Module:
    return Language(words, length, width, lambda: Layer(width, width // 64), depth)


def llama(words: int, width: int, depth: int, heads: int, keys: int, inner: int) -> nn.Module:
    return Language(words, None, width, lambda: Layer(width, heads, keys, inner), depth)


def rows(count: int, length: int) -> nn.Module:
    return nn.Sequential(nn.Embedding(count, 64), nn.Flatten(), nn.Linear(64 * length, 10))


def images(channels: int, side: int) -> Callable[[int], Batch]:
    return lambda examples: (torch.randn(examples, channels, side, side), torch.randint(10, (examples,)))


def texts(length: int, words: int, *, labels: bool = False) -> Callable[[int], Batch]:
    return lambda examples: (torch.randint(words, (examples, length)), *([torch.randint(10, (examples,))] if labels else ()))


SMALL = (
    DeviceCase("CNN", cnn, images(1, 28), 6),
    DeviceCase("ResNet-18, narrow", lambda: resnet18(widths=(32, 32, 32, 64, 64)), images(3, 32), 4),
    DeviceCase("ViT, small", lambda: ViT(32, 8, 128, 2), images(3, 32), 4),
    DeviceCase("GPT-2, small", lambda: gpt2(500, 64, 128, 2), texts(64, 500), 4),
    DeviceCase("GPT-2 LoRA, small", lambda: adapt(gpt2(500, 64, 128, 2)), texts(64, 500), 4),
    DeviceCase("Llama LoRA, small", lambda: adapt(llama(500, 128, 2, 4, 2, 256)), texts(64, 500), 4),
    DeviceCase("embedding, small", lambda: rows(1_000, 32), texts(32, 1_000, labels=True), 6),
)
LARGE = (
    DeviceCase("CNN", cnn, images(1, 28), 4096),
    DeviceCase("ResNet-18", resnet18, images(3, 32), 1024),
    DeviceCase("ViT-B/16", lambda: ViT(224, 16, 768, 12), images(3, 224), 64),
    DeviceCase("GPT-2 124M", lambda: gpt2(50_257, 512, 768, 12), texts(512, 50_257), 16),
    DeviceCase("GPT-2 124M LoRA", lambda: adapt(gpt2(50_257, 512, 768, 12)), texts(512, 50_257), 16),
    DeviceCase("Llama 1B LoRA", lambda: adapt(llama(128_256, 2048, 16, 32, 8, 8192), torch.bfloat16), texts(512, 128_256), 8,
               ("bf16",)),
    DeviceCase("embedding, 1M rows", lambda: rows(1_000_000, 64), texts(64, 1_000_000, labels=True), 4096),
)  # fmt: skip
