"""Attacks by coinciding sizes: B equals the length, the width, the number of classes or of rows of tables."""

from __future__ import annotations

import torch
from harness import Task, Verdict, attack, bounded, exact
from materials import CLASSES, Body, Listed, classify, model_of, points
from torch import nn
from torch.utils.data import TensorDataset, default_collate

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
def einsum_with_every_order():
    """Einsum products that contract weights over time, width or both."""

    def forward(self, x):
        one = torch.einsum("bti,oi->bto", x, self.a.weight)
        other = torch.einsum("bti,ot->boi", x, self.b.weight)
        return self.out((one + other).tanh().sum(1))

    return on_cube(forward)


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
def one_neighbour_has_the_coincidence():
    """B = T for one of two neighbours only."""
    make = lambda: model_of(
        lambda self, x: self.out(self.a(x.transpose(1, 2)).tanh().sum(1)), a=nn.Linear(SIZE, SIZE), out=nn.Linear(SIZE, CLASSES)
    )
    data = cube()
    more = TensorDataset(
        torch.cat([data.tensors[0], data.tensors[0][1:2] * 2]), torch.cat([data.tensors[1], data.tensors[1][:1]])
    )
    return exact(Task(make, classify), more, remove=(0, SIZE))


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
