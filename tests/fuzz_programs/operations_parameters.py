"""Operations that use parameters without a layer, by derived values, or more than once."""

import torch
from operations import MASK, SEQUENCE, TOKENS, VECTOR, VOCABULARY, enter, operation, square, values
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations


def frozen(sizes):
    return values("d", "d")(sizes).requires_grad_(False)


enter("matmul", lambda m, x: x @ m.weight, VECTOR, to=VECTOR, weight=values("d", "d"))
enter("einsum", lambda m, x: torch.einsum("btd,de->bte", x, m.weight), SEQUENCE, to=SEQUENCE, weight=values("d", "d"))
enter("einsum_per_position", lambda m, x: torch.einsum("btd,tde->bte", x, m.weight),
      SEQUENCE, to=SEQUENCE, weight=values("T", "d", "d"))  # fmt: skip
enter("mix_positions", lambda m, x: m.weight.softmax(-1) @ x, SEQUENCE, to=SEQUENCE, weight=values("T", "T"))
enter("addmm", lambda m, x: torch.addmm(m.bias, x, m.weight, beta=0.5),
      VECTOR, to=VECTOR, weight=values("d", "d"), bias=values("d"))  # fmt: skip
enter("baddbmm", lambda m, x: torch.baddbmm(m.bias.expand(len(x), -1, -1), x, m.weight.expand(len(x), -1, -1)),
      SEQUENCE, to=SEQUENCE, weight=values("d", "d"), bias=values("T", "d"))  # fmt: skip
enter("scale_and_shift", lambda m, x: torch.tanh(x) * m.scale + m.shift, VECTOR, to=VECTOR, scale=values("d"), shift=values("d"))
enter("gate_by_scalar", lambda m, x: x * torch.sigmoid(m.gate) + m.shift,
      SEQUENCE, to=SEQUENCE, gate=values(1), shift=values("T", 1))  # fmt: skip
enter("where_parameter", lambda m, x, mask: torch.where(mask[..., None], x, m.filler),
      SEQUENCE, MASK, to=SEQUENCE, filler=values("d"))  # fmt: skip
enter("outer_product", lambda m, x: (x[:, :, None] * m.left * m.right).sum(1),
      VECTOR, to=VECTOR, left=values("d"), right=values("d", "d"))  # fmt: skip
enter("indexed_parameter", lambda m, tokens: m.table[tokens], TOKENS, to=SEQUENCE, table=values(VOCABULARY, "d"))
enter("one_hot_lookup", lambda m, tokens: F.one_hot(tokens, VOCABULARY).to(m.table.dtype) @ m.table.T,
      TOKENS, to=SEQUENCE, table=values("d", VOCABULARY))  # fmt: skip
enter("transposed_parameter", lambda m, x: F.linear(x, m.weight.t()), VECTOR, to=VECTOR, weight=values("d", "d"))
enter("concatenated_parameters", lambda m, x: F.linear(x, torch.cat([m.one, m.other])[: x.shape[1]]),
      VECTOR, to=VECTOR, one=values(1, "d"), other=values("d", "d"))  # fmt: skip
enter("stacked_parameters", lambda m, x: torch.einsum("bd,nde->bne", x, torch.stack([*m.several])).amax(1),
      VECTOR, to=VECTOR, several=lambda s: nn.ParameterList([values("d", "d")(s) for _ in range(3)]))  # fmt: skip
enter("merged_adapter", lambda m, x: F.linear(x, m.base + m.up @ m.down),
      VECTOR, to=VECTOR, base=frozen, up=values("d", 2), down=values(2, "d"))  # fmt: skip
enter("adapter_beside", lambda m, x: F.linear(x, m.base) + F.linear(F.linear(x, m.down), m.up),
      SEQUENCE, to=SEQUENCE, base=frozen, up=values("d", 2), down=values(2, "d"))  # fmt: skip
enter("weight_norm", lambda m, x: m.layer(x), VECTOR, to=VECTOR, layer=lambda s: parametrizations.weight_norm(square(s)))
enter("spectral_norm", lambda m, x: m.layer(x), SEQUENCE, to=SEQUENCE, layer=lambda s: parametrizations.spectral_norm(square(s)))
enter("learned_positions", lambda m, x: x + m.places[: x.shape[1]], SEQUENCE, to=SEQUENCE, places=values(9, "d"))
enter("embedded_positions", lambda m, x: x + m.places(torch.arange(x.shape[1])),
      SEQUENCE, to=SEQUENCE, places=lambda s: nn.Embedding(9, s.d))  # fmt: skip
enter("embedded_positions_of_batch", lambda m, x: x * m.places(torch.arange(x.shape[1])[None].expand(len(x), -1)),
      SEQUENCE, to=SEQUENCE, places=lambda s: nn.Embedding(9, s.d))  # fmt: skip
enter("tied_autoencoder", lambda m, x: F.linear(torch.tanh(F.linear(x, m.weight)), m.weight.t()),
      VECTOR, to=VECTOR, weight=values(4, "d"))  # fmt: skip
enter("same_layer_twice", lambda m, x: m.layer(torch.tanh(m.layer(x))), VECTOR, to=VECTOR, layer=square)
enter("normalised_weights", lambda m, x: F.linear(x, F.normalize(m.weight, dim=1)), VECTOR, to=VECTOR, weight=values("d", "d"))
enter("distances_to_prototypes", lambda m, x: torch.cdist(x, m.prototypes), VECTOR, to=VECTOR, prototypes=values("d", "d"))
enter("conv1d_by_softmax", lambda m, x: F.conv1d(x.mT, m.kernel.softmax(-1), padding=1, groups=x.shape[2]).mT,
      SEQUENCE, to=SEQUENCE, kernel=values("d", 1, 3))  # fmt: skip
enter("functional_layer_norm", lambda m, x: F.layer_norm(x, x.shape[2:], weight=m.scale, bias=m.scale.cumsum(0), eps=0.1),
      SEQUENCE, to=SEQUENCE, scale=values("d"))  # fmt: skip
enter("functional_bilinear", lambda m, x: F.bilinear(x, torch.tanh(x), m.weight).sum(1, keepdim=True) + x,
      VECTOR, to=VECTOR, weight=values(2, "d", "d"))  # fmt: skip
enter("repeated_class_token", lambda m, x: torch.tanh(m.layer(torch.cat([x, m.token.repeat(len(x), 1, 1)], 1))).cumsum(1)[:, -1],
      SEQUENCE, to=VECTOR, token=values("d"), layer=square)  # fmt: skip


@operation(VECTOR, to=VECTOR, table=values(7, 7))
def sliced_parameter(m, x):
    width = x.shape[1]
    return F.linear(x, m.table[1 : 1 + width, :width], m.table[0, :width])


@operation(SEQUENCE, to=SEQUENCE, token=values(1, 1, "d"), layer=square)
def class_token(m, x):
    x = torch.cat([m.token.expand(len(x), -1, -1), x], 1)
    scores = x @ m.layer(x).mT
    return (scores.softmax(-1) @ x)[:, 1:]


@operation(TOKENS, to=SEQUENCE, table=lambda s: nn.Embedding(VOCABULARY, s.d))
def tied_head(m, tokens):
    logits = F.linear(torch.tanh(m.table(tokens)), m.table.weight)
    return logits.softmax(-1) @ m.table.weight


@operation(SEQUENCE, to=SEQUENCE, places=values("T", "d"))
def write_into_repeated_parameter(m, x):
    out = m.places.repeat(len(x), 1, 1)
    out[:, 1:] += x[:, :-1]
    return out


@operation(VECTOR, to=VECTOR, router=square, experts=lambda s: nn.ModuleList([square(s) for _ in range(s.d)]))
def dense_experts(m, x):
    outs = torch.stack([expert(x) for expert in m.experts], 1)
    return (m.router(x).softmax(-1)[:, :, None] * torch.tanh(outs)).sum(1)


@operation(VECTOR, to=VECTOR, router=lambda s: nn.Linear(s.d, 3), experts=lambda s: nn.ModuleList([square(s) for _ in range(3)]))
def routed_experts(m, x):
    weight, chosen = m.router(x).softmax(-1).max(-1)
    out = torch.zeros_like(x)
    for number, expert in enumerate(m.experts):
        rows = chosen == number
        out[rows] = expert(x[rows])
    return weight[:, None] * out


@operation(
    SEQUENCE, to=SEQUENCE, router=lambda s: nn.Linear(s.d, 3), experts=lambda s: nn.ModuleList([square(s) for _ in range(3)])
)
def experts_on_sorted_positions(m, x):
    flat = x.flatten(0, 1)
    chosen = m.router(flat).argmax(-1)
    order = chosen.argsort(stable=True)
    parts = flat[order].split(torch.bincount(chosen, minlength=3).tolist())
    done = torch.cat([expert(part) for expert, part in zip(m.experts, parts, strict=True)])
    return flat.new_zeros(flat.shape).index_put((order,), done).view_as(x)


@operation(TOKENS, SEQUENCE, to=SEQUENCE, layer=square)
def layer_on_special_tokens(m, tokens, x):
    out = x.clone()
    out[tokens == 1] = torch.tanh(m.layer(x[tokens == 1]))
    return out


@operation(VECTOR, to=VECTOR, layers=lambda s: nn.ModuleDict({"a": square(s), "b": square(s)}))
def layers_by_name(m, x):
    for name in sorted(m.layers):
        x = x + torch.tanh(m.layers[name](x))
    return x
