"""Operations that are torch's layers without a state over time."""

from __future__ import annotations

import torch
from operations import IMAGE, SEQUENCE, TOKENS, VECTOR, VOCABULARY, operation, square
from torch import nn
from torch.nn import functional as F


@operation(VECTOR, to=VECTOR, layer=square)
def linear(m, x):
    return m.layer(x)


@operation(VECTOR, to=VECTOR, up=lambda s: nn.Linear(s.d, 6), down=lambda s: nn.Linear(6, s.d, bias=False))
def perceptron(m, x):
    return x + m.down(F.gelu(m.up(x)))


@operation(SEQUENCE, to=SEQUENCE, layer=square)
def linear_per_position(m, x):
    return m.layer(x)


@operation(VECTOR, to=VECTOR, norm=lambda s: nn.LayerNorm(s.d, eps=0.1))
def layer_norm(m, x):
    return m.norm(x)


@operation(SEQUENCE, to=SEQUENCE, norm=lambda s: nn.RMSNorm(s.d, eps=0.1))
def rms_norm(m, x):
    return m.norm(x)


@operation(SEQUENCE, to=SEQUENCE, norm=lambda s: nn.LayerNorm((s.T, s.d), eps=0.1))
def layer_norm_over_positions(m, x):
    return m.norm(x)


@operation(SEQUENCE, to=SEQUENCE, norm=lambda s: nn.GroupNorm(s.heads, s.d, eps=0.1))
def group_norm_of_sequences(m, x):
    return m.norm(x.mT).mT


@operation(IMAGE, to=IMAGE, norm=lambda s: nn.GroupNorm(1, s.C, eps=0.1))
def group_norm(m, x):
    return m.norm(x)


@operation(IMAGE, to=IMAGE, needs=lambda s: s.H * s.W > 1, norm=lambda s: nn.InstanceNorm2d(s.C, eps=0.1, affine=True))
def instance_norm(m, x):
    return m.norm(x)


@operation(IMAGE, to=IMAGE, norm=lambda s: nn.BatchNorm2d(s.C).eval())
def frozen_batch_norm(m, x):
    return m.norm(x)


@operation(VECTOR, to=VECTOR, slopes=lambda s: nn.PReLU(s.d))
def prelu(m, x):
    return m.slopes(x)


@operation(VECTOR, VECTOR, to=VECTOR, layer=lambda s: nn.Bilinear(s.d, s.d, s.d))
def bilinear(m, x, y):
    return m.layer(torch.tanh(x), y)


@operation(SEQUENCE, to=SEQUENCE, layer=lambda s: nn.Conv1d(s.d, s.d, 3, padding=1))
def conv1d(m, x):
    return m.layer(x.mT).mT


@operation(SEQUENCE, to=SEQUENCE, layer=lambda s: nn.Conv1d(s.d, s.d, 2, groups=s.d))
def causal_depthwise_conv1d(m, x):
    return m.layer(F.pad(x.mT, (1, 0))).mT


@operation(SEQUENCE, to=SEQUENCE, layer=lambda s: nn.Conv1d(s.d, s.d, 3, stride=2, padding=1))
def strided_conv1d(m, x):
    return F.interpolate(m.layer(x.mT), size=x.shape[1]).mT


@operation(SEQUENCE, to=SEQUENCE, layer=lambda s: nn.ConvTranspose1d(s.d, s.d, 3, padding=1))
def conv_transpose1d(m, x):
    return m.layer(x.mT).mT


@operation(SEQUENCE, to=SEQUENCE, layer=lambda s: nn.Conv2d(1, 1, 3, padding=1))
def conv2d_of_one_channel(m, x):
    return x + m.layer(x[:, None])[:, 0]


@operation(IMAGE, to=IMAGE, layer=lambda s: nn.Conv2d(s.C, s.C, 3, padding=1))
def conv2d(m, x):
    return m.layer(x)


@operation(
    IMAGE, to=IMAGE, layer=lambda s: nn.Conv2d(s.C, 2 * s.C, 3, padding=1, groups=s.C), mix=lambda s: nn.Conv2d(2 * s.C, s.C, 1)
)
def grouped_conv2d(m, x):
    return x + m.mix(torch.tanh(m.layer(x)))


@operation(IMAGE, to=IMAGE, layer=lambda s: nn.Conv2d(s.C, s.C, 3, stride=2, padding=1, bias=False))
def strided_conv2d(m, x):
    return F.interpolate(m.layer(x), size=x.shape[2:])


@operation(IMAGE, to=IMAGE, layer=lambda s: nn.ConvTranspose2d(s.C, s.C, 3, padding=1))
def conv_transpose2d(m, x):
    return m.layer(x)


@operation(IMAGE, to=IMAGE, gate=lambda s: nn.Linear(s.C, s.C))
def squeeze_and_excite(m, x):
    return x * torch.sigmoid(m.gate(x.mean((2, 3))))[:, :, None, None]


@operation(TOKENS, to=SEQUENCE, table=lambda s: nn.Embedding(VOCABULARY, s.d))
def embedding(m, tokens):
    return m.table(tokens)


@operation(TOKENS, to=SEQUENCE, table=lambda s: nn.Embedding(VOCABULARY, s.d, padding_idx=0))
def embedding_with_padding(m, tokens):
    return m.table(tokens)


@operation(TOKENS, to=VECTOR, table=lambda s: nn.EmbeddingBag(VOCABULARY, s.d, mode="mean"))
def embedding_bag(m, tokens):
    return m.table(tokens)


@operation(TOKENS, to=VECTOR, table=lambda s: nn.EmbeddingBag(VOCABULARY, s.d, mode="sum"))
def embedding_bag_by_offsets(m, tokens):
    return m.table(tokens.flatten(), torch.arange(0, tokens.numel(), tokens.shape[1]))


@operation(TOKENS, to=SEQUENCE, table=lambda s: nn.Embedding(VOCABULARY, s.d), out=lambda s: nn.Linear(s.d, VOCABULARY))
def token_likelihoods(m, tokens):
    logits = m.out(torch.tanh(m.table(tokens)))
    loss = F.cross_entropy(logits.transpose(1, 2), tokens.roll(-1, 1), reduction="none")
    return loss[:, :, None] * m.table(tokens)


@operation(IMAGE, to=VECTOR, layer=lambda s: nn.Linear(s.C, s.d))
def pool_image(m, x):
    return m.layer(F.adaptive_avg_pool2d(x, 1).flatten(1))


@operation(IMAGE, to=SEQUENCE, layer=lambda s: nn.Linear(s.C, s.d), places=lambda s: s.T)
def cut_image_into_patches(m, x):
    return F.adaptive_avg_pool1d(m.layer(x.flatten(2).mT).mT, m.places).mT


@operation(VECTOR, to=IMAGE, layer=lambda s: nn.Linear(s.d, s.C * s.H * s.W), shape=lambda s: (s.C, s.H, s.W))
def paint_image(m, x):
    return m.layer(x).unflatten(1, m.shape)


@operation(SEQUENCE, to=IMAGE, layer=lambda s: nn.Linear(s.T * s.d, s.C * s.H * s.W), shape=lambda s: (s.C, s.H, s.W))
def arrange_image(m, x):
    return m.layer(x.flatten(1)).view(len(x), *m.shape)


@operation(VECTOR, to=SEQUENCE, layer=lambda s: nn.Linear(s.d, s.T * s.d), shape=lambda s: (s.T, s.d))
def unroll_vector(m, x):
    return m.layer(x).reshape(-1, *m.shape)


@operation(SEQUENCE, to=VECTOR, layer=lambda s: nn.Linear(s.T * s.d, s.d))
def flatten_sequence(m, x):
    return m.layer(x.reshape(len(x), -1))
