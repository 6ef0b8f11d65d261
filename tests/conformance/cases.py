"""Models shared by all batteries of tests: one line adds a layer or a network to all of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

from privet import models

VOCABULARY = 11
CLASSES = 4


def energy(model, batch):
    """Return a loss for any layer's output: non-linear, so that every output has a different gradient."""
    out = model(*batch)
    out = out.reshape(len(out), -1)
    return ((out - 1).square() * torch.linspace(0.5, 1.5, out.shape[1], dtype=out.dtype)).mean(1)


def cross_entropy(model, batch):
    *inputs, labels = batch
    return F.cross_entropy(model(*inputs), labels, reduction="none")


def next_token(model, batch):
    """Return the mean over an example's positions."""
    tokens, targets = batch
    return F.cross_entropy(model(tokens).transpose(1, 2), targets, reduction="none").mean(1)


@dataclass(frozen=True)
class Case:
    """A model, its batches and its loss; random parameters and contents have fixed seeds."""

    name: str
    module: Callable[[], nn.Module]
    contents: Callable[[int], tuple[Any, ...]]
    loss: Callable[[Any, Any], torch.Tensor] = energy
    smooth: bool = True  # whether inputs 10⁴ times larger or smaller leave the gradient well conditioned
    grouped: bool = False  # whether the model takes data-dependent paths, so that examples are split into groups
    of_one_row: bool = False  # whether a unit of several rows takes the loop

    def model(self, dtype=torch.float32):
        torch.default_generator.manual_seed(1)  # `torch.manual_seed` takes a millisecond
        model = self.module().to(dtype)
        with torch.no_grad():
            for parameter in model.parameters():  # no gradient may vanish because of a special initial value
                parameter.add_(0.1 * torch.randn_like(parameter))
        return model

    def batch(self, examples, dtype=torch.float32, seed=2):
        torch.default_generator.manual_seed(seed)
        return tuple(x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in self.contents(examples))

    def __str__(self):
        return self.name


def numbers(*shape):
    return lambda examples: (torch.randn(examples, *shape),)


def several(*shapes):
    return lambda examples: tuple(torch.randn(examples, *shape) for shape in shapes)


def labelled(*shape, classes=CLASSES):
    return lambda examples: (torch.randn(examples, *shape), torch.randint(classes, (examples,)))


def tokens(*shape):
    return lambda examples: (torch.randint(VOCABULARY, (examples, *shape)),)


def sentences(length):
    return lambda examples: tuple(torch.randint(VOCABULARY, (2, examples, length)))


def frozen(module, *names):
    for name in names:
        module.get_parameter(name).requires_grad_(False)
    return module


class With(nn.Module):
    """Modules, buffers (tensors) and parameters (shapes), and a function of them and the input."""

    def __init__(self, forward, **held):
        super().__init__()
        self.function = forward
        for name, value in held.items():
            if isinstance(value, torch.Tensor):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value if isinstance(value, nn.Module) else nn.Parameter(torch.randn(value)))

    def forward(self, *inputs):
        return self.function(self, *inputs)


def with_shared_parameter():
    """Return two layers that share a parameter under two names."""
    model = With(lambda m, x: m.second(torch.tanh(m.first(x))), first=nn.Linear(6, 6), second=nn.Linear(6, 6))
    model.second.weight = model.first.weight
    return model


class Transformer(nn.Module):
    """A hand-written pre-norm decoder block, with its head tied to the embedding."""

    def __init__(self, width=8, length=6):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, width)
        self.places = nn.Parameter(torch.randn(1, length, width))
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        h = self.table(x) + self.places
        q, k, v = self.qkv(self.norm1(h)).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        hidden = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
        h = h + self.out(torch.softmax(scores.masked_fill(hidden, -torch.inf), -1) @ v)
        h = h + self.down(F.gelu(self.up(self.norm2(h))))
        return F.linear(self.norm3(h), self.table.weight)


def with_statistics(module):
    """Return the module in evaluation mode, with its own running statistics."""
    for name, buffer in module.named_buffers():
        if buffer.is_floating_point():
            buffer.copy_(torch.randn_like(buffer) if "mean" in name else 0.5 + torch.rand_like(buffer))
    return module.eval()


def time_first(layer):
    return With(lambda m, x: m.a(x.transpose(0, 1)).transpose(0, 1), a=layer)


def convolution(name, layer, *shape, **options):
    kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[len(shape) - 2]
    return Case(f"conv{len(shape) - 1}d {name}", lambda: kind(*layer, **options), numbers(*shape))


def transposed(name, layer, *shape, **options):
    kind = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[len(shape) - 2]
    return Case(f"transposed conv{len(shape) - 1}d {name}", lambda: kind(*layer, **options), numbers(*shape))


def residual_block(inputs, outputs, stride):
    """Return two convolutions with group norm, and a 1×1 shortcut."""
    return With(
        lambda m, x: torch.tanh(m.shortcut(x) + m.norm2(m.second(torch.tanh(m.norm1(m.first(x)))))),
        first=nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
        second=nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        shortcut=nn.Conv2d(inputs, outputs, 1, stride, bias=False),
        norm1=nn.GroupNorm(2, outputs), norm2=nn.GroupNorm(2, outputs),
    )  # fmt: skip


def resnet():
    blocks = [nn.Conv2d(3, 4, 3, padding=1), residual_block(4, 6, 1), residual_block(6, 16, 2)]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, CLASSES))


def u_net():
    """Return a strided convolution down and a transposed one up, with a skip connection at the finer resolution."""

    def forward(m, x):
        fine = torch.tanh(m.enter(x))
        coarse = torch.tanh(m.bottom(torch.tanh(m.down(fine))))
        return m.leave(torch.cat([fine, torch.tanh(m.up(coarse))], 1))

    return With(
        forward, enter=nn.Conv2d(2, 4, 3, padding="same"), down=nn.Conv2d(4, 6, 3, stride=2, padding=1),
        bottom=nn.Conv2d(6, 6, 3, padding=1, groups=6), up=nn.ConvTranspose2d(6, 4, 2, stride=2), leave=nn.Conv2d(8, 1, 1),
    )  # fmt: skip


LINEAR = [
    Case("linear", lambda: nn.Linear(7, 4), numbers(7)),
    Case("linear without bias", lambda: nn.Linear(7, 4, bias=False), numbers(7)),
    Case("linear, few positions", lambda: nn.Linear(14, 9), numbers(2, 14)),
    Case("linear, few positions, no bias", lambda: nn.Linear(14, 9, bias=False), numbers(2, 14)),
    Case("linear, one position", lambda: nn.Linear(14, 9), numbers(1, 14)),
    Case("linear, output written to", lambda: With(
        lambda m, x: F.linear(torch.tanh_(m.a(x)), m.b.weight)[:, 1:].mul_(2) + m.a(x)[:, :4],
        a=nn.Linear(7, 6), b=nn.Linear(6, 5)), numbers(7)),
    Case("linear, mapped over rows", lambda: With(
        lambda m, x: torch.vmap(lambda row, weight: weight @ m.a(row), (0, None), 1)(x, m.b.weight).t(),
        a=nn.Linear(7, 6), b=nn.Linear(6, 5)), numbers(7), of_one_row=True),
    Case("linear, many positions", lambda: nn.Linear(4, 3), numbers(11, 4)),
    Case("linear, many positions, no bias", lambda: nn.Linear(4, 3, bias=False), numbers(11, 4)),
    Case("linear on 4-D, few positions", lambda: nn.Linear(14, 9), numbers(2, 1, 14)),
    Case("linear on 4-D, many positions", lambda: nn.Linear(3, 9), numbers(3, 4, 3)),
    Case("linear to one number", lambda: nn.Linear(7, 1), numbers(7)),
    Case("linear, named arguments", lambda: With(
        lambda m, x: F.linear(input=x, weight=m.a.weight), a=nn.Linear(7, 4)), numbers(7)),
    *(Case(f"linear with a bias of shape {shape}", lambda shape=shape: With(
        lambda m, x: F.linear(x, m.weight, m.bias), weight=(5, 3), bias=shape), numbers(3)) for shape in ((), (1,), (1, 5))),
    Case("linear, frozen weight", lambda: frozen(nn.Linear(7, 4), "weight"), numbers(7)),
    Case("linear, frozen bias", lambda: frozen(nn.Linear(7, 4), "bias"), numbers(7)),
]  # fmt: skip

CONVOLUTION = [
    convolution("plain", (3, 4, 3), 3, 9),
    convolution("stride", (3, 4, 3), 3, 10, stride=2),
    convolution("padding", (3, 4, 3), 3, 9, padding=2),
    convolution("same", (3, 4, 4), 3, 9, padding="same", dilation=2),
    convolution("valid", (3, 4, 3), 3, 9, padding="valid"),
    convolution("circular", (3, 4, 3), 3, 9, padding=1, padding_mode="circular"),
    convolution("groups", (4, 6, 3), 4, 9, groups=2, dilation=2),
    convolution("one position", (3, 9, 6), 3, 6),
    convolution("plain", (2, 3, 3), 2, 7, 6),
    convolution("without bias", (2, 3, 3), 2, 7, 6, bias=False),
    convolution("1×1", (3, 4, 1), 3, 4, 4),
    convolution("stride that leaves a rest", (2, 3, 3), 2, 8, 9, stride=(2, 3)),
    convolution("padding", (2, 3, (3, 2)), 2, 7, 6, padding=(2, 1)),
    convolution("same", (2, 3, (4, 3)), 2, 7, 6, padding="same"),
    convolution("same, dilated", (2, 3, (2, 3)), 2, 7, 8, padding="same", dilation=(3, 2)),
    convolution("valid", (2, 3, 3), 2, 7, 6, padding="valid"),
    convolution("circular", (2, 3, 3), 2, 7, 6, padding=1, padding_mode="circular"),
    convolution("reflect", (2, 3, 3), 2, 7, 6, padding=(2, 1), padding_mode="reflect"),
    convolution("replicate", (2, 3, 3), 2, 7, 6, padding="same", padding_mode="replicate"),
    convolution("dilation", (2, 3, 3), 2, 9, 8, dilation=(2, 1), stride=2, padding=1),
    convolution("groups", (4, 6, 3), 4, 6, 7, groups=2, padding=1),
    convolution("depthwise", (3, 3, 3), 3, 6, 7, groups=3),
    convolution("depthwise, two each", (3, 6, 3), 3, 6, 7, groups=3, stride=2, padding=1),
    convolution("few positions, wide", (8, 12, 3), 8, 4, 4),
    convolution("few positions, wide, padding", (8, 12, 3), 8, 4, 4, padding=1),
    convolution("few positions, wide, groups", (16, 32, 3), 16, 4, 4, padding=1, groups=2),
    convolution("1×1, stride", (3, 4, 1), 3, 5, 4, stride=2),
    convolution("1×1, groups", (4, 6, 1), 4, 3, 4, groups=2),
    convolution("1×1, padding", (3, 4, 1), 3, 4, 3, padding=1),
    convolution("plain", (2, 3, 3), 2, 4, 5, 4),
    convolution("stride and padding", (2, 3, (3, 2, 1)), 2, 5, 4, 4, stride=(2, 1, 3), padding=(1, 1, 0)),
    convolution("same, dilated", (2, 3, 2), 2, 4, 4, 3, padding="same", dilation=(1, 2, 3)),
    convolution("groups", (4, 4, 2), 4, 3, 4, 3, groups=2),
    convolution("depthwise", (3, 3, 2), 3, 4, 3, 3, groups=3, bias=False),
    convolution("few positions, wide", (6, 8, 3), 6, 2, 3, 2, padding=1),
    convolution("replicate", (2, 3, 3), 2, 4, 4, 3, padding=1, padding_mode="replicate"),
    transposed("plain", (3, 4, 3), 3, 7),
    transposed("stride", (3, 4, 3), 3, 5, stride=2, padding=1, output_padding=1),
    transposed("groups", (4, 6, 3), 4, 5, groups=2, dilation=2),
    transposed("plain", (3, 4, 3), 3, 4, 5),
    transposed("without bias", (3, 4, 3), 3, 4, 5, bias=False),
    transposed("stride", (3, 2, (4, 3)), 3, 4, 5, stride=(2, 3), padding=(1, 2), output_padding=(1, 2)),
    transposed("groups", (4, 6, 3), 4, 4, 3, groups=2, stride=2),
    transposed("depthwise", (3, 3, 3), 3, 4, 3, groups=3, padding=1),
    transposed("dilation", (3, 2, 3), 3, 4, 3, dilation=(2, 1), stride=(1, 2), padding=2),
    transposed("one position", (6, 4, 3), 6, 1, 1),
    transposed("square", (3, 3, 3), 3, 4, 5, padding=1),
    transposed("plain", (2, 3, 2), 2, 3, 4, 3),
    transposed("stride", (2, 3, 3), 2, 3, 2, 3, stride=2, padding=1, output_padding=(0, 1, 1)),
    Case("conv2d channels last", lambda: With(lambda m, x: m.b(torch.tanh(m.a(x.contiguous(memory_format=torch.channels_last)))),
        a=nn.Conv2d(3, 4, 3, padding=1), b=nn.Conv2d(4, 3, 3)), numbers(3, 6, 7), smooth=False),
    Case("conv3d channels last", lambda: With(
        lambda m, x: m.a(x.contiguous(memory_format=torch.channels_last_3d)), a=nn.Conv3d(3, 4, 2)), numbers(3, 4, 3, 4)),
    transposed("padded by whole strides", (2, 3, 3), 2, 5, 5, dilation=2, output_padding=1),  # it is expanded
    Case("transposed conv2d frozen weight", lambda: frozen(nn.ConvTranspose2d(2, 3, 3), "weight"), numbers(2, 4, 5)),
    Case("transposed conv2d, named arguments", lambda: With(
        lambda m, x: F.conv_transpose2d(input=x, weight=m.a.weight, stride=2, dilation=2), a=nn.ConvTranspose2d(2, 3, 3)),
        numbers(2, 4, 5)),
    Case("conv2d frozen weight", lambda: frozen(nn.Conv2d(2, 3, 3), "weight"), numbers(2, 7, 6)),
    Case("conv2d frozen bias", lambda: frozen(nn.Conv2d(2, 3, 3), "bias"), numbers(2, 7, 6)),
    Case("conv2d, named arguments", lambda: With(
        lambda m, x: F.conv2d(input=x, weight=m.a.weight, padding=1), a=nn.Conv2d(2, 3, 3)), numbers(2, 7, 6)),
    Case("conv2d called twice", lambda: With(
        lambda m, x: m.a(torch.tanh(m.a(x))), a=nn.Conv2d(3, 3, 3, padding=1)), numbers(3, 6, 7), smooth=False),
]  # fmt: skip

EMBEDDING = [
    Case("embedding", lambda: nn.Embedding(VOCABULARY, 5), tokens(9)),
    Case("embedding of one index", lambda: nn.Embedding(VOCABULARY, 5), tokens()),
    Case("embedding of 2-D indices", lambda: nn.Embedding(VOCABULARY, 5), tokens(3, 4)),
    Case("embedding with padding index", lambda: nn.Embedding(VOCABULARY, 5, padding_idx=3), tokens(30)),
    Case("embedding with negative padding index", lambda: nn.Embedding(VOCABULARY, 5, padding_idx=-2), tokens(30)),
    Case("embedding of repeated tokens", lambda: nn.Embedding(VOCABULARY, 5), lambda n: (torch.full((n, 7), 3),)),
    Case("embedding, shared position ids", lambda: With(lambda m, x: m.tokens(x) + m.positions(m.order),
        tokens=nn.Embedding(VOCABULARY, 5), positions=nn.Embedding(9, 5), order=torch.arange(7)[None]), tokens(7)),
    Case("embedding, negative padding index in a call", lambda: With(
        lambda m, x: F.embedding(x, m.a.weight, padding_idx=-2), a=nn.Embedding(VOCABULARY, 5)), tokens(30)),
    Case("indexed table", lambda: With(lambda m, x: m.table[x - 5], table=(VOCABULARY, 5)), tokens(9)),
    Case("embedding, named arguments", lambda: With(
        lambda m, x: F.embedding(input=x, weight=m.a.weight), a=nn.Embedding(VOCABULARY, 5)), tokens(9)),
    Case("mean of an embedding", lambda: With(lambda m, x: m.a(x).mean(1), a=nn.Embedding(VOCABULARY, 5)), tokens(9)),
    Case("mean of an embedding with padding index", lambda: With(
        lambda m, x: torch.mean(m.a(x), dim=1), a=nn.Embedding(VOCABULARY, 5, padding_idx=3)), tokens(30)),
    Case("sum of an embedding of 2-D indices", lambda: With(
        lambda m, x: m.a(x).sum((1, 2)), a=nn.Embedding(VOCABULARY, 5)), tokens(3, 4)),
    Case("mean of a time-major embedding", lambda: With(
        lambda m, x: m.a(x.t()).mean(0), a=nn.Embedding(VOCABULARY, 5)), tokens(9)),
    Case("channels-first embedding", lambda: With(
        lambda m, x: torch.tanh(m.c(m.a(x).transpose(1, 2))), a=nn.Embedding(VOCABULARY, 5), c=nn.Conv1d(5, 4, 3)), tokens(9)),
    Case("tied table with padding index", lambda: With(
        lambda m, x: F.linear(torch.tanh(m.e(x)), m.e.weight), e=nn.Embedding(VOCABULARY, 5, padding_idx=3)), tokens(9)),
    Case("embedding with padding index, called twice", lambda: With(
        lambda m, x: m.e(x).mean(1) * m.e(x.flip(1))[:, 0], e=nn.Embedding(VOCABULARY, 5, padding_idx=3)), tokens(9)),
]  # fmt: skip

BAGS = [
    *(Case(f"embedding bag, {mode}", lambda mode=mode: nn.EmbeddingBag(VOCABULARY, 5, mode=mode), tokens(9))
      for mode in ("sum", "mean", "max")),
    *(Case(f"embedding bag with padding, {mode}", lambda mode=mode: nn.EmbeddingBag(VOCABULARY, 5, mode=mode, padding_idx=3),
           tokens(30)) for mode in ("sum", "mean", "max")),
    Case("embedding bag of nothing but padding", lambda: nn.EmbeddingBag(VOCABULARY, 5, padding_idx=3),
         lambda n: (torch.where(torch.arange(n)[:, None] == 1, 3, torch.randint(VOCABULARY, (n, 4))),)),
    Case("embedding bag of two tokens and padding, max", lambda: nn.EmbeddingBag(VOCABULARY, 5, mode="max", padding_idx=3),
         lambda n: (torch.where(torch.arange(3) == 0, 3, torch.randint(VOCABULARY, (n, 3))),)),
    Case("embedding bag of nothing but padding, max", lambda: nn.EmbeddingBag(VOCABULARY, 5, mode="max", padding_idx=3),
         lambda n: (torch.where(torch.arange(n)[:, None] == 1, 3, torch.randint(VOCABULARY, (n, 4))),)),
    Case("weighted embedding bag", lambda: nn.EmbeddingBag(VOCABULARY, 5, mode="sum"),
         lambda n: (torch.randint(VOCABULARY, (n, 9)), torch.randn(n, 9)),
         lambda m, b: energy(lambda x, w: m(x, per_sample_weights=w), b)),
    Case("embedding bag, negative padding index in a call", lambda: With(
        lambda m, x: F.embedding_bag(x, m.a.weight, mode="sum", padding_idx=-2), a=nn.EmbeddingBag(VOCABULARY, 5)), tokens(30)),
    Case("ragged weighted embedding bags", lambda: With(
        lambda m, x, y, w: m.a(x[y], torch.cat([torch.zeros(1, dtype=torch.long), y.sum(1).cumsum(0)[:-1]]), w[y]),
        a=nn.EmbeddingBag(VOCABULARY, 5, mode="sum")),
        lambda n: (torch.randint(VOCABULARY, (n, 7)), torch.rand(n, 7) < 0.7, torch.randn(n, 7)), grouped=True),
    Case("embedding bags by offsets", lambda: With(
        lambda m, x: m.a(x.flatten(), torch.arange(0, x.numel(), x.shape[1])), a=nn.EmbeddingBag(VOCABULARY, 5)), tokens(7)),
    Case("ragged embedding bags",
        lambda: With(lambda m, x, y: m.a(x[y], torch.cat([torch.zeros(1, dtype=torch.long), y.sum(1).cumsum(0)[:-1]])),
        a=nn.EmbeddingBag(VOCABULARY, 5)), lambda n: (torch.randint(VOCABULARY, (n, 7)), torch.rand(n, 7) < 0.7), grouped=True),
]  # fmt: skip

NORMALISATION = [
    Case("layer norm", lambda: nn.LayerNorm(6), numbers(6)),
    Case("layer norm over positions", lambda: nn.LayerNorm(6), numbers(3, 6)),
    Case("layer norm without bias", lambda: nn.LayerNorm(6, bias=False), numbers(3, 6)),
    Case("layer norm over two dimensions", lambda: nn.LayerNorm((3, 6)), numbers(2, 3, 6)),
    Case("layer norm, frozen weight", lambda: frozen(nn.LayerNorm(6), "weight"), numbers(3, 6)),
    Case("layer norm, frozen bias", lambda: frozen(nn.LayerNorm(6), "bias"), numbers(3, 6)),
    Case("layer norm, named arguments", lambda: With(
        lambda m, x: F.layer_norm(input=x, normalized_shape=(6,), weight=m.a.weight), a=nn.LayerNorm(6)), numbers(3, 6)),
    Case("layer norm, bias alone", lambda: With(
        lambda m, x: F.layer_norm(x, (6,), bias=m.a.bias), a=nn.LayerNorm(6)), numbers(3, 6)),
    Case("rms norm", lambda: nn.RMSNorm(6, eps=1e-6), numbers(3, 6)),
    Case("rms norm over two dimensions", lambda: nn.RMSNorm((3, 6), eps=1e-6), numbers(2, 3, 6)),
    Case("group norm", lambda: nn.GroupNorm(2, 6), numbers(6, 4, 3)),
    Case("group norm, channels last", lambda: With(lambda m, x: m.a(x.mT).mT, a=nn.GroupNorm(2, 6)), numbers(4, 6)),
    Case("group norm of features", lambda: nn.GroupNorm(2, 6), numbers(6)),
    Case("instance norm 1d", lambda: nn.InstanceNorm1d(3, affine=True), numbers(3, 8)),
    Case("instance norm 2d", lambda: nn.InstanceNorm2d(3, affine=True), numbers(3, 4, 5)),
    Case("instance norm 3d", lambda: nn.InstanceNorm3d(3, affine=True), numbers(3, 2, 3, 2)),
    Case("instance norm, running statistics", lambda: with_statistics(
        nn.InstanceNorm2d(3, affine=True, track_running_stats=True)), numbers(3, 4, 5)),
    Case("group norm of volumes", lambda: nn.GroupNorm(3, 6), numbers(6, 2, 3, 2)),
    Case("group norm, frozen weight", lambda: frozen(nn.GroupNorm(2, 6), "weight"), numbers(6, 4)),
    Case("group norm, frozen bias", lambda: frozen(nn.GroupNorm(2, 6), "bias"), numbers(6, 4)),
    Case("group norm without bias", lambda: With(
        lambda m, x: F.group_norm(x, 2, m.a.weight), a=nn.GroupNorm(2, 6)), numbers(6, 4)),
    Case("layer norm with a computed scale", lambda: With(
        lambda m, x: F.layer_norm(x, (6,), m.a.weight.exp(), m.a.bias), a=nn.LayerNorm(6)), numbers(6), smooth=False),
    Case("group norm in the middle", lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Conv2d(4, 2, 2)), numbers(2, 6, 5), smooth=False),
    Case("layer norm, time first", lambda: time_first(nn.LayerNorm(6)), numbers(3, 6)),
    Case("layer norm over two dimensions, time first", lambda: time_first(nn.LayerNorm((2, 6))), numbers(3, 2, 6)),
    Case("layer norm of a grid, time first", lambda: time_first(nn.LayerNorm(6)), numbers(3, 2, 6)),
    Case("rms norm, time first", lambda: time_first(nn.RMSNorm(6, eps=1e-6)), numbers(3, 6)),
    Case("layer norm, as many positions as examples, time first", lambda: time_first(nn.LayerNorm(6)), numbers(5, 6)),
    Case("rms norm, as many positions as examples, time first", lambda: time_first(nn.RMSNorm(6, eps=1e-6)), numbers(5, 6)),
    Case("layer norm with eps", lambda: nn.LayerNorm(6, eps=0.3), numbers(3, 6)),
    Case("rms norm with eps", lambda: nn.RMSNorm(6, eps=0.3), numbers(3, 6)),
    Case("group norm with eps", lambda: nn.GroupNorm(2, 6, eps=0.3), numbers(6, 4)),
    Case("instance norm with eps", lambda: nn.InstanceNorm1d(3, affine=True, eps=0.3), numbers(3, 8)),
    Case("batch norm in evaluation mode with eps", lambda: with_statistics(nn.BatchNorm1d(6, eps=0.3)), numbers(6)),
    Case("batch norm of features in evaluation mode", lambda: with_statistics(nn.BatchNorm1d(6)), numbers(6)),
    Case("batch norm in evaluation mode", lambda: with_statistics(nn.BatchNorm2d(3)), numbers(3, 4, 5)),
    Case("batch norm in evaluation mode, frozen weight", lambda: frozen(with_statistics(nn.BatchNorm1d(3)), "weight"),
         numbers(3, 4)),
]  # fmt: skip

ELEMENTWISE = [
    Case("scale and shift", lambda: With(lambda m, x: x * m.scale + m.shift, scale=(6,), shift=(6,)), numbers(3, 6)),
    Case("scale from the left", lambda: With(lambda m, x: m.shift - m.scale * x, scale=(6,), shift=(6,)), numbers(3, 6)),
    Case("scale in place", lambda: With(lambda m, x: x.clone().mul_(m.scale), scale=(6,)), numbers(3, 6)),
    Case("division", lambda: With(lambda m, x: x / m.scale + torch.add(x, m.shift, alpha=2), scale=(6,), shift=(6,)), numbers(6)),
    Case("scale per channel", lambda: With(lambda m, x: x * m.scale, scale=(3, 1, 1)), numbers(3, 4, 2)),
    Case("scalar", lambda: With(lambda m, x: torch.tanh(x * m.scale) + m.shift, scale=(), shift=()), numbers(6), smooth=False),
    Case("scalar times one number", lambda: With(lambda m, x: x * m.scale, scale=()), numbers()),
    Case("one-entry parameter", lambda: With(lambda m, x: x * m.scale, scale=(1,)), numbers()),
    Case("position table", lambda: With(lambda m, x: torch.tanh(x + m.table), table=(1, 4, 6)), numbers(4, 6), smooth=False),
    Case("position table, time first", lambda: With(
        lambda m, x: torch.tanh(x.transpose(0, 1) + m.table).transpose(0, 1), table=(4, 1, 6)), numbers(4, 6), smooth=False),
    Case("scale of flattened positions", lambda: With(
        lambda m, x: (x.reshape(-1, 6) * m.scale).view(len(x), -1), scale=(6,)), numbers(3, 6)),
    Case("position table, 2-D", lambda: With(lambda m, x: torch.tanh(x + m.table), table=(4, 6)), numbers(4, 6), smooth=False),
    Case("class token", lambda: With(
        lambda m, x: torch.cat([m.token.expand(len(x), -1, -1), x], 1) * m.scale, token=(1, 1, 6), scale=(6,)), numbers(3, 6)),
    Case("broadcast input", lambda: With(lambda m, x: x[:, None] * m.table, table=(4, 6)), numbers(6)),
]  # fmt: skip

TIED = [
    Case("module called twice", lambda: With(lambda m, x: m.a(torch.tanh(m.a(x))), a=nn.Linear(6, 6)), numbers(6), smooth=False),
    Case("module called three times", lambda: With(
        lambda m, x: m.a(torch.tanh(m.a(torch.tanh(m.a(x))))), a=nn.Linear(6, 6)), numbers(3, 6), smooth=False),
    Case("module called on different lengths", lambda: With(
        lambda m, x: m.a(x[:, :2]).sum(1) * m.a(x).sum(1), a=nn.Linear(9, 8)), numbers(7, 9)),
    Case("shared parameter", with_shared_parameter, numbers(6), smooth=False),
    Case("autoencoder with tied weights", lambda: With(lambda m, x: torch.tanh(m.a(x)) * m.b(x) + F.linear(x, m.a.weight),
        a=nn.Linear(6, 5), b=nn.Linear(6, 5)), numbers(6), smooth=False),
    Case("tied head", lambda: With(lambda m, x: F.linear(torch.tanh(m.a(m.e(x))), m.e.weight),
        e=nn.Embedding(VOCABULARY, 5), a=nn.Linear(5, 5)), sentences(7), next_token),
    Case("norm called twice", lambda: With(lambda m, x: m.a(torch.exp(m.a(x))), a=nn.LayerNorm(6)), numbers(6), smooth=False),
]  # fmt: skip


def _summed_positions(model, batch):
    """The head sees (B·T, d); losses of an example's positions are summed afterwards."""
    x, labels = batch
    flat = F.cross_entropy(model(x.flatten(0, 1)), labels.flatten(), reduction="none")
    return flat.view(labels.shape).sum(1)


def with_attention(*arguments, forward=None, **options):
    chosen = forward or (lambda m, x: m.a(x, x, x, need_weights=False)[0])
    return lambda: With(chosen, a=nn.MultiheadAttention(*arguments, **options))


def with_broadcast_biases(layer):
    layer.in_proj_bias, layer.out_proj.bias = nn.Parameter(torch.randn(1, 18)), nn.Parameter(torch.randn(1))
    return layer


def _time_major(function):
    """Run a function of (T, B, …) on (B, T, …)."""
    return lambda m, x: function(m, x.transpose(0, 1)).transpose(0, 1)


PRODUCTS = [
    Case("x @ W", lambda: With(lambda m, x: x @ m.weight, weight=(6, 4)), numbers(6)),
    Case("x @ W, many positions", lambda: With(lambda m, x: x @ m.weight, weight=(6, 4)), numbers(7, 6)),
    Case("x @ W, few positions, wide", lambda: With(lambda m, x: x @ m.weight, weight=(14, 9)), numbers(2, 14)),
    Case("x @ v", lambda: With(lambda m, x: x @ m.weight, weight=(6,)), numbers(3, 6)),
    Case("W @ x", lambda: With(lambda m, x: m.weight @ x, weight=(4, 3)), numbers(3, 6)),
    Case("x @ Wᵀ", lambda: With(lambda m, x: x @ m.weight.t(), weight=(4, 6)), numbers(3, 6)),
    # Square weights, so that a wrong transposition keeps all shapes.
    Case("square x @ W twice", lambda: With(
        lambda m, x: torch.tanh(x @ m.first) @ m.second, first=(6, 6), second=(6, 6)), numbers(2, 6), smooth=False),
    Case("square W @ x", lambda: With(lambda m, x: m.weight @ x, weight=(3, 3)), numbers(3, 6)),
    Case("square x @ Wᵀ", lambda: With(lambda m, x: x @ m.weight.t(), weight=(14, 14)), numbers(2, 14)),
    Case("x @ W and x @ W again", lambda: With(lambda m, x: (x @ m.weight) * torch.tanh(x @ m.weight), weight=(14, 9)),
         numbers(2, 14), smooth=False),
    Case("W and its transpose", lambda: With(lambda m, x: torch.tanh(x @ m.weight) @ m.weight.t(), weight=(14, 9)),
         numbers(2, 14), smooth=False),
    Case("square x @ W, reversed", lambda: With(lambda m, x: m.weight.__rmatmul__(x), weight=(6, 6)), numbers(6, 6)),
    Case("addmm of flattened positions", lambda: With(
        lambda m, x: torch.addmm(m.bias, x.view(-1, x.shape[-1]), m.weight).view(*x.shape[:-1], -1), weight=(6, 4), bias=(4,)),
        numbers(3, 6)),
    Case("addmm, scaled", lambda: With(
        lambda m, x: torch.addmm(m.bias, x, m.weight, alpha=0.5), weight=(6, 4), bias=(4,)), numbers(6)),
    Case("addmm, scaled bias", lambda: With(
        lambda m, x: torch.addmm(m.bias, x, m.weight, beta=0.5), weight=(6, 4), bias=(4,)), numbers(6)),
    *(Case(f"addmm with a bias of shape {shape}", lambda shape=shape: With(
        lambda m, x: torch.addmm(m.bias, x, m.weight), weight=(3, 5), bias=shape), numbers(3)) for shape in ((), (1,), (1, 5))),
    Case("einsum", lambda: With(lambda m, x: torch.einsum("btd,dp->btp", x, m.weight), weight=(6, 4)), numbers(3, 6)),
    Case("einsum into heads", lambda: With(
        lambda m, x: torch.einsum("btd,dhk->bhtk", x, m.weight), weight=(6, 2, 3)), numbers(3, 6)),
    Case("einsum out of heads", lambda: With(
        lambda m, x: torch.einsum("hkd,bhtk->btd", m.weight, x), weight=(2, 3, 6)), numbers(2, 3, 3)),
    Case("einsum, one weight per head", lambda: With(
        lambda m, x: torch.einsum("bhtd,hdp->bhtp", x, m.weight), weight=(2, 6, 4)), numbers(2, 3, 6)),
    Case("batched matmul", lambda: With(lambda m, x: torch.matmul(x, m.weight), weight=(2, 6, 4)), numbers(2, 3, 6)),
    Case("bilinear", lambda: nn.Bilinear(3, 4, 5), several((3,), (4,))),
    Case("bilinear over positions", lambda: nn.Bilinear(3, 4, 5), several((6, 3), (6, 4))),
    Case("bilinear without bias", lambda: nn.Bilinear(3, 4, 5, bias=False), several((3,), (4,))),
    Case("time-major linear", lambda: With(_time_major(lambda m, x: m.a(x)), a=nn.Linear(14, 9)), numbers(2, 14)),
    Case("flattened positions", lambda: With(lambda m, x: m.b(torch.relu(m.a(x.reshape(-1, 6)))).view(len(x), -1),
        a=nn.Linear(6, 5), b=nn.Linear(5, 4)), numbers(3, 6), smooth=False),
    Case("flattened time-major positions", lambda: With(
        lambda m, x: m.b(m.a(x.transpose(0, 1).reshape(-1, 6)).tanh()).view(3, len(x), -1).transpose(0, 1),
        a=nn.Linear(6, 5), b=nn.Linear(5, 4)), numbers(3, 6), smooth=False),
    Case("as many positions as examples", lambda: With(
        lambda m, x: m.b(m.a(x).tanh()), a=nn.Linear(6, 5), b=nn.Linear(5, 4)), numbers(5, 6), smooth=False),
    Case("as many time-major positions as examples", lambda: With(
        _time_major(lambda m, x: m.b(m.a(x).tanh())), a=nn.Linear(6, 5), b=nn.Linear(5, 4)), numbers(5, 6), smooth=False),
    Case("losses of flattened positions", lambda: nn.Linear(6, CLASSES),
         lambda n: (torch.randn(n, 3, 6), torch.randint(CLASSES, (n, 3))), _summed_positions),
]  # fmt: skip


def _filled(m, x):
    whole = torch.zeros(len(x), 4, dtype=x.dtype)
    whole[:, 1:3] = m.a(x)
    return m.b(torch.tanh(whole)) + whole[:, :1]


DERIVED = [
    Case("view of a weight", lambda: With(lambda m, x: F.linear(x, m.a.weight[:3]), a=nn.Linear(6, 4)), numbers(6)),
    Case("columns of a weight", lambda: With(lambda m, x: F.linear(x, m.a.weight[:, :6]), a=nn.Linear(9, 4)), numbers(2, 6)),
    Case("disjoint parts of a weight", lambda: With(
        lambda m, x: F.linear(x, m.w[:9]) * F.linear(x, m.w[9:]), w=(18, 14)), numbers(2, 14), smooth=False),
    Case("the same part of a weight twice", lambda: With(
        lambda m, x: F.linear(x, m.w[:9]) * F.linear(torch.tanh(x), m.w[:9]), w=(18, 14)), numbers(2, 14), smooth=False),
    Case("weight of equal rows", lambda: With(lambda m, x: F.linear(x, m.row.expand(4, 6)), row=(1, 6)), numbers(2, 6)),
    Case("overlapping parts of a weight", lambda: With(
        lambda m, x: F.linear(x, m.w[:9]) * F.linear(x, m.w[6:15]), w=(18, 14)), numbers(2, 14), smooth=False),
    Case("weight normalisation by hand", lambda: With(
        lambda m, x: x @ (m.direction / m.direction.norm(dim=0) * m.size), direction=(6, 4), size=(4,)), numbers(6)),
    Case("weight norm", lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 4)), numbers(3, 6)),
    Case("weight norm of a convolution", lambda: nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 4, 3)), numbers(3, 8)),
    Case("spectral norm", lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(6, 4)).eval(), numbers(3, 6)),
    Case("merged low-rank adapter", lambda: With(
        lambda m, x: F.linear(x, m.a.weight + m.c.weight @ m.b.weight), a=frozen(nn.Linear(6, 5, bias=False), "weight"),
        b=nn.Linear(6, 2, bias=False), c=nn.Linear(2, 5, bias=False)), numbers(3, 6)),
    Case("low-rank adapter", lambda: With(
        lambda m, x: m.a(x) + 0.5 * m.c(m.b(x)), a=frozen(nn.Linear(6, 5, bias=False), "weight"),
        b=nn.Linear(6, 2, bias=False), c=nn.Linear(2, 5, bias=False)), numbers(3, 6)),
    Case("table of relative positions", lambda: With(
        lambda m, x: x + m.a((torch.arange(4)[:, None] - torch.arange(4)).abs()).permute(2, 0, 1), a=nn.Embedding(4, 3)),
        numbers(3, 4, 4)),
    Case("learned temperature", lambda: With(lambda m, x: x * m.logit_scale.exp(), logit_scale=()), numbers(6), smooth=False),
    Case("regularised loss", lambda: nn.Linear(6, 4), numbers(6),
         lambda m, batch: energy(m, batch) + m.weight.square().sum(), smooth=False),
    Case("zeros that are filled in", lambda: With(_filled, a=nn.Linear(6, 2), b=nn.Linear(4, 3)), numbers(6), smooth=False),
    Case("zeros that are filled in and scaled", lambda: With(lambda m, x: _filled(m, x) * m.b.weight.sum(),
        a=nn.Linear(6, 2), b=nn.Linear(4, 3)), numbers(6), smooth=False),
    Case("hidden state that starts at zero", lambda: With(
        lambda m, x: m.b(m.a(x[:, 0]) + m.c(x.new_zeros(len(x), 5))).tanh() + m.c(torch.zeros(len(x), 5).to(x.dtype)).tanh(),
        a=nn.Linear(6, 5), b=nn.Linear(5, 5), c=nn.Linear(5, 5)), numbers(3, 6), smooth=False),
]  # fmt: skip

ATTENTION = [
    Case("attention", with_attention(6, 2, batch_first=True), numbers(3, 6), smooth=False),
    Case("attention, time-major", with_attention(
        6, 2, forward=_time_major(lambda m, x: m.a(x, x, x, need_weights=False)[0])), numbers(3, 6), smooth=False),
    Case("attention with weights", with_attention(6, 2, batch_first=True,
        forward=lambda m, x: torch.cat([y.flatten(1) for y in m.a(x, x, x)], 1)), numbers(3, 6), smooth=False),
    Case("attention without bias", with_attention(6, 2, bias=False, batch_first=True), numbers(3, 6), smooth=False),
    Case("attention from a query to a memory", with_attention(6, 2, batch_first=True,
        forward=lambda m, x, y: m.a(x, y, y, need_weights=False)[0]), several((2, 6), (4, 6)), smooth=False),
    Case("attention with three inputs", with_attention(6, 2, batch_first=True,
        forward=lambda m, x, y: m.a(x, y, y.tanh(), need_weights=False)[0]), several((2, 6), (4, 6)), smooth=False),
    Case("attention of other widths", with_attention(6, 2, kdim=4, vdim=3, batch_first=True,
        forward=lambda m, x, y: m.a(x, y, y[..., :3], need_weights=False)[0]), several((2, 6), (4, 4)), smooth=False),
    Case("causal attention", with_attention(
        6, 2, batch_first=True, forward=lambda m, x: m.a(
            x, x, x, need_weights=False, attn_mask=nn.Transformer.generate_square_subsequent_mask(3).to(x.dtype), is_causal=True
        )[0]), numbers(3, 6), smooth=False),
    Case("attention with padding", with_attention(
        6, 2, batch_first=True, forward=lambda m, x, y: m.a(x, x, x, key_padding_mask=y > 5)[0]),
        lambda n: (torch.randn(n, 3, 6), torch.tensor([[0, 0, 9], [0, 0, 0], [0, 9, 9]] * n)[:n]), smooth=False),
    Case("attention with extra keys", with_attention(6, 2, batch_first=True, add_bias_kv=True), numbers(3, 6), smooth=False),
    Case("attention with extra keys and padding", with_attention(
        6, 2, batch_first=True, add_bias_kv=True, forward=lambda m, x, y: m.a(x, x, x, key_padding_mask=y > 5)[0]),
        lambda n: (torch.randn(n, 3, 6), torch.tensor([[0, 0, 9], [0, 0, 0], [0, 9, 9]] * n)[:n]), smooth=False),
    Case("attention with weights of every head", with_attention(
        6, 2, batch_first=True, forward=lambda m, x: torch.cat(
            [y.flatten(1) for y in m.a(x, x, x, average_attn_weights=False)], 1)), numbers(3, 6), smooth=False),
    Case("attention with a mask per head", with_attention(6, 2, batch_first=True,
        forward=lambda m, x: m.a(x, x, x, need_weights=False, attn_mask=torch.stack([x @ x.mT, -x @ x.mT], 1).flatten(0, 1))[0]),
        numbers(3, 6), smooth=False),
    Case("attention in evaluation mode", lambda: with_attention(6, 2, batch_first=True, dropout=0.5)().eval(), numbers(3, 6),
         smooth=False),
    Case("attention with a learned bias", lambda: With(lambda m, x: F.scaled_dot_product_attention(x, x, x, m.bias, scale=0.3),
        bias=(2, 3, 3)), numbers(2, 3, 6), smooth=False),
    Case("attention with biases that are broadcast", lambda: with_broadcast_biases(nn.MultiheadAttention(6, 2, batch_first=True)),
        numbers(3, 6), lambda m, b: energy(lambda x: m(x, x, x, need_weights=False)[0], b), smooth=False),
    Case("encoder layer", lambda: nn.TransformerEncoderLayer(6, 2, 8, dropout=0, batch_first=True), numbers(3, 6), smooth=False),
    Case("encoder layer, time-major", lambda: With(_time_major(lambda m, x: m.a(x)),
        a=nn.TransformerEncoderLayer(6, 2, 8, dropout=0, norm_first=True)), numbers(3, 6), smooth=False),
    Case("encoder", lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(6, 2, 8, dropout=0, batch_first=True), 2), numbers(5, 6), smooth=False),
    Case("transformer of torch", lambda: nn.Transformer(6, 2, 1, 1, 8, dropout=0, batch_first=True),
         several((3, 6), (2, 6)), smooth=False),
    Case("transformer of torch, time-major", lambda: With(
        lambda m, x, y: m.a(x.transpose(0, 1), y.transpose(0, 1)).transpose(0, 1), a=nn.Transformer(6, 2, 1, 1, 8, dropout=0)),
        several((5, 6), (2, 6)), smooth=False),
]  # fmt: skip

ODD = [
    Case("prelu", lambda: nn.PReLU(), numbers(6)),
    Case("prelu per channel", lambda: nn.PReLU(3), numbers(3, 4, 2)),
    Case("repeated class token", lambda: With(
        lambda m, x: torch.cat([m.token.repeat(len(x), 1, 1), x], 1), token=(1, 1, 6)), numbers(3, 6)),
    Case("mask token", lambda: With(lambda m, x: torch.where(x[..., :1] > 0, x, m.token), token=(6,)), numbers(3, 6)),
    Case("embedding, time-major", lambda: With(
        lambda m, x: m.a(x.t()).transpose(0, 1), a=nn.Embedding(VOCABULARY, 5)), tokens(9)),
    Case("softmax of a parameter", lambda: With(lambda m, x: (x * m.mix.softmax(0)).sum(1), mix=(6,)), numbers(6)),
    Case("triangle of a weight", lambda: With(lambda m, x: torch.cumsum(x, 1) @ m.weight.tril(), weight=(6, 6)), numbers(6)),
    Case("distances to prototypes", lambda: With(lambda m, x: torch.cdist(x[:, None], m.weight), weight=(4, 6)), numbers(6)),
    Case("cosine similarity", lambda: With(lambda m, x: F.cosine_similarity(x, m.weight, dim=-1), weight=(6,)), numbers(3, 6),
         smooth=False),
]  # fmt: skip


PARTIAL = [
    Case("unused layer", lambda: With(lambda m, x: m.a(x), a=nn.Linear(6, 3), b=nn.Linear(6, 3)), numbers(6)),
    Case("detached layer", lambda: With(lambda m, x: m.a(x) * m.b(x).detach(), a=nn.Linear(6, 3), b=nn.Linear(6, 3)), numbers(6)),
    Case("frozen first layer", lambda: With(lambda m, x: m.b(torch.tanh(m.a(x))),
        a=frozen(nn.Linear(6, 5), "weight", "bias"), b=nn.Linear(5, 3)), numbers(6), smooth=False),
    Case("frozen last layer", lambda: With(lambda m, x: m.b(torch.tanh(m.a(x))),
        a=nn.Linear(6, 5), b=frozen(nn.Linear(5, 3), "weight", "bias")), numbers(6), smooth=False),
    Case("biases only", lambda: With(lambda m, x: m.b(torch.tanh(m.a(x))),
        a=frozen(nn.Conv1d(2, 3, 3), "weight"), b=frozen(nn.Linear(4, 3), "weight")), numbers(2, 6), smooth=False),
]  # fmt: skip


def built(name, *shape, classes=CLASSES, **options):
    """Return the case of a network of `privet.models`."""
    contents = labelled(*shape, classes=classes)
    return Case(name, lambda: models.build(name, shape, classes, **options), contents, cross_entropy, smooth=False)


NETWORKS = [
    built("logistic", 1, 9, 9), built("mlp", 1, 9, 9, width=16), built("cnn", 1, 28, 28, classes=10),
    built("tanh-cnn", 1, 10, 10), built("strided-cnn", 1, 9, 9, width=4), built("relu-cnn", 1, 16, 16),
    built("scattering-cnn", 6, 4, 4), Case("transformer", Transformer, sentences(6), next_token),
    Case("resnet", resnet, labelled(3, 8, 8), cross_entropy, smooth=False), Case("u-net", u_net, numbers(2, 8, 6), smooth=False),
]  # fmt: skip


def everything(returned):
    """Return all outputs of a recurrent layer, (output, h) or (output, (h, c)), as one tensor with examples first."""
    output, states = returned
    states = states if isinstance(states, tuple) else (states,)
    return torch.cat([output.flatten(1), *(state.transpose(0, 1).flatten(1) for state in states)], 1)


def _time_first(m, x):
    output, states = m.a(x.transpose(0, 1))
    return everything((output.transpose(0, 1), states))


def packed(layer, x, lengths, sort=True, between=lambda sequence: sequence):
    """Run the layer over packed sequences; return all outputs, padded to the length of x."""
    sequence = between(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=not sort))
    output, states = layer(sequence)
    return everything((pad_packed_sequence(output, batch_first=True, total_length=x.shape[1])[0], states))


def _listed(m, x, lengths):
    sequence = pack_sequence([one[:length] for one, length in zip(x, lengths, strict=True)], enforce_sorted=False)
    output, states = m.a(sequence)
    return everything((pad_packed_sequence(output, total_length=x.shape[1])[0].transpose(0, 1), states))


def _time_first_packed(m, x, lengths):
    output, states = m.a(pack_padded_sequence(x.transpose(0, 1), lengths, enforce_sorted=False))
    return everything((pad_packed_sequence(output, total_length=x.shape[1])[0].transpose(0, 1), states))


def _packed_with_initial_states(m, x, lengths):
    initial = torch.tanh(m.b(x[:, 0])).view(len(x), 4, -1).transpose(0, 1).contiguous()
    sequence = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    output, states = m.a(sequence, (initial, initial.square()))
    return everything((pad_packed_sequence(output, batch_first=True, total_length=x.shape[1])[0], states))


def _given_initial_states(m, x):
    initial = torch.tanh(m.b(x[:, 0]))[None]
    states = (initial, initial.square()) if isinstance(m.a, nn.LSTM) else initial
    return everything(m.a(x, states))


def _stepwise(m, x):
    states, outputs = None, []
    for time in range(x.shape[1]):
        states = m.a(x[:, time], states)
        outputs.append(states[0] * states[1] if isinstance(states, tuple) else states)
    return torch.stack(outputs, 1)


def sequences(examples):
    """Return sequences of up to seven positions, and their lengths ≥ 1."""
    return torch.randn(examples, 7, 6), torch.randint(1, 8, (examples,))


def sorted_sequences(examples):
    x, lengths = sequences(examples)
    return x, lengths.sort(descending=True).values


def recurrent(name, kind, forward=lambda m, x: everything(m.a(x)), contents=None, others=None, **options):
    options = {"batch_first": True} | options

    def module():
        return With(forward, a=kind(6, 4, **options), **{key: make() for key, make in (others or {}).items()})

    return Case(name, module, contents or numbers(3, 6), smooth=False, grouped=contents in (sequences, sorted_sequences))


KINDS = {"rnn": nn.RNN, "relu rnn": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
         "gru": nn.GRU, "lstm": nn.LSTM}  # fmt: skip
DEEP = {"num_layers": 2, "bidirectional": True}

RECURRENT = [
    *(recurrent(name, kind) for name, kind in KINDS.items()),
    *(recurrent(f"{name}, two layers both ways", kind, **DEEP) for name, kind in KINDS.items()),
    *(recurrent(f"{name} without biases", kind, contents=numbers(9, 6), bias=False) for name, kind in KINDS.items()),
    *(recurrent(f"{name}, time first", kind, _time_first, batch_first=False, **DEEP) for name, kind in KINDS.items()),
    *(recurrent(f"{name}, packed", kind, lambda m, *b: packed(m.a, *b), sequences, **DEEP) for name, kind in KINDS.items()),
    *(recurrent(f"{name} from given states", kind, _given_initial_states, others={"b": lambda: nn.Linear(6, 4)})
      for name, kind in KINDS.items()),
    recurrent("lstm over one position", nn.LSTM, contents=numbers(1, 6)),
    recurrent("lstm, packed and sorted", nn.LSTM, lambda m, *b: packed(m.a, *b, sort=False), sorted_sequences),
    recurrent("lstm, packed, time first", nn.LSTM, _time_first_packed, sequences, batch_first=False),
    recurrent("lstm, packed from a list", nn.LSTM, _listed, sequences, bidirectional=True),
    recurrent("lstm, packed from given states", nn.LSTM, _packed_with_initial_states, sequences,
              others={"b": lambda: nn.Linear(6, 16)}, **DEEP),
    recurrent("lstm, packed data changed", nn.LSTM, lambda m, *b: packed(
        m.a, *b, between=lambda sequence: sequence._replace(data=torch.tanh(sequence.data))), sequences),
    recurrent("gru, packed twice", nn.GRU, lambda m, *b: packed(m.b, *b, between=lambda sequence: m.a(sequence)[0]), sequences,
              others={"b": lambda: nn.GRU(4, 3)}),
    recurrent("gru called twice", nn.GRU, lambda m, x: everything(m.a(torch.cat([m.a(x)[0], x[:, :, :2]], 2)))),
    recurrent("gru, last state only", nn.GRU, lambda m, x: m.a(x)[1][0]),
    recurrent("lstm, cell state only", nn.LSTM, lambda m, x: m.a(x)[1][1][0]),
    recurrent("lstm, frozen biases and a frozen weight", lambda *sizes, **options: frozen(
        nn.LSTM(*sizes, **options), "weight_ih_l0", "bias_ih_l0", "bias_hh_l0"), bidirectional=True),
    recurrent("gru, frozen first layer", lambda *sizes, **options: frozen(
        nn.GRU(*sizes, **options), *(f"{kind}_{part}_l0" for kind in ("weight", "bias") for part in ("ih", "hh"))), num_layers=2),
    Case("encoder and decoder", lambda: With(lambda m, x, y: m.c(m.b(m.e(y), m.a(m.e(x))[1])[0]), e=nn.Embedding(VOCABULARY, 6),
        c=nn.Linear(4, VOCABULARY), a=nn.GRU(6, 4, batch_first=True), b=nn.GRU(6, 4, batch_first=True)),
        sentences(6), lambda m, batch: next_token(lambda x: m(x, batch[1]), batch), smooth=False),
    *(Case(f"{kind.__name__}, step by step", lambda kind=kind: With(_stepwise, a=kind(6, 4)), numbers(3, 6),
           smooth=False) for kind in (nn.RNNCell, nn.GRUCell, nn.LSTMCell)),
    Case("relu RNNCell without biases", lambda: With(_stepwise, a=nn.RNNCell(6, 4, bias=False, nonlinearity="relu")),
         numbers(3, 6), smooth=False),
]  # fmt: skip

# Examples permuted, reversed, concatenated: each example sees only itself.
REARRANGED = [
    Case("positions of several examples in another order", lambda: With(
        lambda m, x: m.a(x.flatten(0, 1)[torch.arange(3 * len(x)).flip(0)]).tanh().view(len(x), -1).flip(0), a=nn.Linear(6, 4)),
        numbers(3, 6), smooth=False),
    Case("examples as positions of one", lambda: With(
        lambda m, x: m.a(x.reshape(1, -1, 6)).reshape(len(x), -1), a=nn.Linear(6, 4)), numbers(3, 6)),
    Case("flattened grid, time first", lambda: With(
        lambda m, x: m.a(x.transpose(0, 1).flatten(0, 2)).view(2, len(x), 3, -1).transpose(0, 1), a=nn.Linear(6, 4)),
        numbers(2, 3, 6)),
    Case("examples last", lambda: With(lambda m, x: F.linear(m.weight, x).mT.reshape(len(x), -1), weight=(4, 6)), numbers(6)),
    Case("attention with a zero key", with_attention(6, 2, batch_first=True, add_zero_attn=True), numbers(3, 6), smooth=False),
    Case("token repeated along positions", lambda: With(
        lambda m, x: torch.cat([m.token.repeat(len(x), 2, 1), x], 1), token=(1, 1, 6)), numbers(3, 6)),
    Case("function with a parameter in place", lambda: With(lambda m, x: torch.zeros_like(x).copy_(m.row), row=(6,)), numbers(6)),
]  # fmt: skip

FAMILIES = [
    LINEAR, CONVOLUTION, EMBEDDING, BAGS, NORMALISATION, ELEMENTWISE, PRODUCTS, DERIVED, ATTENTION, ODD, TIED, PARTIAL, NETWORKS,
    RECURRENT, REARRANGED,
]  # fmt: skip
CASES = [case for family in FAMILIES for case in family]


def _sorted_by_length(m, x, lengths):
    order = lengths.argsort()
    return torch.tanh(m.a(x[order]))[order.argsort()]


# Sizes that equal the number of examples, COINCIDENCE.
COINCIDENCE = 5
COINCIDENCES = [
    Case("shift as long as the batch", lambda: With(
        lambda m, x: x * (m.scale * torch.arange(1.0, 1 + COINCIDENCE).to(x)), scale=(COINCIDENCE,)), numbers(COINCIDENCE)),
    Case("weight computed from a table as long as the batch", lambda: With(
        lambda m, x: x @ (torch.arange(1.0, 1 + 6 * COINCIDENCE).view(COINCIDENCE, 6).to(x) * m.scale).t(), scale=(6,)),
        numbers(6)),
    Case("position ids as long as the batch", lambda: With(
        lambda m, x: x + m.a(torch.arange(COINCIDENCE)), a=nn.Embedding(COINCIDENCE, 6)), numbers(COINCIDENCE, 6)),
    Case("table expanded to the length of the batch", lambda: With(
        lambda m, x: x * m.row.expand(COINCIDENCE, 6), row=(1, 6)), numbers(COINCIDENCE, 6)),
    Case("examples in another order inside", lambda: With(_sorted_by_length, a=nn.Linear(6, 4)),
         lambda n: (torch.randn(n, 6), torch.tensor([1.0, 2.0, 3.0, 5.0, 4.0])[:n])),
]  # fmt: skip


# Not supported by any rule, so computed by the loop.
UNFOLLOWED = [
    Case("ragged embedding bags, last offset included", lambda: With(
        lambda m, x, y: m.a(x[y], torch.cat([torch.zeros(1, dtype=torch.long), y.sum(1).cumsum(0)])),
        a=nn.EmbeddingBag(VOCABULARY, 5, include_last_offset=True, mode="max")),
        lambda n: (torch.randint(VOCABULARY, (n, 7)), torch.rand(n, 7) < 0.7)),
    Case("lstm with projections", lambda: With(
        lambda m, x: m.a(x)[0], a=nn.LSTM(6, 4, proj_size=3, batch_first=True)), numbers(3, 6)),
]  # fmt: skip

# Computed in one pass, or one for each group.
FOLLOWED = [*CASES, *COINCIDENCES]


def by_name(*names):
    found = {case.name: case for case in (*FOLLOWED, *UNFOLLOWED)}
    return [found[name] for name in names]


# Of every family, those on its main ways: what asks all layers the same question again, in another precision or under masks,
# asks these in `make test` and all of them in `make test-slow`.
TYPICAL = by_name(
    "linear", "linear, few positions", "linear, many positions", "conv1d groups", "conv2d plain", "conv2d depthwise",
    "conv2d few positions, wide", "conv3d stride and padding", "transposed conv2d stride", "embedding with padding index",
    "embedding bag with padding, mean", "ragged embedding bags", "layer norm over positions", "rms norm", "group norm",
    "instance norm 2d", "batch norm in evaluation mode", "scale and shift", "position table", "x @ W", "einsum into heads",
    "bilinear", "weight norm", "overlapping parts of a weight", "attention", "encoder layer", "prelu", "tied head",
    "module called on different lengths", "frozen first layer", "mlp", "tanh-cnn", "transformer", "gru, two layers both ways",
    "lstm, packed", "flattened grid, time first", "position ids as long as the batch", "lstm with projections",
)  # fmt: skip


def slow_unless(fast, *values):
    """Values of a test's parameters, for `make test` if this is true, and else for `make test-slow`."""
    return pytest.param(*values, marks=() if fast else pytest.mark.slow)


def slow_unless_typical(all_cases):
    """Cases, of which `make test` takes the typical ones, and `make test-slow` the rest."""
    return [slow_unless(case in TYPICAL, case) for case in all_cases]
