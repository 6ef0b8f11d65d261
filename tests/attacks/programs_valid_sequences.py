"""Layers and operations on texts and sequences that must be accepted and trained correctly."""

from __future__ import annotations

import torch
from harness import Task, trained_right, valid
from materials import CLASSES, WIDTH, classify, model_of, public, sentences, series
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


def right(forward, data, *, tolerance=1e-3, **parts):
    """Return the verdict on a forward pass with an output layer of seven inputs, `out`, and other new modules."""
    make = lambda: model_of(forward, out=nn.Linear(7, CLASSES), **{name: part() for name, part in parts.items()})
    return trained_right(Task(make, classify, options=public(data)), data, remove=(0, 5), tolerance=tolerance)


@valid()
def rows_written_into_zeros():
    """A tensor that the model creates is filled step by step."""

    def forward(self, x, lengths):
        h, state = torch.zeros(len(x), x.shape[1], 7), None
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
            h[:, step] = state
        return self.out(h.sum(1))

    return right(forward, series(), cell=lambda: nn.GRUCell(WIDTH, 7))


@valid()
def bag_with_offsets():
    """EmbeddingBag on one list of words with an offset for each text."""

    def forward(self, text):
        offsets = torch.arange(0, text.numel(), text.shape[1])
        return self.out(self.bag(text.flatten(), offsets))

    return right(forward, sentences(), bag=lambda: nn.EmbeddingBag(13, 7, mode="sum"))


@valid()
def recurrent_cells():
    """LSTMCell, GRUCell and RNNCell in a loop over time."""

    def forward(self, x, lengths):
        state, h, g = None, torch.zeros(len(x), 7), torch.zeros(len(x), 7)
        for step in range(x.shape[1]):
            state = self.long(x[:, step], state)
            h, g = self.gated(state[0], h), self.plain(h, g)
        return self.out(g + h)

    return right(
        forward, series(),
        long=lambda: nn.LSTMCell(WIDTH, 7), gated=lambda: nn.GRUCell(7, 7), plain=lambda: nn.RNNCell(7, 7),
    )  # fmt: skip


@valid(fast=True)
def packed_sequences_in_any_order():
    """`enforce_sorted=False`."""

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        h, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=x.shape[1])
        return self.out(h.sum(1))

    return right(forward, series(), rnn=lambda: nn.LSTM(WIDTH, 7, batch_first=True))


@valid()
def attention_with_masks():
    """MultiheadAttention with a mask of padding and a causal one."""

    def forward(self, x, lengths):
        h = self.first(x)
        padded = torch.arange(x.shape[1]) >= lengths[:, None]
        causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        h, _ = self.attention(h, h, h, key_padding_mask=padded, attn_mask=causal)
        return self.out(F.pad(h.mean(1), (0, 1)))

    return right(
        forward, series(), first=lambda: nn.Linear(WIDTH, 6), attention=lambda: nn.MultiheadAttention(6, 2, batch_first=True)
    )


@valid()
def chosen_words_through_a_layer():
    """A mask selects one word of each text for an additional layer."""

    def forward(self, text):
        h, chosen = self.table(text), text == 12
        return self.out(h.index_put((chosen,), self.extra(h[chosen])).sum(1))

    data = sentences(words=12)
    data.tensors[0][torch.arange(18), torch.arange(18) % 7] = 12
    return right(forward, data, table=lambda: nn.Embedding(13, 7), extra=lambda: nn.Linear(7, 7))


@valid()
def sequences_sorted_and_put_back():
    """Sort by length, encode, unsort."""

    def forward(self, x, lengths):
        order = lengths.argsort(descending=True, stable=True)
        return self.out(self.first(x[order]).tanh().sum(1)[order.argsort()])

    return right(forward, series(), first=lambda: nn.Linear(WIDTH, 7))


@valid()
def mixture_of_two_experts():
    """Each word is routed to one expert; rows are gathered and scattered back."""

    def forward(self, text):
        h = self.table(text)
        flat, expert = h.flatten(0, 1), self.router(h).argmax(-1).flatten()
        mixed = torch.zeros_like(flat)
        for number, layer in enumerate(self.experts):
            chosen = (expert == number).nonzero()[:, 0]
            mixed = mixed.index_add(0, chosen, layer(flat[chosen]))
        return self.out(mixed.view_as(h).tanh().mean(1))

    return right(
        forward, sentences(), table=lambda: nn.Embedding(13, 7), router=lambda: nn.Linear(7, 2).requires_grad_(False),
        experts=lambda: nn.ModuleList(nn.Linear(7, 7) for _ in range(2)),
    )  # fmt: skip
