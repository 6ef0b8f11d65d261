"""Operations that use parameters without a layer, by derived values, or more than once."""

from __future__ import annotations

import torch
from operations import MASK, SEQUENCE, TOKENS, VECTOR, VOCABULARY, operation, square, values
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations


def frozen(sizes):
    return values("d", "d")(sizes).requires_grad_(False)


@operation(VECTOR, to=VECTOR, weight=values("d", "d"))
def matmul(m, x):
    return x @ m.weight


@operation(SEQUENCE, to=SEQUENCE, weight=values("d", "d"))
def einsum(m, x):
    return torch.einsum("btd,de->bte", x, m.weight)


@operation(SEQUENCE, to=SEQUENCE, weight=values("T", "d", "d"))
def einsum_per_position(m, x):
    return torch.einsum("btd,tde->bte", x, m.weight)


@operation(SEQUENCE, to=SEQUENCE, weight=values("T", "T"))
def mix_positions(m, x):
    return m.weight.softmax(-1) @ x


@operation(VECTOR, to=VECTOR, weight=values("d", "d"), bias=values("d"))
def addmm(m, x):
    return torch.addmm(m.bias, x, m.weight, beta=0.5)


@operation(SEQUENCE, to=SEQUENCE, weight=values("d", "d"), bias=values("T", "d"))
def baddbmm(m, x):
    return torch.baddbmm(m.bias.expand(len(x), -1, -1), x, m.weight.expand(len(x), -1, -1))


@operation(VECTOR, to=VECTOR, scale=values("d"), shift=values("d"))
def scale_and_shift(m, x):
    return torch.tanh(x) * m.scale + m.shift


@operation(SEQUENCE, to=SEQUENCE, gate=values(1), shift=values("T", 1))
def gate_by_scalar(m, x):
    return x * torch.sigmoid(m.gate) + m.shift


@operation(SEQUENCE, MASK, to=SEQUENCE, filler=values("d"))
def where_parameter(m, x, mask):
    return torch.where(mask[..., None], x, m.filler)


@operation(VECTOR, to=VECTOR, left=values("d"), right=values("d", "d"))
def outer_product(m, x):
    return (x[:, :, None] * m.left * m.right).sum(1)


@operation(VECTOR, to=VECTOR, table=values(7, 7))
def sliced_parameter(m, x):
    width = x.shape[1]
    return F.linear(x, m.table[1 : 1 + width, :width], m.table[0, :width])


@operation(TOKENS, to=SEQUENCE, table=values(VOCABULARY, "d"))
def indexed_parameter(m, tokens):
    return m.table[tokens]


@operation(TOKENS, to=SEQUENCE, table=values("d", VOCABULARY))
def one_hot_lookup(m, tokens):
    return F.one_hot(tokens, VOCABULARY).to(m.table.dtype) @ m.table.T


@operation(VECTOR, to=VECTOR, weight=values("d", "d"))
def transposed_parameter(m, x):
    return F.linear(x, m.weight.t())


@operation(VECTOR, to=VECTOR, one=values(1, "d"), other=values("d", "d"))
def concatenated_parameters(m, x):
    return F.linear(x, torch.cat([m.one, m.other])[: x.shape[1]])


@operation(VECTOR, to=VECTOR, several=lambda s: nn.ParameterList([values("d", "d")(s) for _ in range(3)]))
def stacked_parameters(m, x):
    return torch.einsum("bd,nde->bne", x, torch.stack([*m.several])).amax(1)


@operation(VECTOR, to=VECTOR, base=frozen, up=values("d", 2), down=values(2, "d"))
def merged_adapter(m, x):
    return F.linear(x, m.base + m.up @ m.down)


@operation(SEQUENCE, to=SEQUENCE, base=frozen, up=values("d", 2), down=values(2, "d"))
def adapter_beside(m, x):
    return F.linear(x, m.base) + F.linear(F.linear(x, m.down), m.up)


@operation(VECTOR, to=VECTOR, layer=lambda s: parametrizations.weight_norm(square(s)))
def weight_norm(m, x):
    return m.layer(x)


@operation(SEQUENCE, to=SEQUENCE, layer=lambda s: parametrizations.spectral_norm(square(s)))
def spectral_norm(m, x):
    return m.layer(x)


@operation(SEQUENCE, to=SEQUENCE, token=values(1, 1, "d"), layer=square)
def class_token(m, x):
    x = torch.cat([m.token.expand(len(x), -1, -1), x], 1)
    scores = x @ m.layer(x).mT
    return (scores.softmax(-1) @ x)[:, 1:]


@operation(SEQUENCE, to=VECTOR, token=values("d"), layer=square)
def repeated_class_token(m, x):
    x = torch.cat([x, m.token.repeat(len(x), 1, 1)], dim=1)
    return torch.tanh(m.layer(x)).cumsum(1)[:, -1]


@operation(SEQUENCE, to=SEQUENCE, places=values(9, "d"))
def learned_positions(m, x):
    return x + m.places[: x.shape[1]]


@operation(SEQUENCE, to=SEQUENCE, places=lambda s: nn.Embedding(9, s.d))
def embedded_positions(m, x):
    return x + m.places(torch.arange(x.shape[1]))


@operation(SEQUENCE, to=SEQUENCE, places=lambda s: nn.Embedding(9, s.d))
def embedded_positions_of_batch(m, x):
    return x * m.places(torch.arange(x.shape[1])[None].expand(len(x), -1))


@operation(TOKENS, to=SEQUENCE, table=lambda s: nn.Embedding(VOCABULARY, s.d))
def tied_head(m, tokens):
    logits = F.linear(torch.tanh(m.table(tokens)), m.table.weight)
    return logits.softmax(-1) @ m.table.weight


@operation(VECTOR, to=VECTOR, weight=values(4, "d"))
def tied_autoencoder(m, x):
    return F.linear(torch.tanh(F.linear(x, m.weight)), m.weight.t())


@operation(VECTOR, to=VECTOR, layer=square)
def same_layer_twice(m, x):
    return m.layer(torch.tanh(m.layer(x)))


@operation(VECTOR, to=VECTOR, weight=values("d", "d"))
def normalised_weights(m, x):
    return F.linear(x, F.normalize(m.weight, dim=1))


@operation(VECTOR, to=VECTOR, prototypes=values("d", "d"))
def distances_to_prototypes(m, x):
    return torch.cdist(x, m.prototypes)


@operation(SEQUENCE, to=SEQUENCE, kernel=values("d", 1, 3))
def conv1d_by_softmax(m, x):
    return F.conv1d(x.mT, m.kernel.softmax(-1), padding=1, groups=x.shape[2]).mT


@operation(SEQUENCE, to=SEQUENCE, scale=values("d"))
def functional_layer_norm(m, x):
    return F.layer_norm(x, x.shape[2:], weight=m.scale, bias=m.scale.cumsum(0), eps=0.1)


@operation(VECTOR, to=VECTOR, weight=values(2, "d", "d"))
def functional_bilinear(m, x):
    return F.bilinear(x, torch.tanh(x), m.weight).sum(1, keepdim=True) + x


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
