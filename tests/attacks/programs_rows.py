"""Attacks by rows that could be attributed to the wrong examples: permutations, selections and folds of a batch."""

from __future__ import annotations

import torch
from harness import Task, attack, exact
from materials import CLASSES, WIDTH, Body, classify, model_of, points, public, sentences, series
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import TensorDataset

PUBLIC = public(series(3))


@attack("rows", fast=True)
def adapter_on_marked_words():
    """A layer sees only marked words: here as many as examples, all from one example."""

    def forward(self, text):
        h, marked = self.table(text), text == 12
        if bool(marked.any()):
            h = h.index_put((marked,), h[marked] + self.adapter(h[marked]))
        return self.out(h.mean(1))

    data = sentences(length=18, words=12)
    data.tensors[0][0] = 12
    make = lambda: model_of(forward, table=nn.Embedding(13, 6), adapter=nn.Linear(6, 6), out=nn.Linear(6, CLASSES))
    return exact(Task(make, classify), data, remove=(0, 3))


@attack("rows")
def longest_first_and_back():
    """Sequences are sorted by length for a layer, then restored: in between, rows are not in batch order."""

    def forward(self, x, lengths):
        order = lengths.argsort(descending=True, stable=True)
        h = self.inner(x[order]).relu().sum(1)
        return self.outer(h[order.argsort()])

    data = series(16)
    data.tensors[0][1] *= 1e3
    make = lambda: model_of(forward, inner=nn.Linear(WIDTH, 6), outer=nn.Linear(6, CLASSES))
    return exact(Task(make, classify, options=PUBLIC), data, remove=(0, 1, 2))


@attack("rows")
def longest_first_with_weights_of_signs():
    """Gradients of alternating signs and very different sizes in sorted order: wrong weights would accumulate."""

    def forward(self, x, z):
        order = (x != 0).sum(1).sort(descending=True, stable=True).indices
        return self.second(z)[:, 0] + self.first(x[order]).sum(1)[order.argsort()]

    size = 40
    x = torch.zeros(size, size)
    for row in range(size):
        rank = (row - 1) % size
        x[row, : size - rank] = (3e3 if rank % 2 else 3e-4) / (size - rank)
    sign = torch.ones(size)
    sign[::2] = -1
    make = lambda: model_of(forward, first=nn.Linear(size, 1, bias=False), second=nn.Linear(1, 1, bias=False))
    loss = lambda model, batch: batch[2] * model(*batch[:2])
    return exact(Task(make, loss), TensorDataset(x, torch.ones(size, 1), sign), remove=(0,), tolerance=1e-2)


@attack("rows")
def reversed_batch_between_two_layers():
    """The batch is reversed for one layer, then restored."""
    make = lambda: model_of(
        lambda self, x: self.b(self.a(x.flip(0)).tanh().flip(0)), a=nn.Linear(WIDTH, 6), b=nn.Linear(6, CLASSES)
    )
    return exact(Task(make, classify), points(outlier=50.0), remove=(0, 5))


@attack("rows")
def rolled_batch_between_two_layers():
    """The batch is rolled by one for a layer, then rolled back."""
    make = lambda: model_of(
        lambda self, x: self.b(self.a(x.roll(1, 0)).tanh().roll(-1, 0)), a=nn.Linear(WIDTH, 6), b=nn.Linear(6, CLASSES)
    )
    return exact(Task(make, classify), points(outlier=50.0), remove=(0, 5))


@attack("rows")
def batch_rolled_and_never_put_back():
    """An example is classified by its neighbour's row, so a row of a layer affects another example's loss."""
    make = lambda: model_of(lambda self, x: self.b(self.a(x).tanh().roll(1, 0)), a=nn.Linear(WIDTH, 6), b=nn.Linear(6, CLASSES))
    return exact(Task(make, classify), points(outlier=50.0), remove=(0, 5))


@attack("rows")
def halves_of_the_batch_are_exchanged():
    """`chunk` and `cat` swap the halves of the batch for one layer."""

    def forward(self, x):
        cut = len(x) // 2
        h = self.a(torch.cat([x[cut:], x[:cut]])).tanh()
        return self.b(torch.cat([h[len(x) - cut :], h[: len(x) - cut]]))

    make = lambda: model_of(forward, a=nn.Linear(WIDTH, 6), b=nn.Linear(6, CLASSES))
    return exact(Task(make, classify), points(outlier=50.0), remove=(0, 9))


@attack("rows")
def time_and_batch_folded_the_wrong_way():
    """(T, B) are flattened to one dimension for a layer, time first, then unflattened."""

    def forward(self, x, lengths):
        flat = x.transpose(0, 1).reshape(-1, x.shape[-1])
        return self.b(self.a(flat).tanh().view(x.shape[1], x.shape[0], -1).sum(0))

    make = lambda: model_of(forward, a=nn.Linear(WIDTH, 6), b=nn.Linear(6, CLASSES))
    return exact(Task(make, classify, options=PUBLIC), series(10, longest=10), remove=(0, 3))


@attack("rows")
def real_words_only_through_a_layer():
    """A boolean mask selects the valid steps of all sequences; the layer sees rows of different examples."""

    def forward(self, x, lengths):
        mask = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        h = torch.zeros(*x.shape[:2], 6)
        h[mask] = self.a(x[mask]).tanh()
        return self.b(h.sum(1))

    make = lambda: model_of(forward, a=nn.Linear(WIDTH, 6), b=nn.Linear(6, CLASSES))
    data = series(12)
    data.tensors[1][:] = 1  # one step each: as many rows as examples
    data.tensors[1][0], data.tensors[1][1] = 6, 2
    return exact(Task(make, classify, options=PUBLIC), data, remove=(0, 1, 2))


@attack("rows")
def experts_by_the_sign_of_an_input():
    """Each expert gets the rows routed to it, scattered back by `index_add`."""

    def forward(self, x):
        out = torch.zeros(len(x), 6)
        for sign, expert in ((True, self.left), (False, self.right)):
            chosen = ((x[:, 0] > 0) == sign).nonzero()[:, 0]
            if len(chosen):
                out = out.index_add(0, chosen, expert(x[chosen]))
        return self.out(out.tanh())

    make = lambda: model_of(forward, left=nn.Linear(WIDTH, 6), right=nn.Linear(WIDTH, 6), out=nn.Linear(6, CLASSES))
    return exact(Task(make, classify), points(outlier=50.0), remove=(0, 4))


@attack("rows")
def words_sorted_by_expert():
    """All words of all texts are sorted by expert, as grouped products need, then restored."""

    def forward(self, text):
        h = self.table(text).flatten(0, 1)
        expert = text.flatten() % 3
        order = expert.argsort(stable=True)
        parts = [self.experts[k](h[order][expert[order] == k]) for k in range(3)]
        back = torch.cat(parts)[order.argsort()]
        return self.out(back.view(*text.shape, -1).mean(1))

    make = lambda: model_of(
        forward, table=nn.Embedding(13, 6), out=nn.Linear(6, CLASSES), experts=nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
    )
    return exact(Task(make, classify), sentences(), remove=(0, 4))


@attack("rows")
def packed_recurrence_sorted_by_hand():
    """The user sorts, packs with `enforce_sorted=True`, and restores the order of hidden states."""

    def forward(self, x, lengths):
        lengths, order = lengths.sort(descending=True)
        packed = pack_padded_sequence(x[order], lengths.cpu(), batch_first=True)
        last = self.rnn(packed)[1][-1]
        return self.out(last[order.argsort()])

    make = lambda: model_of(forward, rnn=nn.GRU(WIDTH, 6, batch_first=True), out=nn.Linear(6, CLASSES))
    return exact(Task(make, classify, options=PUBLIC), series(), remove=(0, 4))


@attack("rows")
def packed_data_used_as_a_matrix():
    """A layer is applied to the rows of a packed sequence: steps of all sequences, time first."""

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        packed = packed._replace(data=self.a(packed.data).tanh())
        return self.b(pad_packed_sequence(packed, batch_first=True)[0].sum(1))

    make = lambda: model_of(forward, a=nn.Linear(WIDTH, 6), b=nn.Linear(6, CLASSES))
    return exact(Task(make, classify, options=PUBLIC), series(), remove=(0, 4))


@attack("rows")
def distinct_words_are_encoded_once():
    """`unique` over the batch: all examples with a word share its row."""

    def forward(self, text):
        words, place = text.unique(return_inverse=True)
        return self.b(self.a(self.table(words)).tanh()[place].mean(1))

    make = lambda: model_of(forward, table=nn.Embedding(13, 6), a=nn.Linear(6, 6), b=nn.Linear(6, CLASSES))
    return exact(Task(make, classify), sentences(), remove=(0, 4))


@attack("rows")
def every_second_row_through_another_layer():
    """The layer applied to an example depends on its position in the batch."""

    def forward(self, x):
        h = torch.empty(len(x), 6)
        h[::2], h[1::2] = self.even(x[::2]), self.odd(x[1::2])
        return self.out(h.tanh())

    make = lambda: model_of(forward, even=nn.Linear(WIDTH, 6), odd=nn.Linear(WIDTH, 6), out=nn.Linear(6, CLASSES))
    return exact(Task(make, classify), points(outlier=50.0), remove=(0, 1))


@attack("rows")
def one_layer_on_rows_in_two_orders():
    """A layer is applied to the batch and to the batch sorted by its first column; both results are added."""

    def forward(self, x):
        order = x[:, 0].argsort()
        return self.out(self.a(x).tanh() + self.a(x[order]).tanh()[order.argsort()])

    make = lambda: model_of(forward, a=nn.Linear(WIDTH, 6), out=nn.Linear(6, CLASSES))
    return exact(Task(make, classify), points(outlier=50.0), remove=(0, 4))


@attack("rows")
def pairs_are_interleaved():
    """Two views of every example are interleaved, as rows 2i and 2i + 1, then summed."""

    def forward(self, x):
        both = torch.stack([x, -0.5 * x], 1).flatten(0, 1)
        return self.b(self.a(both).tanh().view(len(x), 2, -1).sum(1))

    make = lambda: model_of(forward, a=nn.Linear(WIDTH, 6), b=nn.Linear(6, CLASSES))
    return exact(Task(make, classify), points(outlier=50.0), remove=(0, 4))


@attack("rows")
def views_stacked_behind_each_other():
    """The second views follow all first ones: row B + i belongs to example i."""

    def forward(self, x):
        first, second = self.b(self.a(torch.cat([x, x.flip(1)])).tanh()).chunk(2)
        return first + second

    make = lambda: model_of(forward, a=nn.Linear(WIDTH, 6), b=nn.Linear(6, CLASSES))
    return exact(Task(make, classify), points(outlier=50.0), remove=(0, 4))


@attack("rows")
def patches_found_by_unfold():
    """`F.unfold` and a reshape that mixes patches and batch before a layer."""

    def forward(self, x):
        pieces = F.unfold(x, 3, stride=3).permute(2, 0, 1)  # (patches, B, values)
        h = self.a(pieces.reshape(-1, pieces.shape[-1])).tanh()
        return self.b(h.view(pieces.shape[0], len(x), -1).mean(0))

    x = torch.randn(4, 2, 6, 6)  # four patches of four images
    x[0] *= 40
    make = lambda: model_of(forward, a=nn.Linear(18, 6), b=nn.Linear(6, CLASSES))
    return exact(Task(make, classify), TensorDataset(x, torch.tensor([0, 1, 2, 3])), remove=(0, 2))


@attack("rows")
def columns_of_a_matrix_are_examples():
    """The batch is transposed, and the weight multiplies from the left: examples are columns."""

    class Left(Body):
        def forward(self, x):
            return self.outer((self.inner.weight @ x.t()).t().tanh())

    return exact(Task(Left, classify), points(WIDTH, outlier=50.0), remove=(0, 3))


@attack("rows")
def graph_convolution_over_the_batch():
    """Nodes of small graphs are rows of one matrix with graph indices; `index_add` sums them per graph."""

    def forward(self, x, lengths):
        owner = torch.repeat_interleave(torch.arange(len(x)), lengths)
        place = torch.cat([torch.arange(int(k)) for k in lengths])
        h = self.a(x[owner, place]).tanh()
        return self.b(torch.zeros(len(x), 6).index_add(0, owner, h))

    make = lambda: model_of(forward, a=nn.Linear(WIDTH, 6), b=nn.Linear(6, CLASSES))
    return exact(Task(make, classify, options=PUBLIC), series(), remove=(0, 4))
