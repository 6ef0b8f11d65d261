"""Operations that are torch's layers without a state over time."""

import torch
from operations import IMAGE, SEQUENCE, TOKENS, VECTOR, VOCABULARY, enter, operation, square
from torch import nn
from torch.nn import functional as F

enter("linear", lambda m, x: m.layer(x), VECTOR, to=VECTOR, layer=square)
enter("perceptron", lambda m, x: x + m.down(F.gelu(m.up(x))),
      VECTOR, to=VECTOR, up=lambda s: nn.Linear(s.d, 6), down=lambda s: nn.Linear(6, s.d, bias=False))  # fmt: skip
enter("linear_per_position", lambda m, x: m.layer(x), SEQUENCE, to=SEQUENCE, layer=square)
enter("layer_norm", lambda m, x: m.norm(x), VECTOR, to=VECTOR, norm=lambda s: nn.LayerNorm(s.d, eps=0.1))
enter("rms_norm", lambda m, x: m.norm(x), SEQUENCE, to=SEQUENCE, norm=lambda s: nn.RMSNorm(s.d, eps=0.1))
enter("layer_norm_over_positions", lambda m, x: m.norm(x),
      SEQUENCE, to=SEQUENCE, norm=lambda s: nn.LayerNorm((s.T, s.d), eps=0.1))  # fmt: skip
enter("group_norm_of_sequences", lambda m, x: m.norm(x.mT).mT,
      SEQUENCE, to=SEQUENCE, norm=lambda s: nn.GroupNorm(s.heads, s.d, eps=0.1))  # fmt: skip
enter("group_norm", lambda m, x: m.norm(x), IMAGE, to=IMAGE, norm=lambda s: nn.GroupNorm(1, s.C, eps=0.1))
enter("instance_norm", lambda m, x: m.norm(x),
      IMAGE, to=IMAGE, needs=lambda s: s.H * s.W > 1, norm=lambda s: nn.InstanceNorm2d(s.C, eps=0.1, affine=True))  # fmt: skip
enter("frozen_batch_norm", lambda m, x: m.norm(x), IMAGE, to=IMAGE, norm=lambda s: nn.BatchNorm2d(s.C).eval())
enter("prelu", lambda m, x: m.slopes(x), VECTOR, to=VECTOR, slopes=lambda s: nn.PReLU(s.d))
enter("bilinear", lambda m, x, y: m.layer(torch.tanh(x), y),
      VECTOR, VECTOR, to=VECTOR, layer=lambda s: nn.Bilinear(s.d, s.d, s.d))  # fmt: skip
enter("conv1d", lambda m, x: m.layer(x.mT).mT, SEQUENCE, to=SEQUENCE, layer=lambda s: nn.Conv1d(s.d, s.d, 3, padding=1))
enter("causal_depthwise_conv1d", lambda m, x: m.layer(F.pad(x.mT, (1, 0))).mT,
      SEQUENCE, to=SEQUENCE, layer=lambda s: nn.Conv1d(s.d, s.d, 2, groups=s.d))  # fmt: skip
enter("strided_conv1d", lambda m, x: F.interpolate(m.layer(x.mT), size=x.shape[1]).mT,
      SEQUENCE, to=SEQUENCE, layer=lambda s: nn.Conv1d(s.d, s.d, 3, stride=2, padding=1))  # fmt: skip
enter("conv_transpose1d", lambda m, x: m.layer(x.mT).mT,
      SEQUENCE, to=SEQUENCE, layer=lambda s: nn.ConvTranspose1d(s.d, s.d, 3, padding=1))  # fmt: skip
enter("conv2d_of_one_channel", lambda m, x: x + m.layer(x[:, None])[:, 0],
      SEQUENCE, to=SEQUENCE, layer=lambda s: nn.Conv2d(1, 1, 3, padding=1))  # fmt: skip
enter("conv2d", lambda m, x: m.layer(x), IMAGE, to=IMAGE, layer=lambda s: nn.Conv2d(s.C, s.C, 3, padding=1))
enter("strided_conv2d", lambda m, x: F.interpolate(m.layer(x), size=x.shape[2:]),
      IMAGE, to=IMAGE, layer=lambda s: nn.Conv2d(s.C, s.C, 3, stride=2, padding=1, bias=False))  # fmt: skip
enter("conv_transpose2d", lambda m, x: m.layer(x), IMAGE, to=IMAGE, layer=lambda s: nn.ConvTranspose2d(s.C, s.C, 3, padding=1))
enter("squeeze_and_excite", lambda m, x: x * torch.sigmoid(m.gate(x.mean((2, 3))))[:, :, None, None],
      IMAGE, to=IMAGE, gate=lambda s: nn.Linear(s.C, s.C))  # fmt: skip
enter("embedding", lambda m, tokens: m.table(tokens), TOKENS, to=SEQUENCE, table=lambda s: nn.Embedding(VOCABULARY, s.d))
enter("embedding_with_padding", lambda m, tokens: m.table(tokens),
      TOKENS, to=SEQUENCE, table=lambda s: nn.Embedding(VOCABULARY, s.d, padding_idx=0))  # fmt: skip
enter("embedding_bag", lambda m, tokens: m.table(tokens),
      TOKENS, to=VECTOR, table=lambda s: nn.EmbeddingBag(VOCABULARY, s.d, mode="mean"))  # fmt: skip
enter("embedding_bag_by_offsets", lambda m, tokens: m.table(tokens.flatten(), torch.arange(0, tokens.numel(), tokens.shape[1])),
      TOKENS, to=VECTOR, table=lambda s: nn.EmbeddingBag(VOCABULARY, s.d, mode="sum"))  # fmt: skip
enter("pool_image", lambda m, x: m.layer(F.adaptive_avg_pool2d(x, 1).flatten(1)),
      IMAGE, to=VECTOR, layer=lambda s: nn.Linear(s.C, s.d))  # fmt: skip
enter("cut_image_into_patches", lambda m, x: F.adaptive_avg_pool1d(m.layer(x.flatten(2).mT).mT, m.places).mT,
      IMAGE, to=SEQUENCE, layer=lambda s: nn.Linear(s.C, s.d), places=lambda s: s.T)  # fmt: skip
enter("paint_image", lambda m, x: m.layer(x).unflatten(1, m.shape),
      VECTOR, to=IMAGE, layer=lambda s: nn.Linear(s.d, s.C * s.H * s.W), shape=lambda s: (s.C, s.H, s.W))  # fmt: skip
enter("arrange_image", lambda m, x: m.layer(x.flatten(1)).view(len(x), *m.shape),
      SEQUENCE, to=IMAGE, layer=lambda s: nn.Linear(s.T * s.d, s.C * s.H * s.W), shape=lambda s: (s.C, s.H, s.W))  # fmt: skip
enter("unroll_vector", lambda m, x: m.layer(x).reshape(-1, *m.shape),
      VECTOR, to=SEQUENCE, layer=lambda s: nn.Linear(s.d, s.T * s.d), shape=lambda s: (s.T, s.d))  # fmt: skip
enter("flatten_sequence", lambda m, x: m.layer(x.reshape(len(x), -1)),
      SEQUENCE, to=VECTOR, layer=lambda s: nn.Linear(s.T * s.d, s.d))  # fmt: skip
enter("grouped_conv2d", lambda m, x: x + m.mix(torch.tanh(m.layer(x))), IMAGE, to=IMAGE,
      layer=lambda s: nn.Conv2d(s.C, 2 * s.C, 3, padding=1, groups=s.C), mix=lambda s: nn.Conv2d(2 * s.C, s.C, 1))  # fmt: skip


@operation(TOKENS, to=SEQUENCE, table=lambda s: nn.Embedding(VOCABULARY, s.d), out=lambda s: nn.Linear(s.d, VOCABULARY))
def token_likelihoods(m, tokens):
    logits = m.out(torch.tanh(m.table(tokens)))
    loss = F.cross_entropy(logits.transpose(1, 2), tokens.roll(-1, 1), reduction="none")
    return loss[:, :, None] * m.table(tokens)
