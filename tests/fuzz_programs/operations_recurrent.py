"""Operations over time: recurrent layers, packed and padded, their cells, and attention."""

import torch
from operations import LENGTHS, MASK, SEQUENCE, VECTOR, enter, operation, square, values
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence


def attention(sizes):
    return nn.MultiheadAttention(sizes.d, sizes.heads, batch_first=True)


enter("lstm", lambda m, x: m.layer(x)[0], SEQUENCE, to=SEQUENCE, layer=lambda s: nn.LSTM(s.d, s.d, batch_first=True))
enter("gru_time_major", lambda m, x: m.layer(x.transpose(0, 1))[0].transpose(0, 1),
      SEQUENCE, to=SEQUENCE, layer=lambda s: nn.GRU(s.d, s.d))  # fmt: skip
enter("attention_with_padding", lambda m, x, mask: m.layer(x, x, x, key_padding_mask=~mask, need_weights=False)[0],
      SEQUENCE, MASK, to=SEQUENCE, layer=attention)  # fmt: skip
enter("attend_from_vector", lambda m, x, y: m.layer(x[:, None], y, y)[0].squeeze(1), VECTOR, SEQUENCE, to=VECTOR, layer=attention)
enter("bidirectional_rnn", lambda m, x: m.out(m.layer(x)[0]), SEQUENCE, to=SEQUENCE,
      layer=lambda s: nn.RNN(s.d, s.d, batch_first=True, bidirectional=True), out=lambda s: nn.Linear(2 * s.d, s.d))  # fmt: skip
enter("encoder_layer", lambda m, x, mask: m.layer(x, src_key_padding_mask=~mask), SEQUENCE, MASK, to=SEQUENCE,
      layer=lambda s: nn.TransformerEncoderLayer(s.d, s.heads, 4, dropout=0.0, batch_first=True))  # fmt: skip
enter("decoder_layer", lambda m, x, y: m.layer(x, y, tgt_mask=torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)),
      SEQUENCE, SEQUENCE, to=SEQUENCE,
      layer=lambda s: nn.TransformerDecoderLayer(s.d, s.heads, 4, dropout=0.0, batch_first=True, norm_first=True))  # fmt: skip


@operation(SEQUENCE, to=VECTOR, layer=lambda s: nn.LSTM(s.d, s.d, 2, batch_first=True), start=values(2, 1, "d"))
def deep_lstm_with_learned_start(m, x):
    start = m.start.expand(-1, len(x), -1).contiguous()
    return m.layer(x, (start, torch.zeros_like(start)))[1][0][-1]


@operation(SEQUENCE, LENGTHS, to=SEQUENCE, layer=lambda s: nn.GRU(s.d, s.d, batch_first=True))
def packed_sorted_gru(m, x, lengths):
    lengths, order = lengths.sort(descending=True, stable=True)
    packed = pack_padded_sequence(x[order], lengths, batch_first=True)
    out, _ = pad_packed_sequence(m.layer(packed)[0], batch_first=True, total_length=x.shape[1])
    return out[order.argsort()]


@operation(SEQUENCE, LENGTHS, to=SEQUENCE, layer=lambda s: nn.LSTM(s.d, s.d, batch_first=True))
def packed_lstm_in_any_order(m, x, lengths):
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(m.layer(packed)[0], batch_first=True, total_length=x.shape[1])[0]


@operation(SEQUENCE, LENGTHS, to=VECTOR, layer=lambda s: nn.GRU(s.d, s.d))
def last_state_of_packed_slices(m, x, lengths):
    packed = pack_sequence([row[:n] for row, n in zip(x, lengths.tolist(), strict=True)], enforce_sorted=False)
    return m.layer(packed)[1][-1]


@operation(SEQUENCE, LENGTHS, to=SEQUENCE, layer=square)
def linear_on_packed_data(m, x, lengths):
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    packed = packed._replace(data=torch.tanh(m.layer(packed.data)))
    return pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])[0]


@operation(SEQUENCE, to=SEQUENCE, cell=lambda s: nn.LSTMCell(s.d, s.d))
def lstm_cell(m, x):
    hidden, cell, out = x.new_zeros(len(x), x.shape[2]), x.new_zeros(len(x), x.shape[2]), []
    for step in x.unbind(1):
        hidden, cell = m.cell(step, (hidden, cell))
        out.append(hidden)
    return torch.stack(out, 1)


@operation(SEQUENCE, LENGTHS, to=VECTOR, cell=lambda s: nn.GRUCell(s.d, s.d))
def gru_cell_to_the_longest(m, x, lengths):
    hidden = torch.zeros_like(x[:, 0])
    for t in range(int(lengths.max())):
        hidden = torch.where((t < lengths)[:, None], m.cell(x[:, t], hidden), hidden)
    return hidden


@operation(SEQUENCE, to=VECTOR, cell=lambda s: nn.RNNCell(s.d, s.d))
def rnn_cell_backwards(m, x):
    hidden = None
    for t in reversed(range(x.shape[1])):
        hidden = m.cell(x[:, t], hidden)
    return hidden


@operation(SEQUENCE, LENGTHS, to=VECTOR, cell=lambda s: nn.GRUCell(s.d, s.d))
def gru_cell_on_those_that_last(m, x, lengths):
    lengths, order = lengths.sort(descending=True, stable=True)
    x, hidden = x[order], x.new_zeros(len(x), x.shape[2])
    for t in range(x.shape[1]):
        count = int((lengths > t).sum())
        if count == 0:
            break
        hidden = torch.cat([m.cell(x[:count, t], hidden[:count]), hidden[count:]])
    return hidden[order.argsort()]


@operation(SEQUENCE, SEQUENCE, to=SEQUENCE, layer=lambda s: nn.MultiheadAttention(s.d, s.heads))
def cross_attention_time_major(m, x, y):
    x, y = x.transpose(0, 1), y.transpose(0, 1)
    return m.layer(x, y, y)[0].transpose(0, 1)


@operation(SEQUENCE, MASK, to=SEQUENCE, qkv=lambda s: nn.Linear(s.d, 3 * s.d), heads=lambda s: s.heads)
def scaled_dot_product(m, x, mask):
    q, k, v = (part.unflatten(2, (m.heads, -1)).transpose(1, 2) for part in m.qkv(x).chunk(3, -1))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None]).transpose(1, 2).flatten(2)


@operation(SEQUENCE, MASK, to=SEQUENCE, query=square, key=square)
def attention_by_hand(m, x, mask):
    scores = torch.einsum("btd,bsd->bts", m.query(x), m.key(x)) / x.shape[2] ** 0.5
    weights = scores.masked_fill(~mask[:, None], float("-inf")).softmax(-1)
    return torch.einsum("bts,bsd->btd", weights, x)


@operation(SEQUENCE, to=SEQUENCE, layer=square, bias=values(9))
def attention_with_relative_bias(m, x):
    places = torch.arange(x.shape[1])
    scores = m.layer(x) @ x.mT / 4 + m.bias[places[:, None] - places[None] + 4]
    return scores.softmax(-1) @ x


@operation(SEQUENCE, to=SEQUENCE, prompt=values(2, "d"), layer=square)
def attention_with_prompt(m, x):
    keys = torch.cat([m.prompt[None].expand(len(x), -1, -1), x], 1)
    return F.scaled_dot_product_attention(m.layer(x), keys, keys)
