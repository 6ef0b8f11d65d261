"""Attacks by rows that could be attributed to the wrong examples: permutations, selections, folds, and sizes that are equal."""

from __future__ import annotations

import torch
from harness import Task, Verdict, attack, bounded, exact
from materials import CLASSES, WIDTH, Body, Listed, classify, model_of, points, public, sentences, series
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset, default_collate

PUBLIC = public(series(3))


@attack("rows")
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
def batch_rolled_and_never_put_back():
    """An example is classified by its neighbour's row, so a row of a layer affects another example's loss."""
    make = lambda: model_of(lambda self, x: self.b(self.a(x).tanh().roll(1, 0)), a=nn.Linear(WIDTH, 6), b=nn.Linear(6, CLASSES))
    return exact(Task(make, classify), points(outlier=50.0), remove=(0, 5))


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


SIZE = 6


def cube(size: int = SIZE, outlier: float = 30.0) -> TensorDataset:
    """Return (B, T, d) with B = T = d, and class labels."""
    x = torch.randn(size, size, size, generator=torch.Generator().manual_seed(5))
    x[0] *= outlier
    return TensorDataset(x, torch.arange(size) % CLASSES)


def square_data(size: int = SIZE, outlier: float = 30.0) -> TensorDataset:
    """Return (B, d) with B = d."""
    x = torch.randn(size, size, generator=torch.Generator().manual_seed(5))
    x[0] *= outlier
    return TensorDataset(x, torch.arange(size) % CLASSES)


def on_cube(forward, data=None, **parts) -> Verdict:
    """Return the verdict on a forward pass over a cube, with layers `a` and `b` of that size and `out`."""
    make = lambda: model_of(
        forward,
        a=nn.Linear(SIZE, SIZE), b=nn.Linear(SIZE, SIZE), out=nn.Linear(SIZE, CLASSES),
        **{name: part() for name, part in parts.items()},
    )  # fmt: skip
    return exact(Task(make, classify), data or cube(), remove=(0, 2))


@attack("sizes")
def time_first_where_all_sizes_are_equal():
    """The layer sees (T, B, d)."""
    return on_cube(lambda self, x: self.out(self.a(x.transpose(0, 1)).tanh().sum(0)))


@attack("sizes")
def recurrence_with_batch_and_time_confused():
    """The user forgot `batch_first`: time runs over examples."""

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])

    make = lambda: model_of(forward, rnn=nn.GRU(SIZE, SIZE), out=nn.Linear(SIZE, CLASSES))
    return bounded(Task(make, classify), cube(), remove=(0, 2))


@attack("sizes")
def attention_with_time_first():
    """MultiheadAttention without `batch_first`."""

    def forward(self, x):
        h = x.transpose(0, 1)
        return self.out(self.attention(h, h, h)[0].sum(0))

    return on_cube(forward, cube(outlier=3.0), attention=lambda: nn.MultiheadAttention(SIZE, 2))


@attack("sizes")
def table_of_positions_as_long_as_the_batch():
    """Positional embeddings (T, d) are added, where T = B."""
    return on_cube(
        lambda self, x: self.out(self.a(x + self.place).tanh().sum(1)), place=lambda: nn.Parameter(torch.randn(SIZE, SIZE))
    )


@attack("sizes")
def loss_multiplied_by_a_public_table():
    """A public vector of B weights multiplies the losses, and is shared by all examples."""
    weight = torch.linspace(1.0, 200.0, SIZE)

    def loss(model, batch):
        return classify(model, batch) * weight[: len(batch[1])]

    return bounded(Task(lambda: nn.Linear(SIZE, CLASSES), loss), square_data(), remove=(0, 5))


@attack("sizes")
def collate_adds_a_public_table():
    """A leaf of the batch has B rows and is shared."""
    table = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(9))

    def collate(items):
        return default_collate([x for x, _ in items]), table, torch.tensor([y for _, y in items])

    make = lambda: model_of(lambda self, x, table: self.out((x @ table.t()).tanh()), out=nn.Linear(SIZE, CLASSES))
    data = Listed((x, int(y)) for x, y in square_data())
    return bounded(Task(make, classify, collate=collate), data, remove=(0, 2))


@attack("sizes")
def physical_batches_as_long_as_the_sequence():
    """Physical batches have T examples, the last one fewer."""
    data = cube(SIZE)
    x = torch.cat([data.tensors[0]] + [data.tensors[0][1:] * factor for factor in (0.5, 2.0)])
    labels = torch.arange(len(x)) % CLASSES
    make = lambda: model_of(
        lambda self, x: self.out(self.a(x.transpose(1, 2)).tanh().sum(1)), a=nn.Linear(SIZE, SIZE), out=nn.Linear(SIZE, CLASSES)
    )
    return exact(Task(make, classify, options={"physical_batch_size": SIZE}), TensorDataset(x, labels), remove=(0, len(x) - 1))


@attack("sizes")
def data_sets_of_two_examples():
    """The smallest data sets that a plan accepts: three examples and two."""
    data = points(3, outlier=30.0)
    return exact(Task(Body, classify), data, remove=(0, 2))
