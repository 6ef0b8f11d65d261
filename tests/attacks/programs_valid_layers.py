"""Layers and operations, on points, images, texts and sequences, that must be accepted and trained correctly."""

import torch
from harness import VALID, Task, forward_pass, trained_right, valid
from materials import CLASSES, WIDTH, Body, classify, perceptron, pictures, points, sentences, series
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import TensorDataset


def right(data, **parts):
    return forward_pass(VALID, data, trained_right, (0,), **parts)


@valid()
def two_linear_layers():
    """A minimal network."""
    return trained_right(Task(perceptron, classify), points())


def reparametrised(change):
    """Return the verdict on two layers of which the first is changed."""

    def make():
        model = Body()
        change(model.inner)
        return model

    return trained_right(Task(make, classify), points())


@valid()
def spectral_norm_as_a_hook():
    """The old API."""
    return reparametrised(nn.utils.spectral_norm)


@valid()
def weight_norm_as_a_parametrisation():
    """Directions and lengths."""
    return reparametrised(parametrizations.weight_norm)


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

    return trained_right(Task(Tied, loss), sentences())


@right(points(), first=lambda: nn.Linear(WIDTH, 7), again=lambda: nn.Linear(7, 7))
def layer_used_three_times(self, x):
    """One module at several places."""
    h = self.first(x)
    for _ in range(3):
        h = self.again(h).tanh()
    return self.out(h)


@valid()
def convolutions_and_norms():
    """Strides, groups, dilation, group norm and pooling."""
    make = lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.Conv2d(4, 4, 3, groups=4, dilation=2, padding=2),
        nn.MaxPool2d(2), nn.Conv2d(4, 6, 2, stride=2), nn.Flatten(), nn.LazyLinear(CLASSES),
    )  # fmt: skip
    task = Task(make, classify, before=lambda model: model(torch.zeros(1, 2, 6, 6)))
    return trained_right(task, pictures())


FRAMES = TensorDataset(torch.randn(6, 4, 2, 5, 5, generator=torch.Generator().manual_seed(7)), torch.arange(6) % CLASSES)


@right(FRAMES, conv=lambda: nn.Conv2d(2, 7, 3))
def frames_through_one_convolution(self, x):
    """(B, T, C, H, W): time is folded into the batch for a convolution, then unfolded."""
    h = self.conv(x.flatten(0, 1)).relu().mean((2, 3))
    return self.out(h.view(*x.shape[:2], -1).sum(1))


@right(series(), cell=lambda: nn.GRUCell(WIDTH, 7))
def rows_written_into_zeros(self, x, lengths):
    """A tensor that the model creates is filled step by step."""
    h, state = torch.zeros(len(x), x.shape[1], 7), None
    for step in range(x.shape[1]):
        state = self.cell(x[:, step], state)
        h[:, step] = state
    return self.out(h.sum(1))


@right(sentences(), bag=lambda: nn.EmbeddingBag(13, 7, mode="sum"))
def bag_with_offsets(self, text):
    """EmbeddingBag on one list of words with an offset for each text."""
    return self.out(self.bag(text.flatten(), torch.arange(0, text.numel(), text.shape[1])))


@right(series(), long=lambda: nn.LSTMCell(WIDTH, 7), gated=lambda: nn.GRUCell(7, 7), plain=lambda: nn.RNNCell(7, 7))
def recurrent_cells(self, x, lengths):
    """LSTMCell, GRUCell and RNNCell in a loop over time."""
    state, h, g = None, torch.zeros(len(x), 7), torch.zeros(len(x), 7)
    for step in range(x.shape[1]):
        state = self.long(x[:, step], state)
        h, g = self.gated(state[0], h), self.plain(h, g)
    return self.out(g + h)


@right(series(), rnn=lambda: nn.LSTM(WIDTH, 7, batch_first=True))
def packed_sequences_in_any_order(self, x, lengths):
    """`enforce_sorted=False`."""
    packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
    h, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=x.shape[1])
    return self.out(h.sum(1))


@right(series(), first=lambda: nn.Linear(WIDTH, 6), attention=lambda: nn.MultiheadAttention(6, 2, batch_first=True))
def attention_with_masks(self, x, lengths):
    """MultiheadAttention with a mask of padding and a causal one."""
    h = self.first(x)
    padded = torch.arange(x.shape[1]) >= lengths[:, None]
    causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    h, _ = self.attention(h, h, h, key_padding_mask=padded, attn_mask=causal)
    return self.out(F.pad(h.mean(1), (0, 1)))


CHOSEN = sentences(words=12)
CHOSEN.tensors[0][torch.arange(18), torch.arange(18) % 7] = 12


@right(CHOSEN, table=lambda: nn.Embedding(13, 7), extra=lambda: nn.Linear(7, 7))
def chosen_words_through_a_layer(self, text):
    """A mask selects one word of each text for an additional layer."""
    h, chosen = self.table(text), text == 12
    return self.out(h.index_put((chosen,), self.extra(h[chosen])).sum(1))


@right(series(), first=lambda: nn.Linear(WIDTH, 7))
def sequences_sorted_and_put_back(self, x, lengths):
    """Sort by length, encode, unsort."""
    order = lengths.argsort(descending=True, stable=True)
    return self.out(self.first(x[order]).tanh().sum(1)[order.argsort()])


@right(
    sentences(), table=lambda: nn.Embedding(13, 7), router=lambda: nn.Linear(7, 2).requires_grad_(False),
    experts=lambda: nn.ModuleList(nn.Linear(7, 7) for _ in range(2)),
)  # fmt: skip
def mixture_of_two_experts(self, text):
    """Each word is routed to one expert; rows are gathered and scattered back."""
    h = self.table(text)
    flat, expert = h.flatten(0, 1), self.router(h).argmax(-1).flatten()
    mixed = torch.zeros_like(flat)
    for number, layer in enumerate(self.experts):
        chosen = (expert == number).nonzero()[:, 0]
        mixed = mixed.index_add(0, chosen, layer(flat[chosen]))
    return self.out(mixed.view_as(h).tanh().mean(1))
