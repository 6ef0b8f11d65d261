"""Operations that index, sort, gather, scatter and mask."""

import torch
from operations import LENGTHS, MASK, SEQUENCE, TOKENS, VECTOR, VOCABULARY, enter, operation, square, values
from torch import nn

enter("last_position", lambda m, x, lengths: x[torch.arange(len(x)), lengths - 1], SEQUENCE, LENGTHS, to=VECTOR)
enter("gather", lambda m, x, tokens: x.gather(1, (tokens % x.shape[1])[:, :, None].expand_as(x)), SEQUENCE, TOKENS, to=SEQUENCE)
enter("take_along_dim", lambda m, x, tokens: torch.take_along_dim(x, (tokens % x.shape[2])[:, :, None], 2) + x,
      SEQUENCE, TOKENS, to=SEQUENCE)  # fmt: skip
enter("index_select", lambda m, x: x.index_select(1, torch.arange(x.shape[1] - 1, -1, -1)), SEQUENCE, to=SEQUENCE)
enter("first_of_flattened", lambda m, x: m.layer(x.reshape(-1, x.shape[2]).index_select(0, torch.arange(len(x)) * x.shape[1])),
      SEQUENCE, to=VECTOR, layer=square)  # fmt: skip
enter("every_other_row_of_flattened", lambda m, x: m.layer(x).flatten(0, 1)[:: x.shape[1]], SEQUENCE, to=VECTOR, layer=square)
enter("flip_examples_and_back", lambda m, x: m.layer(x.flip(0)).flip(0), VECTOR, to=VECTOR, layer=square)
enter("roll_examples_and_back", lambda m, x: torch.tanh(m.layer(x.roll(1, 0))).roll(-1, 0), SEQUENCE, to=SEQUENCE, layer=square)
enter("sort_positions", lambda m, x: x.sort(dim=1, stable=True).values, SEQUENCE, to=SEQUENCE)
enter("flip_positions", lambda m, x: x.flip(1), SEQUENCE, to=SEQUENCE)
enter("roll_positions", lambda m, x: x + torch.tanh(x.roll(1, 1)), SEQUENCE, to=SEQUENCE)
enter("masked_fill", lambda m, x, mask: x.masked_fill(~mask[:, :, None], -0.5), SEQUENCE, MASK, to=SEQUENCE)
enter("masked_scatter", lambda m, x, mask: torch.zeros_like(x).masked_scatter(mask[:, :, None], (3 * x)[mask]),
      SEQUENCE, MASK, to=SEQUENCE)  # fmt: skip
enter("argmax_tokens", lambda m, x: m.layer(x).argmax(-1), SEQUENCE, to=TOKENS, layer=lambda s: nn.Linear(s.d, VOCABULARY))
enter("bucketize", lambda m, x: torch.bucketize(x.mean(2), torch.tensor([-0.8, -0.4, -0.1, 0.2, 0.5, 0.9], dtype=x.dtype)),
      SEQUENCE, to=TOKENS)  # fmt: skip
enter("count_mask", lambda m, mask: mask.sum(1), MASK, to=LENGTHS)
enter("mask_of_lengths", lambda m, lengths, mask: torch.arange(mask.shape[1])[None] < lengths[:, None], LENGTHS, MASK, to=MASK)
enter("scatter", lambda m, x, tokens: torch.zeros_like(x).scatter(
      1, tokens.argsort(dim=1, stable=True)[:, :, None].expand_as(x), x), SEQUENCE, TOKENS, to=SEQUENCE)  # fmt: skip
enter("scatter_add", lambda m, x, tokens: x.new_zeros(len(x), VOCABULARY).scatter_add(1, tokens, x.mean(2)) @ m.weight,
      SEQUENCE, TOKENS, to=VECTOR, weight=values(VOCABULARY, "d"))  # fmt: skip
enter("index_put", lambda m, x, tokens: x.new_zeros(x.shape).index_put(
      (torch.arange(len(x))[:, None].expand_as(tokens), tokens % x.shape[1]), x, accumulate=True),
      SEQUENCE, TOKENS, to=SEQUENCE)  # fmt: skip


@operation(SEQUENCE, MASK, to=SEQUENCE, layer=square)
def layer_on_masked_rows(m, x, mask):
    out = torch.zeros_like(x)
    out[mask] = m.layer(x[mask])
    return out


@operation(SEQUENCE, MASK, to=SEQUENCE)
def boolean_index(m, x, mask):
    out = x.new_zeros(x.shape)
    out[mask] = 2 * x[mask]
    return out


@operation(SEQUENCE, MASK, to=SEQUENCE, layer=square)
def layer_on_nonzero(m, x, mask):
    rows, places = mask.nonzero(as_tuple=True)
    return x.index_put((rows, places), torch.tanh(m.layer(x[rows, places])))


@operation(SEQUENCE, TOKENS, to=SEQUENCE)
def index_add_over_flattened(m, x, tokens):
    rows = torch.arange(len(x))[:, None] * x.shape[1] + tokens % x.shape[1]
    return torch.zeros_like(x).flatten(0, 1).index_add(0, rows.flatten(), x.flatten(0, 1)).view_as(x)


@operation(VECTOR, to=VECTOR, layer=square)
def sort_examples(m, x):
    order = x.sum(1).argsort()
    return m.layer(x[order])[order.argsort()]


@operation(SEQUENCE, LENGTHS, to=SEQUENCE, layer=square)
def sort_examples_by_length(m, x, lengths):
    order = lengths.argsort(descending=True, stable=True)
    out = torch.empty_like(x)
    out[order] = m.layer(x[order])
    return out


@operation(VECTOR, LENGTHS, to=VECTOR, layer=square)
def sort_examples_in_python(m, x, lengths):
    order = sorted(range(len(x)), key=lambda i: int(lengths[i]))
    y = torch.tanh(m.layer(x[order]))
    return y[[order.index(i) for i in range(len(x))]]


@operation(VECTOR, LENGTHS, to=VECTOR, layer=square)
def sort_examples_in_numpy(m, x, lengths):
    order = torch.from_numpy(lengths.numpy().argsort(kind="stable"))
    return m.layer(x[order])[order.argsort()]


@operation(SEQUENCE, to=SEQUENCE, layer=square)
def sort_positions_and_back(m, x):
    order = x.sum(2).argsort(dim=1, stable=True)[:, :, None].expand_as(x)
    return x + torch.zeros_like(x).scatter(1, order, m.layer(x.gather(1, order)).cumsum(1))


@operation(SEQUENCE, to=VECTOR, score=lambda s: nn.Linear(s.d, 1))
def topk_positions(m, x):
    score, places = m.score(x)[:, :, 0].topk(max(1, x.shape[1] // 2), dim=1)
    return (score.softmax(1)[:, :, None] * x[torch.arange(len(x))[:, None], places]).sum(1)


@operation(SEQUENCE, to=SEQUENCE)
def topk_features(m, x):
    kept, places = x.topk(max(1, x.shape[2] - 1), dim=2)
    return torch.zeros_like(x).scatter(2, places, kept)


@operation(SEQUENCE, to=SEQUENCE)
def masked_select_of_fixed_count(m, x):
    kept = x.shape[1] - x.shape[1] // 2
    mask = x.sum(2).argsort(dim=1, stable=True).argsort(1) < kept
    chosen = x.masked_select(mask[:, :, None]).view(len(x), kept, x.shape[2])
    return torch.cat([chosen, x[:, kept:]], 1)


@operation(SEQUENCE, MASK, to=VECTOR)
def masked_mean(m, x, mask):
    weights = mask.to(x.dtype)[:, :, None]
    return (x * weights).sum(1) / weights.sum(1)


@operation(SEQUENCE, LENGTHS, to=SEQUENCE, layer=square)
def trim_to_the_longest(m, x, lengths):
    longest = int(lengths.max())
    kept = torch.arange(longest)[None] < lengths[:, None]
    y = m.layer(x[:, :longest]) * kept[:, :, None]
    return torch.cat([y, x.new_zeros(len(x), x.shape[1] - longest, x.shape[2])], 1)


@operation(TOKENS, to=SEQUENCE, table=lambda s: nn.Embedding(VOCABULARY, s.d), layer=square)
def embed_distinct_tokens(m, tokens):
    distinct, places = tokens.unique(return_inverse=True)
    return m.layer(m.table(distinct))[places]


@operation(VECTOR, to=VECTOR, layer=square)
def repeat_every_example(m, x):
    y = x.repeat_interleave(2, 0)
    y = m.layer(y * torch.tensor([1.0, -2.0], dtype=x.dtype).repeat(len(x))[:, None])
    return torch.tanh(y).view(len(x), 2, -1).mean(1)


@operation(VECTOR, VECTOR, to=VECTOR, layer=square)
def siamese_as_one_batch(m, x, y):
    one, other = torch.tanh(m.layer(torch.cat([x, y]))).chunk(2)
    return one * other + x


@operation(SEQUENCE, to=MASK)
def mask_of_values(m, x):
    mask = x.mean(2) > 0.1
    mask[:, 0] = True
    return mask
