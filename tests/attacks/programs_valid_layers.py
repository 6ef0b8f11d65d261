"""Layers and operations, on points, images, texts and sequences, that must be accepted and trained correctly."""

from __future__ import annotations

import torch
from harness import Task, trained_right, valid
from materials import CLASSES, WIDTH, Body, classify, model_of, perceptron, pictures, points, public, sentences, series
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import TensorDataset


def right(forward, data, *, tolerance=1e-3, **parts):
    """Return the verdict on a forward pass with an output layer of seven inputs, `out`, and other new modules."""
    make = lambda: model_of(forward, out=nn.Linear(7, CLASSES), **{name: part() for name, part in parts.items()})
    return trained_right(Task(make, classify, options=public(data)), data, remove=(0, 5), tolerance=tolerance)


def sequential(*layers):
    return lambda: nn.Sequential(*(layer() for layer in layers))


@valid()
def two_linear_layers():
    """A minimal network."""
    return trained_right(Task(perceptron, classify), points(), remove=(0, 5))


@valid()
def spectral_norm_as_a_hook():
    """The old API."""

    def make():
        model = Body()
        nn.utils.spectral_norm(model.inner)
        return model

    return trained_right(Task(make, classify), points())


@valid()
def weight_norm_as_a_parametrisation():
    """Directions and lengths."""

    def make():
        model = Body()
        parametrizations.weight_norm(model.inner)
        return model

    return trained_right(Task(make, classify), points())


@valid()
def table_tied_to_the_head():
    """One parameter is both table and output layer."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.middle, self.head = nn.Embedding(13, 6), nn.Linear(6, 6), nn.Linear(6, 13, bias=False)
            self.head.weight = self.table.weight

        def forward(self, text):
            return self.head(self.middle(self.table(text)).tanh())

    def loss(model, batch):
        return F.cross_entropy(model(batch[0][:, :-1]).transpose(1, 2), batch[0][:, 1:], reduction="none").mean(1)

    return trained_right(Task(Tied, loss), sentences(), remove=(0, 5))


@valid()
def layer_used_three_times():
    """One module at several places."""

    def forward(self, x):
        h = self.first(x)
        for _ in range(3):
            h = self.again(h).tanh()
        return self.out(h)

    return right(forward, points(), first=lambda: nn.Linear(WIDTH, 7), again=lambda: nn.Linear(7, 7))


@valid()
def convolutions_and_norms():
    """Strides, groups, dilation, group norm and pooling."""
    make = sequential(
        lambda: nn.Conv2d(2, 4, 3, padding=1), lambda: nn.GroupNorm(2, 4), nn.ReLU,
        lambda: nn.Conv2d(4, 4, 3, groups=4, dilation=2, padding=2),
        lambda: nn.MaxPool2d(2), lambda: nn.Conv2d(4, 6, 2, stride=2), nn.Flatten, lambda: nn.LazyLinear(CLASSES),
    )  # fmt: skip
    task = Task(make, classify, before=lambda model: model(torch.zeros(1, 2, 6, 6)))
    return trained_right(task, pictures(), remove=(0, 5))


@valid()
def frames_through_one_convolution():
    """(B, T, C, H, W): time is folded into the batch for a convolution, then unfolded."""

    def forward(self, x):
        h = self.conv(x.flatten(0, 1)).relu().mean((2, 3))
        return self.out(h.view(*x.shape[:2], -1).sum(1))

    x = torch.randn(6, 4, 2, 5, 5)
    return right(forward, TensorDataset(x, torch.arange(6) % CLASSES), conv=lambda: nn.Conv2d(2, 7, 3))


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


@valid()
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
