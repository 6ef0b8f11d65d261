"""Attacks by rows that could be attributed to the wrong examples: permutations, selections, folds, and sizes that are equal."""

import torch
from harness import Task, attack, bounded, exact, forward_pass
from materials import CLASSES, WIDTH, Body, Listed, classify, model_of, points, sentences, series
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset, default_collate


def rows(data, remove, **parts):
    return forward_pass("rows", data, remove=remove, **parts)


def marked():
    """Return texts of which one alone has the word 12, as often as there are texts."""
    data = sentences(length=18, words=12)
    data.tensors[0][0] = 12
    return data


@rows(marked(), (0, 3), table=lambda: nn.Embedding(13, 7), adapter=lambda: nn.Linear(7, 7))
def adapter_on_marked_words(self, text):
    """A layer sees only marked words: here as many as examples, all from one example."""
    h, marked = self.table(text), text == 12
    if bool(marked.any()):
        h = h.index_put((marked,), h[marked] + self.adapter(h[marked]))
    return self.out(h.mean(1))


def far(data, index: int, factor: float):
    """Return the data with one example so many times as large."""
    data.tensors[0][index] *= factor
    return data


@rows(far(series(16), 1, 1e3), (0, 1, 2), inner=lambda: nn.Linear(WIDTH, 7))
def longest_first_and_back(self, x, lengths):
    """Sequences are sorted by length for a layer, then restored: in between, rows are not in batch order."""
    order = lengths.argsort(descending=True, stable=True)
    return self.out(self.inner(x[order]).relu().sum(1)[order.argsort()])


@rows(points(outlier=50.0), (0, 5), a=lambda: nn.Linear(WIDTH, 7))
def batch_rolled_and_never_put_back(self, x):
    """An example is classified by its neighbour's row, so a row of a layer affects another example's loss."""
    return self.out(self.a(x).tanh().roll(1, 0))


@rows(series(10, longest=10), (0, 3), a=lambda: nn.Linear(WIDTH, 7))
def time_and_batch_folded_the_wrong_way(self, x, lengths):
    """(T, B) are flattened to one dimension for a layer, time first, then unflattened."""
    flat = x.transpose(0, 1).reshape(-1, x.shape[-1])
    return self.out(self.a(flat).tanh().view(x.shape[1], x.shape[0], -1).sum(0))


def short():
    """Return sequences with one step each, as many rows as examples, but for two."""
    data = series(12)
    data.tensors[1][:] = 1
    data.tensors[1][0], data.tensors[1][1] = 6, 2
    return data


@rows(short(), (0, 1, 2), a=lambda: nn.Linear(WIDTH, 7))
def real_words_only_through_a_layer(self, x, lengths):
    """A boolean mask selects the valid steps of all sequences; the layer sees rows of different examples."""
    mask = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
    h = torch.zeros(*x.shape[:2], 7)
    h[mask] = self.a(x[mask]).tanh()
    return self.out(h.sum(1))


@rows(sentences(), (0, 4), table=lambda: nn.Embedding(13, 7), experts=lambda: nn.ModuleList(nn.Linear(7, 7) for _ in range(3)))
def words_sorted_by_expert(self, text):
    """All words of all texts are sorted by expert, as grouped products need, then restored."""
    h = self.table(text).flatten(0, 1)
    expert = text.flatten() % 3
    order = expert.argsort(stable=True)
    parts = [self.experts[k](h[order][expert[order] == k]) for k in range(3)]
    back = torch.cat(parts)[order.argsort()]
    return self.out(back.view(*text.shape, -1).mean(1))


PICTURES = torch.randn(4, 2, 6, 6, generator=torch.Generator().manual_seed(5))  # four patches of four images


@rows(far(TensorDataset(PICTURES, torch.arange(4)), 0, 40), (0, 2), a=lambda: nn.Linear(18, 7))
def patches_found_by_unfold(self, x):
    """`F.unfold` and a reshape that mixes patches and batch before a layer."""
    pieces = F.unfold(x, 3, stride=3).permute(2, 0, 1)  # (patches, B, values)
    h = self.a(pieces.reshape(-1, pieces.shape[-1])).tanh()
    return self.out(h.view(pieces.shape[0], len(x), -1).mean(0))


SIZE = 6


def cube(dimensions: int = 3, outlier: float = 30.0) -> TensorDataset:
    """Return (B, T, d) with B = T = d, or (B, d) with B = d, and class labels."""
    x = torch.randn([SIZE] * dimensions, generator=torch.Generator().manual_seed(5))
    x[0] *= outlier
    return TensorDataset(x, torch.arange(SIZE) % CLASSES)


def on_cube(data=None, judged=exact, **parts):
    """Register a forward pass over a cube, with a layer `a` of that size, `out` and other parts."""

    parts |= {"a": lambda: nn.Linear(SIZE, SIZE), "out": lambda: nn.Linear(SIZE, CLASSES)}
    return forward_pass("sizes", data or cube(), judged, (0, 2), **parts)


@on_cube()
def time_first_where_all_sizes_are_equal(self, x):
    """The layer sees (T, B, d)."""
    return self.out(self.a(x.transpose(0, 1)).tanh().sum(0))


@on_cube(judged=bounded, rnn=lambda: nn.GRU(SIZE, SIZE))
def recurrence_with_batch_and_time_confused(self, x):
    """The user forgot `batch_first`: time runs over examples."""
    return self.out(self.rnn(x)[0][:, -1])


@on_cube(cube(outlier=3.0), attention=lambda: nn.MultiheadAttention(SIZE, 2))
def attention_with_time_first(self, x):
    """MultiheadAttention without `batch_first`."""
    h = x.transpose(0, 1)
    return self.out(self.attention(h, h, h)[0].sum(0))


@on_cube(place=lambda: nn.Parameter(torch.randn(SIZE, SIZE)))
def table_of_positions_as_long_as_the_batch(self, x):
    """Positional embeddings (T, d) are added, where T = B."""
    return self.out(self.a(x + self.place).tanh().sum(1))


@attack("sizes")
def loss_multiplied_by_a_public_table():
    """A public vector of B weights multiplies the losses, and is shared by all examples."""
    weight = torch.linspace(1.0, 200.0, SIZE)
    loss = lambda model, batch: classify(model, batch) * weight[: len(batch[1])]
    return bounded(Task(lambda: nn.Linear(SIZE, CLASSES), loss), cube(2), remove=(0, 5))


@attack("sizes")
def collate_adds_a_public_table():
    """A leaf of the batch has B rows and is shared."""
    table = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(9))

    def collate(items):
        return default_collate([x for x, _ in items]), table, torch.tensor([y for _, y in items])

    make = lambda: model_of(lambda self, x, table: self.out((x @ table.t()).tanh()), out=nn.Linear(SIZE, CLASSES))
    data = Listed((x, int(y)) for x, y in cube(2))
    return bounded(Task(make, classify, collate=collate), data, remove=(0, 2))


@attack("sizes")
def physical_batches_as_long_as_the_sequence():
    """Physical batches have T examples, the last one fewer."""
    x = cube().tensors[0]
    x = torch.cat([x, *(x[1:] * factor for factor in (0.5, 2.0))])
    labels = torch.arange(len(x)) % CLASSES
    make = lambda: model_of(
        lambda self, x: self.out(self.a(x.transpose(1, 2)).tanh().sum(1)), a=nn.Linear(SIZE, SIZE), out=nn.Linear(SIZE, CLASSES)
    )
    return exact(Task(make, classify, options={"physical_batch_size": SIZE}), TensorDataset(x, labels), remove=(0, len(x) - 1))


@attack("sizes")
def data_sets_of_two_examples():
    """The smallest data sets that a plan accepts: three examples and two."""
    return exact(Task(Body, classify), points(3, outlier=30.0), remove=(0, 2))
